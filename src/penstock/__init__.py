"""Penstock: elastic, order-preserving stream processing for Python.

>>> import penstock as ps
>>> flow = ps.Flow("words")
>>> counts = ps.sinks.collect()
>>> words = flow.read(ps.sources.items(["to be", "or not to be"])).flat_map(str.split)
>>> words.key_by(lambda word: word).count().write(counts)
>>> report = flow.run("sequential")
>>> counts.items[-2:]
[('to', 2), ('be', 2)]
"""

from penstock import controllers, costs, engines, rates, sinks, sources, spark, windows
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split, Unreadable
from penstock.elasticity.changes import Change
from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import Controller, Signals
from penstock.errors import (
    CheckpointError,
    ConservationError,
    FlowError,
    OperatorError,
    PenstockError,
    PolicyError,
    SinkError,
    SourceError,
)
from penstock.flow import Flow, KeyedStream, Stream
from penstock.flow.nodes import DeadLetter
from penstock.observe.arrivals import Arrivals
from penstock.observe.report import Report
from penstock.operators import Operator
from penstock.operators.windows import WindowResult
from penstock.runtime.policies import SchedulingPolicy

__version__ = "0.1.0"

__all__ = [
    "Arrivals",
    "Change",
    "CheckpointError",
    "Chunk",
    "ConservationError",
    "Controller",
    "DeadLetter",
    "Delivery",
    "Elastic",
    "Flow",
    "FlowError",
    "KeyedStream",
    "Operator",
    "OperatorError",
    "PenstockError",
    "PolicyError",
    "Rejected",
    "Report",
    "SchedulingPolicy",
    "Signals",
    "Sink",
    "SinkError",
    "SinkWriter",
    "Source",
    "SourceError",
    "Split",
    "Stream",
    "Unreadable",
    "WindowResult",
    "controllers",
    "costs",
    "engines",
    "rates",
    "sinks",
    "sources",
    "spark",
    "windows",
]
