"""Keyed logic in event time, where one worker at a time sees all keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.flow.nodes import Node, Waits
from penstock.operators.kept import Changed, Kept
from penstock.operators.timed import Fired, LateTuple, TimedTable
from penstock.runtime.cells.changing import Changing
from penstock.runtime.ports import Port
from penstock.runtime.surroundings import Surroundings


class TimedCell(Changing):
    """Keyed logic in event time: windows, and joins with a port for each side."""

    def __init__(self, run: Surroundings, place: float, node: Node, ports: Sequence[Port]) -> None:
        super().__init__(run, place, [node], ports)
        assert isinstance(node.kind, Waits)
        self._kind = node.kind
        self._table = TimedTable(node.kind.logic, node.kind.lateness, run.settings.knows_changes)
        self._taken: list[tuple[int, list[Any], float]] = []
        self._ended: list[int] = []
        self._open = list(range(len(ports)))

    def take(self) -> bool:
        self._taken, self._ended = [], []
        if self.successors and self.has_changed():
            return False
        for side in self._open:
            closed = self.inputs[side].closed
            values, born = self.inputs[side].take(self.budget.tuples(len(self.inputs[side])))
            if values:
                self._taken.append((side, values, born))
            elif closed:
                self._ended.append(side)
        return bool(self._taken or self._ended)

    def snapshots(self) -> dict[str, Kept]:
        return {self.name: self._table.snapshot()}

    def changed(self) -> dict[str, Changed]:
        return {self.name: self._table.take_changed()}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        if self.name in kept:
            self._table.restore(kept[self.name])

    def process(self) -> int:
        (node,) = self.nodes
        processed = 0
        for side, values, born in self._taken:
            processed += len(values)
            outputs: list[Any] = []
            try:
                for value in values:
                    self._one(node, side, value, born, outputs)
            finally:
                self.tally.first.count(len(values), len(outputs))
                self.ports.give(0, outputs, born)
        for side in self._ended:
            self._close(node, side, self.run.clock.now())
        return processed

    def _one(self, node: Node, side: int, value: Any, born: float, outputs: list[Any]) -> None:
        kind = self._kind
        try:
            key, time = kind.keys[side].fn(value), kind.times[side](value)
            fired = self._table.advance(side, time)
        except BaseException as error:
            self.failing.failed(node, value, error, born, self.ports.give)
            return
        self._let_out(node, fired, born, outputs)
        try:
            outputs += self._table.add(side, key, value, time)
        except LateTuple as late:
            self.tally.first.count(0, 0, late=1)
            if kind.on_late == "dead-letter":
                self.failing.give_dead_letter(node, value, late, born, self.ports.give)
            elif callable(kind.on_late):
                self._on_late(node, kind.on_late, value, born)
        except BaseException as error:
            self.failing.failed(node, value, error, born, self.ports.give)

    def _let_out(self, node: Node, fired: list[Fired], born: float, outputs: list[Any]) -> None:
        for one in fired:
            outputs += one.outputs
            if one.error is not None:
                self.failing.failed(node, one.key, one.error, born, self.ports.give)

    def _on_late(self, node: Node, on_late: Any, value: Any, born: float) -> None:
        try:
            on_late(value)
        except BaseException as error:
            self.failing.failed(node, value, error, born, self.ports.give)

    def _close(self, node: Node, side: int, born: float) -> None:
        self._open.remove(side)
        outputs: list[Any] = []
        try:
            self._let_out(node, self._table.close(side), born, outputs)
        finally:
            self.tally.first.count(0, len(outputs))
            self.ports.give(0, outputs, born)
        if not self._open:
            self.is_over = True
