"""Keyed functions with a `ttl` and several replicas: what a key forgets depends on the latest time of all keys.

The member that takes a chunk apart notes, for each of its tuples, the latest time up to there; buckets go by that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.flow.nodes import Key, Node, Remembers
from penstock.operators.times import Time, checked_time
from penstock.ordering.keys import bucket_of
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.teams.buckets import BucketKernel, BucketPart, Fail, FunctionBucket, KeyedUnit
from penstock.runtime.teams.keyed import KeyedWork
from penstock.runtime.teams.work import Shop


@dataclass(slots=True, eq=False)
class ForgettingUnit(KeyedUnit):
    """A unit that knows the key of each of its tuples and the latest time up to there, or why it has none."""

    read: list[tuple[Any, Time] | BaseException] = field(default_factory=list)


class ForgettingBucket(FunctionBucket):
    """Some keys of an operator that forgets."""

    def __init__(self, run: Surroundings, node: Node) -> None:
        kind = node.kind
        assert isinstance(kind, Remembers)
        assert kind.key is not None
        self._reads: Iterator[tuple[Any, Time] | BaseException] = iter(())
        self._now: Any = None
        if kind.time is not None:
            kind = replace(kind, key=replace(kind.key, fn=self._next_key), time=lambda _: self._now)
        super().__init__(run, replace(node, kind=kind))

    def run(self, part: BucketPart, fail: Fail) -> None:
        assert isinstance(part.unit, ForgettingUnit)
        if part.unit.read:
            self._reads = map(part.unit.read.__getitem__, part.positions)
        super().run(part, fail)

    def _next_key(self, _value: Any) -> Any:
        """Asked once for each tuple, whatever comes of it."""
        read = next(self._reads)
        if isinstance(read, BaseException):
            raise read
        key, self._now = read
        return key


class ForgettingWork(KeyedWork):
    """A keyed function that forgets, with several replicas."""

    make_unit = ForgettingUnit
    can_be_partitioned = False  # its states are kept by the bytes of their keys alone

    def __init__(self, shop: Shop, key: Key) -> None:
        super().__init__(shop, key)
        kind = self.node.kind
        assert isinstance(kind, Remembers)
        self._time = kind.time
        self._latest: Time | None = None

    def make_bucket(self) -> BucketKernel:
        return ForgettingBucket(self.shop.team.run, self.node)

    def buckets_of(self, unit: KeyedUnit) -> list[int]:
        if self._time is None:
            return super().buckets_of(unit)
        assert isinstance(unit, ForgettingUnit)
        buckets: list[int] = []
        for value in unit.values:
            bucket = 0
            try:
                key = self.key(value)
                bucket = self.buckets.of(key)
                time: Any = checked_time(self._time(value))
                if self._latest is None or time > self._latest:
                    self._latest = time
                unit.read.append((key, self._latest))
            except BaseException as error:
                unit.read.append(error)
            buckets.append(bucket)
        return buckets

    def bucket_kept_in(self, kept_as: Any, state: Any) -> int:
        return bucket_of(kept_as, self.buckets.count)

    def rest(self) -> Any:
        if self._time is not None:
            return self._latest
        # By the clock each bucket has a time of its own.
        times = [bucket.snapshot().rest for bucket in self.buckets.kernels.values()]
        return max((time for time in times if time is not None), default=None)

    def restore_rest(self, rest: Any) -> None:
        self._latest = rest
