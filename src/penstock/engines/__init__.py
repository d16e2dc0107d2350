"""`ps.engines`: the ways to run a flow."""

from __future__ import annotations

from typing import Any

from penstock.engines.base import Engine, Job
from penstock.engines.local import Local
from penstock.engines.sequential import Sequential
from penstock.engines.simulated import Machine, Simulated
from penstock.engines.spark import Spark
from penstock.errors import FlowError

__all__ = ["Engine", "Job", "Local", "Machine", "Sequential", "Simulated", "Spark", "resolve"]

_BY_NAME: dict[str, type[Engine]] = {"spark": Spark, "local": Local, "simulated": Simulated, "sequential": Sequential}


def resolve(engine: str | Engine, **options: Any) -> Engine:
    """The engine of a name, made with these options; or the engine itself.

    >>> resolve("sequential", restart="every-wait").name
    'sequential'
    """
    if isinstance(engine, Engine):
        if options:
            raise FlowError(f"options {', '.join(options)} go to a named engine; give them to {engine!r} itself")
        return engine
    if engine not in _BY_NAME:
        raise FlowError(f"there is no engine {engine!r}; there are {', '.join(_BY_NAME)}")
    try:
        return _BY_NAME[engine](**options)
    except TypeError as error:
        raise FlowError(f"engine {engine!r}: {error}") from None
