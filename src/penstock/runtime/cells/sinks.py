"""Cells that write to sinks."""

from __future__ import annotations

from typing import Any

from penstock.flow.nodes import Node, Writes
from penstock.runtime.cells.cell import Cell
from penstock.runtime.own_thread import open_on_one_thread
from penstock.runtime.ports import Port, Taken
from penstock.runtime.surroundings import Surroundings


class SinkCell(Cell):
    """Writes to a sink, and notes how long its tuples were under way."""

    def __init__(self, run: Surroundings, place: float, node: Node, port: Port) -> None:
        super().__init__(run, place, [node], [port])
        assert isinstance(node.kind, Writes)
        self._sink = node.kind.sink
        self._port = port
        self._values: list[Any] = []
        self._born = 0.0
        self.written = 0
        """Tuples that its sink has taken."""

    def open(self) -> None:
        self._writer = open_on_one_thread(self._sink)

    def take(self) -> bool:
        closed = self._port.closed
        self._values, self._born = self._port.take(self.budget.tuples(len(self._port)))
        if closed and not self._values:
            self.is_over = True
        return bool(self._values)

    def process(self) -> int:
        (node,) = self.nodes
        values, self._values = self._values, []
        self.tally.first.count(len(values), 0)
        rest = values
        while rest and (rejected := self._writer.write(self._lent(rest))):
            self.written += rejected.position
            self.failing.failed(node, rest[rejected.position], rejected.error, self._born, self.ports.give)
            rest = rest[rejected.position + 1 :]
        self.written += len(rest)
        now, latencies = self.run.clock.now(), self.run.logbook.latencies
        latencies.note(now - self._born)
        if isinstance(self._born, Taken):
            latencies.note_processing(now - self._born.taken)
        return len(values)

    def _lent(self, values: list[Any]) -> list[Any]:
        """A user's sink may empty the list that it is given, and other readers of the stream have the same one."""
        return values if self._sink.any_thread else list(values)

    def leave(self, has_failed: bool) -> None:
        if not hasattr(self, "_writer"):
            return
        if not self.run.adds_up:
            self._writer.discard()
        elif has_failed:
            self._writer.abandon()
        else:
            self._writer.close()
