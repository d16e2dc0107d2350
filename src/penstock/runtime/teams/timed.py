"""Windows with several replicas: every bucket of keys sees its own tuples, and every rise of the watermark.

The member that takes a chunk apart notes where in it the watermark rises, and so how far it has risen before each
tuple. What fires because of a rise stands before the tuple that caused it, sorted as it would be where one worker sees
all keys.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.flow.nodes import Key, Node, Waits
from penstock.operators.kept import Changed, Kept
from penstock.operators.timed import Fired, LateTuple, TimedTable
from penstock.operators.times import Time
from penstock.runtime.failures import Failure, dead_letter
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.teams.buckets import BucketKernel, BucketPart, Fail, KeyedUnit
from penstock.runtime.teams.keyed import KeyedWork
from penstock.runtime.teams.units import Unit
from penstock.runtime.teams.work import Shop


@dataclass(slots=True, eq=False)
class TimedUnit(KeyedUnit):
    """A unit in which the watermark rises; places are (position, whether it is of that tuple itself, timer)."""

    error_at: Any = (math.inf,)
    before: Time | None = None
    """How far the watermark had risen before this unit."""
    rises: list[int] = field(default_factory=list)
    """The positions of tuples that let it rise, and how far."""
    marks: list[Any] = field(default_factory=list)
    read: list[tuple[Any, Time] | BaseException] = field(default_factory=list)
    """The key and the time of each tuple, or why it has none: users' functions are asked once."""

    def follow(self, mark: Time | None) -> None:
        """The watermark had risen so far before it."""
        self.before = mark


class TimedBucket:
    """Some keys of a window, with their timers."""

    def __init__(self, run: Surroundings, node: Node) -> None:
        assert isinstance(node.kind, Waits)
        self._node = node
        self._on_late = node.kind.on_late
        self._first_past = bisect_right if node.kind.logic.strict else bisect_left
        self.table = TimedTable(node.kind.logic, node.kind.lateness, run.settings.knows_changes)
        self.progress: tuple[int, Time | None] = (-1, None)
        """The last unit that it has seen, and when its next timer is due after that; read by the member that splits."""

    def run(self, part: BucketPart, fail: Fail) -> None:
        unit = part.unit
        assert isinstance(unit, TimedUnit)
        if unit.before is not None:
            self.table.rise(0, unit.before)
        reached = 0
        for position, value in zip(part.positions, part.values, strict=True):
            limit = bisect_right(unit.rises, position)
            if limit > reached:
                self._rise(part, unit, reached, limit, fail)
                reached = limit
            self._add(part, position, value, unit.read[position], fail)
        self._rise(part, unit, reached, len(unit.rises), fail)
        self.progress = (part.serial, self.table.next_due())

    def let_out(self, part: BucketPart, position: float, fired: list[Fired], fail: Fail) -> None:
        found = part.found.setdefault(0, [])
        for one in fired:
            place = (position, False, one.timer)
            if one.error is not None:
                fail(place, one.key, one.error)
            found += [(place, output) for output in one.outputs]

    def _rise(self, part: BucketPart, unit: TimedUnit, reached: int, limit: int, fail: Fail) -> None:
        """From one rise to another, but stopping only where something is due."""
        marks = unit.marks
        while reached < limit:
            due = self.table.next_due()
            first = limit - 1 if due is None else min(self._first_past(marks, due, reached, limit), limit - 1)
            self.let_out(part, unit.rises[first], self.table.rise(0, marks[first]), fail)
            reached = first + 1

    def _add(
        self, part: BucketPart, position: int, value: Any, read: tuple[Any, Time] | BaseException, fail: Fail
    ) -> None:
        place = (position, True, ())
        try:
            if isinstance(read, BaseException):
                raise read
            key, time = read
            outputs = self.table.add(0, key, value, time)
        except LateTuple as late:
            part.was_late()
            if self._on_late == "dead-letter":
                letter = dead_letter(self._node, value, late)
                part.found.setdefault(self._node.outputs, []).append((place, letter))
        except BaseException as error:
            fail(place, value, error)
        else:
            part.found.setdefault(0, []).extend((place, output) for output in outputs)

    def snapshot(self) -> Kept:
        return self.table.snapshot()

    def take_changed(self) -> Changed:
        return self.table.take_changed()

    def restore(self, kept: Kept) -> None:
        self.table.restore(kept)
        self.progress = (-1, self.table.next_due())


