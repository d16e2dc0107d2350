"""A keyed function over a task's share of a slice: the only place where the store's states meet a user's function."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.clock import SystemClock
from penstock.engines.spark.wire import Slice
from penstock.flow.nodes import Node, Remembers
from penstock.ordering.keys import key_bytes
from penstock.runtime.chain import compile_chain, make_part, normal_key
from penstock.runtime.failures import dead_letter, is_fatal, reported
from penstock.state.buckets import Place, TaskStates

_MISSING: Any = object()


class KeyedStep:
    """One keyed operator in one task of one batch.

    The generated loop works on a dict that holds just the keys of this batch; what is not there yet comes from the
    store, so that dict is what has changed when the batch is over.
    """

    def __init__(self, flow: str, node: Node, states: TaskStates, buckets: int) -> None:
        assert isinstance(node.kind, Remembers)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._buckets = buckets
        self._kept: dict[int, Mapping[Any, Any]] = {}
        self._touched: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
        part = make_part(node, lambda: 0.0)
        self._current: dict[Any, Any] = part["states"]
        part["absent"] = self._absent
        self._loop = compile_chain([node], [part]).whole
        self._keeps_number = not self._kind.many and node.on_error == "fail"
        self._received = self._emitted = self._failed = 0
        self._dead: list[tuple[int, Any]] = []
        self._clock = SystemClock()
        self._busy_seconds = 0.0

    def run(self, part: Slice) -> list[Slice]:
        """The outputs of a slice by port, the last one for dead letters."""
        began = self._clock.now()
        self._received += len(part.values)
        out: list[Any] = []
        self._dead = []
        if self._keeps_number:
            self._loop(part.values, [out], self._fail, [])
            result = Slice(part.number, out, part.positions)
        else:
            result = self._one_by_one(part, out)
        self._emitted += len(out)
        self._busy_seconds += self._clock.now() - began
        letters = [letter for _, letter in self._dead]
        return [result, self._placed(part, letters, [place for place, _ in self._dead])]

    def _one_by_one(self, part: Slice, out: list[Any]) -> Slice:
        """A function that may give none or several: remember which tuple each output came from."""
        loop, outputs, fail, passed = self._loop, [out], self._fail, [0]
        places: list[int] = []
        before = 0
        for place, value in enumerate(part.values):
            self._place = place
            loop((value,), outputs, fail, passed)
            after = len(out)
            if after != before:
                places += [place] * (after - before)
                before = after
        return self._placed(part, out, places)

    def _placed(self, part: Slice, values: list[Any], places: list[int]) -> Slice:
        if part.positions is None:
            return Slice(part.number, values)
        origin = np.array(places, dtype=np.int64)
        ordinal = np.arange(len(places)) - np.searchsorted(origin, origin)
        return Slice(part.number, values, (*(column[origin] for column in part.positions), ordinal))

    def _fail(self, _step: int, value: Any, error: Exception) -> None:
        if is_fatal(self._node, error):
            raise reported(self._flow, self._node, value, error) from error
        self._failed += 1
        if self._node.on_error == "dead-letter":
            self._dead.append((self._place, dead_letter(self._node, value, error)))

    def _absent(self, key: Any) -> tuple[Any, Any]:
        """A key's first tuple in this batch: get its state."""
        identity = key_bytes(key)
        stored = key
        if b"fnan" in identity:
            # No NaN is equal to another one that was read from a file, but their bytes are.
            key, stored = normal_key(key), identity
            if key in self._current:
                return key, self._current[key]
        bucket = zlib.crc32(identity) % self._buckets
        kept = self._kept.get(bucket)
        if kept is None:
            kept = self._kept[bucket] = self._states.states(Place(self._node.name, bucket))
        state = kept.get(stored, _MISSING)
        # Even if the function fails on this tuple the key may be listed: `keep` looks whether it has a state.
        self._touched[bucket].append((stored, key))
        return key, self._kind.init() if state is _MISSING else state

    def keep(self) -> None:
        """Hand the changes to the store."""
        current = self._current
        for bucket, keys in self._touched.items():
            self._states.change(
                Place(self._node.name, bucket), {stored: current[key] for stored, key in keys if key in current}
            )

    def busy_seconds(self) -> dict[str, float]:
        return {self._node.name: self._busy_seconds}

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, 0)}
