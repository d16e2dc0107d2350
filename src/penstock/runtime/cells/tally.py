"""What operators have done, and what becomes of tuples that fail: written only by the worker in their cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.flow.nodes import Node
from penstock.runtime.failures import Failure, dead_letter, is_fatal, reported, told

Give = Callable[[int, list[Any], float], None]
"""`give(port, values, born)` sends values out of an output port; the oldest entered the flow at `born`."""


@dataclass(slots=True, eq=False)
class Counters:
    """What one operator has done."""

    received: int = 0
    emitted: int = 0
    failed: int = 0
    late: int = 0
    busy_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def count(self, received: int, emitted: int, late: int = 0) -> None:
        """So many tuples have come in, and so many out."""
        self.received += received
        self.emitted += emitted
        self.late += late

    def count_failed(self) -> None:
        self.failed += 1

    def charge(self, seconds: float, cpu_seconds: float) -> None:
        """A worker has spent so long here, and has used a core for a part of that."""
        self.busy_seconds += seconds
        self.cpu_seconds += cpu_seconds

    def add(self, other: Counters) -> None:
        self.received += other.received
        self.emitted += other.emitted
        self.failed += other.failed
        self.late += other.late
        self.busy_seconds += other.busy_seconds
        self.cpu_seconds += other.cpu_seconds

    @classmethod
    def sum(cls, counters: Iterable[Counters]) -> Counters:
        total = cls()
        for one in counters:
            total.add(one)
        return total


class Tally:
    """The counters of the operators in one cell, by name."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.of = {node.name: Counters() for node in nodes}
        self.first = self.of[nodes[0].name]

    def charge(self, seconds: float, cpu_seconds: float) -> None:
        """A worker has spent so long in these operators, and has used a core for a part of that."""
        self.first.charge(seconds, cpu_seconds)

    def passed(self) -> tuple[int, int]:
        """How many tuples the first operator has received, and the last one emitted."""
        return self.first.received, self.of[self.nodes[-1].name].emitted

    def counts(self) -> dict[str, Counters]:
        """What each operator has done so far."""
        return self.of


class Failing:
    """What becomes of tuples that fail, by what their operator's `on_error` says."""

    def __init__(self, flow: str, place: float, tally: Tally) -> None:
        self._flow = flow
        self._place = place
        self._tally = tally

    def failed(self, node: Node, value: Any, error: BaseException, born: float, give: Give) -> None:
        """Skip or dead-letter a tuple, or end the flow by raising."""
        if is_fatal(node, error):
            raise Failure(self._place, reported(self._flow, node, value, error))
        self._tally.of[node.name].count_failed()
        if node.on_error == "dead-letter":
            self.give_dead_letter(node, value, error, born, give)

    def crashed(self, error: BaseException) -> Failure:
        """What to unwind with when something has failed that is no single tuple."""
        return Failure(self._place, told(self._flow, self._tally.nodes, error))

    def give_dead_letter(self, node: Node, value: Any, error: BaseException, born: float, give: Give) -> None:
        give(self.dead_letter_port(node), [dead_letter(node, value, error)], born)

    def dead_letter_port(self, node: Node) -> int:
        """Where the dead letters of a node leave the cell: behind the ports of its last node, in their order."""
        nodes = self._tally.nodes
        return nodes[-1].outputs + nodes.index(node)
