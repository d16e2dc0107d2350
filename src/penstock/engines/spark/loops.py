"""Keyed driver loops: a loop for each key that has tuples in this batch; at the end, for each that ever had one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from penstock.engines.spark.keyed_states import KeyedStates
from penstock.engines.spark.stages import outlet_of
from penstock.engines.spark.wire import CLOSING, Slice, placed_by
from penstock.flow.nodes import Loops, Node
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.context import LoopContext
from penstock.runtime.failures import survived
from penstock.runtime.loop import Loop


class LoopStep:
    """One keyed driver loop in one task of one batch."""

    def __init__(self, flow: str, node: Node, states: KeyedStates) -> None:
        assert isinstance(node.kind, Loops)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._loops: dict[bytes, Loop] = {}
        self._found: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
        """By port, the last one for dead letters: what was emitted, and what made it come."""
        self._because: Any = 0
        self._received = self._emitted = self._failed = 0
        self.failed_at = 0

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """What the loops emit because of a slice on one of the inputs."""
        for number, value in enumerate(part.values):
            self._because = number
            self.failed_at = part.position(number)
            try:
                key = self._kind.keys[side].fn(value)
                identity = key_bytes(key)
            except Exception as error:
                self._fail(value, error)
                continue
            loop = self._loops.get(identity) or self._loop(identity, key)
            loop.ports[side].arrive(value)
            self._go_on(loop)
        self._received += len(part.values)
        return self._out(part.placed)

    def close(self) -> dict[str, Slice]:
        """The streams end, one after the other: the last words of each key."""
        for identity, (key, _) in self._states.mine():
            if identity not in self._loops:
                self._loop(identity, key)
        for side in range(len(self._node.inputs)):
            for identity in sorted(self._loops, key=firing_order):
                self._because = (side, *firing_order(identity))
                loop = self._loops[identity]
                loop.ports[side].ended = True
                self._go_on(loop)
        return self._out(_last_words)

    def _go_on(self, loop: Loop) -> None:
        while not loop.is_done and loop.context.can_go_on():
            loop.resume_or_restart(self._fail)

    def _loop(self, identity: bytes, key: Any) -> Loop:
        node = self._node
        context = LoopContext(node.name, len(node.inputs), 0, self._emit, node.outputs, key=key, has_state=True)
        loop = self._loops[identity] = Loop(node.name, self._kind.operator, context)
        kept = self._states.get(identity)
        if kept is not None:
            loop.restore(kept[1])
        return loop

    def _emit(self, port: int, value: Any) -> None:
        self._found[port].append((self._because, value))
        self._emitted += 1

    def _fail(self, value: Any, error: Exception) -> None:
        letter = survived(self._flow, self._node, value, error)
        self._failed += 1
        if letter is not None:
            self._found[self._node.outputs].append((self._because, letter))

    def _out(self, placed: Callable[[list[Any], list[Any]], Slice]) -> dict[str, Slice]:
        taken, self._found = self._found, defaultdict(list)
        return {
            outlet_of(self._node, port): placed([value for _, value in found], [because for because, _ in found])
            for port, found in taken.items()
        }

    def keep(self) -> None:
        """Hand the snapshots to the store."""
        self._states.change({identity: (loop.context.key, loop.snapshot()) for identity, loop in self._loops.items()})

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, 0)}

    def shares(self) -> dict[str, float]:
        return {self._node.name: 1.0}


def _last_words(values: list[Any], places: list[Any]) -> Slice:
    return placed_by(CLOSING, [(*place, number) for number, place in enumerate(places)], values)
