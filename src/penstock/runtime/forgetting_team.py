"""Keyed functions with a `ttl` and several replicas: what a key forgets depends on the latest time of all keys.

Whoever takes a chunk apart notes, for each of its tuples, the latest time up to there; buckets go by that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.flow.nodes import Node, Remembers
from penstock.operators.times import Time, checked_time
from penstock.ordering.keys import bucket_of
from penstock.runtime.chain import kept_of, restore_part
from penstock.runtime.keyed_team import BUCKETS, Bucket, Fail, FunctionBucket, KeyedTeam, KeyedUnit, Part

if TYPE_CHECKING:
    from penstock.runtime.run import Run

_FAILED: Any = object()


class ForgettingUnit(KeyedUnit):
    """A unit that knows the latest time up to each of its tuples."""

    __slots__ = ("latest",)

    def __init__(self, serial: int, values: list[Any], born: float, replica: int, since: float) -> None:
        super().__init__(serial, values, born, replica, since)
        self.latest: list[Any] = []


class ForgettingBucket(FunctionBucket):
    """Some keys of an operator that forgets."""

    def __init__(self, run: Run, node: Node) -> None:
        kind = node.kind
        assert isinstance(kind, Remembers)
        assert kind.key is not None
        self._kind = kind
        self._positions: Iterator[int] = iter(())
        self._now: Any = _FAILED
        self._latest: list[Any] = []
        if kind.time is not None:
            kind = replace(kind, key=replace(kind.key, fn=self._next_key), time=self._latest_time)
        super().__init__(run, replace(node, kind=kind))

    def run(self, part: Part, fail: Fail) -> None:
        assert isinstance(part.unit, ForgettingUnit)
        self._latest, self._positions = part.unit.latest, iter(part.positions)
        super().run(part, fail)

    def _next_key(self, value: Any) -> Any:
        """Asked once for each tuple, whatever comes of it."""
        assert self._kind.key is not None
        self._now = self._latest[next(self._positions)]
        return self._kind.key.fn(value)

    def _latest_time(self, value: Any) -> Any:
        assert self._kind.time is not None
        return self._kind.time(value) if self._now is _FAILED else self._now

    def snapshot(self) -> Mapping[Any, Any]:
        states, _ = kept_of(self._chain.parts[0])
        kept: Mapping[Any, Any] = states
        return kept

    def restore(self, kept: Any) -> None:
        restore_part(self._chain.parts[0], kept)


class ForgettingTeam(KeyedTeam):
    """A keyed function that forgets, with several replicas."""

    _unit_type = ForgettingUnit

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        kind = self.nodes[0].kind
        assert isinstance(kind, Remembers)
        self._time = kind.time
        self._latest: Time | None = None

    def make_bucket(self) -> Bucket:
        return ForgettingBucket(self.run, self.nodes[0])

    def _parts_of(self, unit: KeyedUnit) -> list[Part]:
        assert isinstance(unit, ForgettingUnit)
        if self._time is not None:
            unit.latest = [self._latest_after(value) for value in unit.values]
        return super()._parts_of(unit)

    def _latest_after(self, value: Any) -> Any:
        assert self._time is not None
        try:
            self._key(value)
            time: Any = checked_time(self._time(value))
            if self._latest is None or time > self._latest:
                self._latest = time
        except Exception:
            return _FAILED  # and fails again where it is worked on
        return self._latest

    def snapshots(self) -> dict[str, Any]:
        states = [(key, kept) for bucket in self._buckets.values() for key, kept in bucket.snapshot().items()]
        by_age = sorted(states, key=lambda pair: pair[1][1])
        latest = self._latest
        if self._time is None:
            latest = max((touched for _, (_, touched) in by_age), default=None)
        return {self.name: (OrderedDict(by_age), latest)}

    def restore(self, kept: Mapping[str, Any]) -> None:
        if self.name not in kept:
            return
        states, self._latest = kept[self.name]
        by_bucket: dict[int, OrderedDict[Any, Any]] = {}
        for identity, state in states.items():
            by_bucket.setdefault(bucket_of(identity, BUCKETS), OrderedDict())[identity] = state
        for number, of_bucket in by_bucket.items():
            bucket = self.bucket(number)
            assert isinstance(bucket, ForgettingBucket)
            bucket.restore((of_bucket, self._latest))
