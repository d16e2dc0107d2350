"""A keyed function and the functions behind it, over a task's share of a slice, in one generated loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from penstock.clock import SystemClock
from penstock.engines.durable.keyed_states import KeyedStates
from penstock.engines.spark.expiring import ExpiringFunction
from penstock.engines.spark.wire import Slice
from penstock.flow.nodes import Node, Remembers
from penstock.ordering.keys import key_bytes, stored_key
from penstock.runtime.chain import changes_number, compile_chain, make_part, normal_key
from penstock.runtime.failures import survived

_MISSING: Any = object()
_MOST_STAGED = 512


class KeyedChain:
    """One keyed operator in one task of one batch, and the functions behind it.

    The generated loop works on a dict that holds just the keys of this batch; what is not there yet comes from the
    store, so that dict is what has changed when the batch is over.
    """

    def __init__(self, flow: str, nodes: Sequence[Node], states: KeyedStates, batch: int) -> None:
        keyed = nodes[0]
        assert isinstance(keyed.kind, Remembers)
        self._flow = flow
        self._nodes = nodes
        self._init = keyed.kind.init
        self._states = states
        self._kept: dict[int, Mapping[Any, Any]] = {}
        self._touched: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
        parts = [make_part(node, lambda: 0.0) for node in nodes]
        self._expiring = None if keyed.kind.ttl is None else ExpiringFunction(keyed.kind, states, batch)
        self._current: dict[Any, Any] = {}
        if self._expiring is None:
            parts[0] |= {"states": self._current, "absent": self._absent}
        else:
            parts[0]["remember"] = self._expiring
        # Where each tuple gives one, they are where they belong already.
        numbered = any(changes_number(node) or node.on_error != "fail" for node in nodes)
        self._chain = compile_chain(nodes, parts, numbered)
        self._received = self._emitted = 0
        self._passed = [0] * len(nodes)
        self._failures = [0] * len(nodes)
        self._dead: list[tuple[str, int, Any]] = []
        self._clock = SystemClock()
        self._shares: list[float] | None = None
        self.failed_at = 0
        """Where in its slice the tuple was that ended it all."""

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """The output of a slice, and the dead letters of each operator by its name."""
        self._dead = []
        if self._expiring is not None:
            self._expiring.begin(part.marks)
        values = part.values
        out: list[Any] = []
        numbers: list[int] = []
        first = 0
        try:
            if self._shares is None:
                first = min(_MOST_STAGED, len(values))
                self._learn_shares(values[:first], out, numbers)
            later: list[int] = []
            self._chain.whole(values[first:], [out, later], partial(self._fail, first, out), self._passed)
        except _FailedAt as failed:
            self.failed_at = part.position(failed.number)
            raise failed.error from failed.error.__cause__
        numbers += [first + number for number in later] if first else later
        self._received += len(values)
        self._emitted += len(out)
        if self._expiring is not None:
            self._expiring.end(part.marks)
        found = {"": part.with_outputs(out, numbers) if self._chain.is_numbered else part.with_values(out)}
        for operator in {name for name, _, _ in self._dead}:
            dead = [(number, letter) for name, number, letter in self._dead if name == operator]
            found[operator] = part.with_outputs([letter for _, letter in dead], [number for number, _ in dead])
        return found

    def _learn_shares(self, values: Sequence[Any], out: list[Any], numbers: list[int]) -> None:
        """Once in a task, function by function: how the time is shared out among them."""
        seconds = []
        failure: _FailedAt | None = None
        numbers += range(len(values))
        for index, step in enumerate(self._chain.steps):
            began = self._clock.now()
            given: list[Any] = []
            came_from: list[int] = []
            try:
                step(values, [given, came_from], partial(self._fail_alone, index, numbers[:], given), [0])
            except _FailedAt as failed:
                # What it let through came before: a later function may fail on that, and is then the first to fail.
                failure = failed
            if self._chain.is_numbered:
                numbers[:] = [numbers[number] for number in came_from]
            if index in self._chain.counted:
                self._passed[index] += len(given)
            values = given
            seconds.append(self._clock.now() - began)
        if failure is not None:
            raise failure
        out += values
        total = sum(seconds)
        self._shares = [one / total for one in seconds] if total else [1 / len(seconds)] * len(seconds)

    def _fail_alone(
        self,
        index: int,
        numbers: list[int],
        given: list[Any],
        _step: int,
        value: Any,
        error: BaseException,
        number: int | None = None,
    ) -> None:
        self._fail(0, given, index, value, error, len(given) if number is None else numbers[number])

    def _fail(
        self, first: int, out: list[Any], index: int, value: Any, error: BaseException, number: int | None = None
    ) -> None:
        node = self._nodes[index]
        number = len(out) if number is None else first + number  # without numbers, each value has given one
        try:
            letter = survived(self._flow, node, value, error)
        except BaseException as failure:
            raise _FailedAt(number, failure) from None
        self._failures[index] += 1
        if letter is not None:
            self._dead.append((node.name, number, letter))

    def _absent(self, key: Any) -> tuple[Any, Any]:
        """A key's first tuple in this batch: get its state."""
        identity = key_bytes(key)
        stored = stored_key(key)
        if stored is not key:
            key = normal_key(key)
            if key in self._current:
                return key, self._current[key]
        bucket = self._states.bucket_of_identity(identity)
        kept = self._kept.get(bucket)
        if kept is None:
            kept = self._kept[bucket] = self._states.in_bucket(bucket)
        state = kept.get(stored, _MISSING)
        # Even if the function fails on this tuple the key may be listed: `keep` looks whether it has a state.
        self._touched[bucket].append((stored, key))
        return key, self._init() if state is _MISSING else state

    def close(self) -> dict[str, Slice]:
        """States have no last words."""
        return {}

    def keep(self) -> None:
        """Hand the changes to the store."""
        if self._expiring is not None:
            self._expiring.keep()
        current = self._current
        for bucket, keys in self._touched.items():
            self._states.change_bucket(bucket, {stored: current[key] for stored, key in keys if key in current})

    def shares(self) -> dict[str, float]:
        """How the time is shared out among the functions."""
        shares = self._shares or [1 / len(self._nodes)] * len(self._nodes)
        return {node.name: share for node, share in zip(self._nodes, shares, strict=True)}

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        counted = self._chain.counts(self._received, self._emitted, self._passed, self._failures)
        return {
            node.name: (received, emitted, failed, 0)
            for node, (received, emitted), failed in zip(self._nodes, counted, self._failures, strict=True)
        }


class _FailedAt(Exception):
    """Ends a loop: the number of the value, and what to tell."""

    def __init__(self, number: int, error: BaseException) -> None:
        super().__init__(number, error)
        self.number = number
        self.error = error