class TimedWork(KeyedWork):
    """A window with several replicas."""

    has_last_words = True
    make_unit = TimedUnit

    def __init__(self, shop: Shop, key: Key) -> None:
        super().__init__(shop, key)
        kind = self.node.kind
        assert isinstance(kind, Waits)
        self._time = kind.times[0]
        self._marking = TimedTable(kind.logic, kind.lateness)
        self._mark: Time | None = None
        self._under_way: dict[int, deque[tuple[int, Time]]] = {}
        """By bucket: the units with parts that it may not have seen, and the earliest time in each."""

    def make_bucket(self) -> BucketKernel:
        return TimedBucket(self.shop.team.run, self.node)

    def parts_of(self, unit: KeyedUnit) -> list[BucketPart]:
        assert isinstance(unit, TimedUnit)
        unit.follow(self._mark)
        parts = super().parts_of(unit)
        for part in parts:
            self._note_part(part, unit)
        if unit.rises:
            having = {part.bucket for part in parts}
            parts += unit.more_parts(
                [number for number in sorted(self._under_way) if number not in having and self._may_fire(number)]
            )
        return parts

    def buckets_of(self, unit: KeyedUnit) -> list[int]:
        assert isinstance(unit, TimedUnit)
        buckets: list[int] = []
        for position, value in enumerate(unit.values):
            bucket = 0
            try:
                key, time = self.key(value), self._time(value)
                self._note_mark(unit, position, self._marking.mark_of(time))
                unit.read.append((key, time))
                bucket = self.buckets.of(key)
            except BaseException as error:
                if len(unit.read) == position:
                    unit.read.append(error)
            buckets.append(bucket)
        return buckets

    def _note_mark(self, unit: TimedUnit, position: int, mark: Any) -> None:
        if mark is not None and (self._mark is None or mark > self._mark):
            self._mark = mark
            unit.rises.append(position)
            unit.marks.append(mark)

    def _note_part(self, part: BucketPart, unit: TimedUnit) -> None:
        reads = (unit.read[position] for position in part.positions)
        times = [read[1] for read in reads if not isinstance(read, BaseException)]
        if times:
            self._under_way.setdefault(part.bucket, deque()).append((unit.serial, min(times)))
            self._next_due(part.bucket)

    def _may_fire(self, number: int) -> bool:
        """Whether something in a bucket may be due at the mark: no window of a tuple closes before its time."""
        due = self._next_due(number)
        earliest = [time for _, time in self._under_way[number]] + [due] * (due is not None)
        return any(time <= self._mark for time in earliest)

    def _next_due(self, number: int) -> Any:
        """When the next timer of a bucket is due, after what it has seen, which is then no longer under way."""
        bucket, under_way = self.buckets.kernels.get(number), self._under_way[number]
        if bucket is None:
            return None
        assert isinstance(bucket, TimedBucket)
        seen, due = bucket.progress
        while under_way and under_way[0][0] <= seen:
            under_way.popleft()
        return due

    def say_last_words(self, unit: Unit) -> None:
        """Everything that is open."""
        assert isinstance(unit, TimedUnit)
        (part,), speaker = unit.more_parts([0]), self.speaker
        fired: list[tuple[Fired, TimedBucket]] = []
        for bucket in self.buckets.kernels.values():
            assert isinstance(bucket, TimedBucket)
            fired += [(one, bucket) for one in bucket.table.close(0)]
        try:
            for one, bucket in sorted(fired, key=lambda pair: pair[0].timer):
                bucket.let_out(part, 0, [one], speaker.failing_in(part))
        except Failure:
            pass  # it is in the part
        self._spoken(unit, part, speaker)

    def bucket_kept_in(self, kept_as: Any, state: Any) -> int:
        return self.by_bytes(kept_as, state.key)

    def restore(self, kept: Mapping[str, Kept]) -> None:
        super().restore(kept)
        self._under_way = {number: deque() for number in self.buckets.kernels}

    def rest(self) -> Any:
        return [self._mark], [False]

    def restore_rest(self, rest: Any) -> None:
        (self._mark,), _ = rest
