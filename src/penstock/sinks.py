"""`ps.sinks`: where streams end.

File sinks write a directory of files whose names sort in output order; a file appears whole or not at all. `mode` says
what to do where there is output already: `"error"`, `"append"` or `"overwrite"`. A schema is a Spark DDL string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

from penstock.connectors.files.discover import PathLike
from penstock.connectors.files.writers import CsvSink, JsonSink, Mode, ParquetSink, TextSink
from penstock.connectors.memory import Call, Collect, Console, Null
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.connectors.spark import SparkBatches
from penstock.errors import FlowError

__all__ = [
    "Delivery",
    "Rejected",
    "Sink",
    "SinkWriter",
    "call",
    "collect",
    "console",
    "csv",
    "json",
    "null",
    "parquet",
    "spark",
    "text",
]


def collect() -> Collect[Any]:
    """A list in memory: `.items` holds what the last run wrote.

    >>> collect().items
    []
    """
    return Collect()


def call(fn: Callable[[Any], object]) -> Sink:
    """A function called with every tuple, in order.

    At least once, not exactly once: after a failure it may be called again with tuples it has seen.
    """
    if not callable(fn):
        raise FlowError(f"call sink: give a function of one tuple, not {fn!r}")
    return Call(fn)


def console(stream: TextIO | None = None) -> Sink:
    """Every tuple on a line of standard output (or of `stream`); after a failure a line may be printed again."""
    return Console(stream)


def null() -> Sink:
    """Nowhere; the tuples are counted."""
    return Null()


def text(path: PathLike, mode: Mode = "error") -> Sink:
    """`str(value)` on a line for each tuple."""
    return TextSink(path, mode)


def json(path: PathLike, schema: str | None = None, mode: Mode = "error") -> Sink:
    """A line of JSON for each tuple; named tuples and dataclasses become objects, times ISO strings."""
    return JsonSink(path, schema, mode)


def csv(
    path: PathLike,
    schema: str | None = None,
    mode: Mode = "error",
    *,
    header: bool = True,
    delimiter: str = ",",
) -> Sink:
    """A line of CSV for each row; without a schema the first row says which columns there are."""
    return CsvSink(path, schema, mode, header, delimiter)


def parquet(path: PathLike, schema: str | None = None, mode: Mode = "error") -> Sink:
    """Rows as Parquet; without a schema the first rows agree on the columns."""
    return ParquetSink(path, schema, mode)


def spark(fn: Callable[[Any, int], object]) -> Sink:
    """Your own Spark writer: `fn(dataframe, batch_id)` is called with every batch; the tuples are rows.

    At least once: `batch_id` is the same when a batch comes again, so that your writer can make it exactly once.
    """
    if not callable(fn):
        raise FlowError(f"spark sink: give a function of a DataFrame and a batch id, not {fn!r}")
    return SparkBatches(fn)
