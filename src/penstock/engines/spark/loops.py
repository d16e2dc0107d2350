"""Keyed driver loops: a loop for each key that has tuples in this batch; at the end, for each that ever had one."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from penstock.engines.spark.wire import CLOSING, Slice, column_of
from penstock.flow.nodes import Loops, Node
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.context import LoopContext
from penstock.runtime.failures import dead_letter, is_fatal, popped_value, reported
from penstock.runtime.loop import Loop
from penstock.state.buckets import Place, TaskStates

Found = list[tuple[tuple[Any, ...], Any]]
"""Outputs with their places: what made them come, and their number."""


class LoopStep:
    """One keyed driver loop in one task of one batch."""

    def __init__(self, flow: str, node: Node, states: TaskStates, buckets: int, is_mine: Callable[[int], bool]) -> None:
        assert isinstance(node.kind, Loops)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._buckets = buckets
        self._is_mine = is_mine
        self._loops: dict[bytes, Loop] = {}
        self._keys: dict[bytes, Any] = {}
        self._found: dict[int, Found] = defaultdict(list)
        """By port, the last one for dead letters."""
        self._place: tuple[Any, ...] = ()
        self._received = self._emitted = self._failed = 0
        self.failed_at = 0

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """What the loops emit because of a slice on one of the inputs."""
        column = range(len(part.values)) if part.positions is None else part.positions[0].tolist()
        for value, position in zip(part.values, column, strict=True):
            self.failed_at = position
            self._place = (position,)
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
        return self._out(part.number)

    def close(self) -> dict[str, Slice]:
        """The streams end, one after the other: the last words of each key."""
        for bucket in filter(self._is_mine, range(self._buckets)):
            for identity, (key, _) in self._states.items(Place(self._node.name, bucket)):
                assert isinstance(identity, bytes)
                if identity not in self._loops:
                    self._loop(identity, key)
        for side in range(len(self._node.inputs)):
            for identity in sorted(self._loops, key=firing_order):
                self._place = (side, *firing_order(identity))
                loop = self._loops[identity]
                loop.ports[side].ended = True
                self._go_on(loop)
        return self._out(CLOSING)

    def _go_on(self, loop: Loop) -> None:
        while not loop.is_done and loop.context.can_go_on():
            try:
                loop.resume()
            except Exception as error:
                self._fail(popped_value(list(loop.context.popped)), error)
                loop.context.popped.clear()
                loop.restart()

    def _loop(self, identity: bytes, key: Any) -> Loop:
        node = self._node
        context = LoopContext(node.name, len(node.inputs), 0, self._emit, node.outputs, key=key, has_state=True)
        loop = Loop(node.name, self._kind.operator, context)
        kept = self._states.get(Place(node.name, self._bucket(identity)), identity, None)
        if kept is not None:
            loop.restore(kept[1])
        self._loops[identity] = loop
        self._keys[identity] = key
        return loop

    def _emit(self, port: int, value: Any) -> None:
        found = self._found[port]
        found.append(((*self._place, len(found)), value))
        self._emitted += 1

    def _fail(self, value: Any, error: Exception) -> None:
        if is_fatal(self._node, error):
            raise reported(self._flow, self._node, value, error) from error
        self._failed += 1
        if self._node.on_error == "dead-letter":
            found = self._found[self._node.outputs]
            found.append(((*self._place, len(found)), dead_letter(self._node, value, error)))

    def _out(self, number: int) -> dict[str, Slice]:
        taken, self._found = self._found, defaultdict(list)
        return {
            self._node.name if port == self._node.outputs else _outlet(port): Slice(
                number,
                [value for _, value in found],
                tuple(column_of(column) for column in zip(*(place for place, _ in found), strict=True)),
            )
            for port, found in taken.items()
        }

    def keep(self) -> None:
        """Hand the snapshots to the store."""
        changed: Mapping[int, dict[Any, Any]] = defaultdict(dict)
        for identity, loop in self._loops.items():
            changed[self._bucket(identity)][identity] = (self._keys[identity], loop.snapshot())
        for bucket, states in changed.items():
            self._states.change(Place(self._node.name, bucket), states)

    def _bucket(self, identity: bytes) -> int:
        return zlib.crc32(identity) % self._buckets

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, 0)}

    def shares(self) -> dict[str, float]:
        return {self._node.name: 1.0}


def _outlet(port: int) -> str:
    return str(port) if port else ""
