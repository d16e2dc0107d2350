"""Where part of a graph meets the rest: what feeds tuples into it, and what takes them out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split


class Inlet(Source):
    """Stands for an edge that comes from elsewhere; its cell is fed from outside."""

    name = "inlet"
    counts_rows = True

    def splits(self) -> Sequence[Split]:
        return []

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        return iter(())


class Outlet(Sink):
    """Stands for an edge that goes elsewhere: keeps what was written until it is taken."""

    name = "outlet"
    any_thread = True

    def __init__(self) -> None:
        self._values: list[Any] = []

    def open(self) -> SinkWriter:
        return _Keep(self._values)

    def take(self) -> list[Any]:
        """What has come since the last time."""
        taken = self._values[:]
        self._values.clear()
        return taken


class _Keep(SinkWriter):
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def write(self, values: Sequence[Any]) -> None:
        self._values.extend(values)
