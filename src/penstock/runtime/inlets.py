"""Where part of a graph meets the rest: what feeds tuples into it, and what takes them out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split
from penstock.flow.nodes import Node
from penstock.runtime.end_cells import SourceCell


class Inlet(Source):
    """Stands for an edge that comes from elsewhere; its cell is fed by whoever runs the part."""

    name = "inlet"
    counts_rows = True

    def splits(self) -> Sequence[Split]:
        return []

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        return iter(())


class InletCell(SourceCell):
    """Passes on the chunks that it is fed."""

    def open(self) -> None:
        self._fed: deque[Chunk] = deque()
        self._total_fed = 0

    def rows_passed(self) -> int | None:
        return self._total_fed

    def feed(self, chunk: Chunk) -> None:
        """Let these values in next."""
        self._fed.append(chunk)
        self._total_fed += len(chunk.values)
        self.notify()

    def finish(self) -> None:
        """Nothing more will be fed."""
        self.is_over = True
        self.notify()

    def take(self) -> bool:
        return bool(self._fed) and not self.run.is_failing

    def has_more(self) -> bool:
        return bool(self._fed)

    def process(self) -> None:
        (node,) = self.nodes
        chunk = self._fed.popleft()
        self.processed = len(chunk.values)
        self._send(node, chunk, self.run.clock.now())

    def _send(self, node: Node, chunk: Chunk, born: float) -> None:
        if node.outputs == 1:
            super()._send(node, chunk, born)
            return
        # A driver loop that was run elsewhere: its values come with the numbers of its outputs.
        counters = self.counters[node.name]
        counters.received += len(chunk.values)
        counters.emitted += len(chunk.values)
        for port in range(node.outputs):
            self.give(port, [value for output, value in chunk.values if output == port], born)


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
