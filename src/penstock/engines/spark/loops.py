"""Keyed driver loops: a loop for each key that has tuples in this batch; at the end, for each that ever had one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engines.durable.keyed_states import KeyedStates
from penstock.engines.spark.stages import outlet_of
from penstock.engines.spark.wire import CLOSING, Slice, slice_at
from penstock.flow.nodes import Node
from penstock.ordering.keys import firing_order
from penstock.runtime.failures import survived
from penstock.runtime.keyed_loops import KeyedLoops


class LoopStep:
    """One keyed driver loop in one task of one batch."""

    def __init__(self, flow: str, node: Node, states: KeyedStates) -> None:
        self._flow = flow
        self._node = node
        self._states = states
        self._loops = KeyedLoops(node, self._fail, self._kept)
        self._received = self._failed = 0
        self.failed_at = 0

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """What the loops emit because of a slice on one of the inputs."""
        for number, value in enumerate(part.values):
            self.failed_at = part.position(number)
            self._loops.arrive(side, value, because=number)
        self._received += len(part.values)
        return self._out(part.with_outputs)

    def close(self) -> dict[str, Slice]:
        """The streams end, one after the other: the last words of each key."""
        loops = self._loops
        for identity, (key, kept) in self._states.mine():
            if identity not in loops.loops:
                loops.add(identity, key, kept)
        for side in range(len(self._node.inputs)):
            for identity in sorted(loops.loops, key=firing_order):
                loops.end(side, identity)
        return self._out(_last_words)

    def _kept(self, identity: bytes) -> Any:
        kept = self._states.get(identity)
        return None if kept is None else kept[1]

    def _fail(self, value: Any, error: BaseException) -> None:
        letter = survived(self._flow, self._node, value, error)
        self._failed += 1
        if letter is not None:
            self._loops.note(self._node.outputs, letter)

    def _out(self, slice_of: Callable[[list[Any], list[Any]], Slice]) -> dict[str, Slice]:
        return {
            outlet_of(self._node, port): slice_of([value for _, value in found], [because for because, _ in found])
            for port, found in self._loops.take_found().items()
        }

    def keep(self) -> None:
        """Hand the snapshots to the store."""
        self._states.change(self._loops.snapshots())

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._loops.emitted, self._failed, 0)}

    def shares(self) -> dict[str, float]:
        return {self._node.name: 1.0}


def _last_words(values: list[Any], causes: list[Any]) -> Slice:
    return slice_at(CLOSING, [(*cause, number) for number, cause in enumerate(causes)], values)
