"""Several workers in one keyed operator: units are taken apart by buckets of keys, and put together again.

A member that finds nothing to do takes the next chunk apart, unless another one is doing so, or enough lies apart. What
it holds for a bucket is worked on in order, by the member that holds that bucket; a unit is done when its last part is.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import index
from typing import Any

from penstock.errors import PenstockError, PolicyError, caused_by, describe_exception, short_repr
from penstock.flow.nodes import Key, Node
from penstock.operators.kept import Changed, Kept
from penstock.ordering.keys import StoredKey, bucket_of, firing_order, key_bytes
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.loop_kernel import put_back, waiting_in
from penstock.runtime.cells.tally import Tally
from penstock.runtime.failures import Failure, survived
from penstock.runtime.teams.buckets import BucketKernel, BucketPart, Fail, FunctionBucket, KeyedUnit, LoopBucket
from penstock.runtime.teams.member import BackToTeam, Member
from penstock.runtime.teams.units import Unit
from penstock.runtime.teams.work import Shop, Work

_MOST_KNOWN_KEYS = 1 << 17
_REMEMBERED = 0.9
"""So much of what buckets have had counts on, from one look at the hottest to the next."""
_CHUNKS_APART = 2
"""How much may lie apart that no member has in its hands, in chunks for each of them."""


class KeyedMember(Member):
    """Works on the parts of the buckets that it holds."""

    def __init__(self, team: Cell, work: KeyedWork) -> None:
        super().__init__(team, Tally(team.nodes))
        self._work = work
        self.outbox = self._parts = BackToTeam(work.done)

    @property
    def in_hand(self) -> int:
        return sum(map(len, self._parts.content or ()))

    def take(self) -> bool:
        return self._parts.begin(None if self.number is None else self._work.next_parts(self) or None)

    def has_more(self) -> bool:
        return self.number is not None and self._work.has_work(self)

    def process(self) -> int:
        parts = self._parts.content or []
        for part in parts:
            with suppress(Failure):  # it is in the part
                self._work.bucket(part.bucket).run(part, self.failing_in(part))
            self.count(part)
        return sum(map(len, parts))

    def count(self, part: BucketPart) -> None:
        """What has come of a part."""
        outputs = self.nodes[0].outputs
        emitted = sum(len(found) for port, found in part.found.items() if port < outputs)
        self.tally.first.count(len(part.values), emitted, part.late)

    def failing_in(self, part: BucketPart) -> Fail:
        """What to do about tuples of a part that fail."""

        def fail(place: Any, value: Any, error: BaseException) -> None:
            (node,) = self.nodes
            try:
                letter = survived(self.run.flow, node, value, error)
            except PenstockError as reported:
                failure = Failure(self.place, reported)
                part.fail(place, failure)
                raise failure from None
            self.tally.first.count_failed()
            if letter is not None:
                part.found.setdefault(self.failing.dead_letter_port(node), []).append((place, letter))

        return fail


class KeyBuckets:
    """Which bucket a key is in, and what works on it."""

    def __init__(self, operator: str, count: int, partitioner: Callable[[Any], int] | None) -> None:
        self.count = count
        self.partitioner = partitioner
        """Which bucket a key falls into, modulo their number; by its hash, if there is none."""
        self.kernels: dict[int, BucketKernel] = {}
        self._operator = operator
        self._of_key: dict[Any, int] = {}
        self._misplaced: PolicyError | None = None
        """What the user's partitioner has raised, where nothing may be raised."""

    def of(self, key: Any) -> int:
        """The bucket of a key; raises where something can't be a key."""
        try:
            return self._of_key[key]
        except (KeyError, TypeError):
            return self._of_new(key)

    def _of_new(self, key: Any) -> int:
        identity = key_bytes(key)
        bucket = bucket_of(identity, self.count) if self.partitioner is None else self._partitioned(key)
        if len(self._of_key) >= _MOST_KNOWN_KEYS:
            self._of_key.clear()
        self._of_key[key] = bucket
        return bucket

    def _partitioned(self, key: Any) -> int:
        assert self.partitioner is not None
        if self._misplaced is None:
            try:
                return index(self.partitioner(key)) % self.count
            except BaseException as error:
                on = f"key {short_repr(key)} of operator {self._operator!r}"
                message = f"partitioner= failed on {on}: {describe_exception(error)}"
                self._misplaced = caused_by(PolicyError(message), error)
        return 0

    def check_placed(self) -> None:
        """A tuple in another bucket than that of its state would begin another state: end the run instead."""
        if self._misplaced is not None:
            raise self._misplaced

    def of_all(self, key: Any, values: list[Any]) -> list[int]:
        """The bucket of each tuple; one without a key goes to the first, where its function fails on it."""
        known, buckets = self._of_key, []
        for value in values:
            try:
                buckets.append(known[key(value)])
            except BaseException:
                try:
                    buckets.append(self._of_new(key(value)))
                except BaseException:
                    buckets.append(0)
        return buckets

    def snapshot(self) -> dict[Any, Any]:
        kept = [kernel.snapshot().by_key for kernel in self.kernels.values()]
        return {key: state for of_bucket in kept for key, state in of_bucket.items()}

    def take_changed(self) -> tuple[dict[Any, Any], list[Any]]:
        """The states that have changed, and the keys of those that are gone."""
        found = [kernel.take_changed() for kernel in self.kernels.values()]
        by_key = {key: state for changed in found for key, state in changed.by_key.items()}
        return by_key, [key for changed in found for key in changed.deleted]


class KeyedWork(Work):
    """Units that all members work on; states are kept by bucket, and move with it."""

    make_unit = KeyedUnit
    can_be_partitioned = True
    """Whether users may say which bucket a key falls into."""

    def __init__(self, shop: Shop, key: Key) -> None:
        super().__init__(shop)
        self.key = key.fn
        settings = shop.team.run.settings
        partitioner = settings.partitioner if self.can_be_partitioned else None
        self.buckets = KeyBuckets(shop.team.name, settings.buckets, partitioner)
        self._queue_size = settings.queue_size
        self._worklist = settings.worklist()
        self._splitting = threading.Lock()
        self._merging = threading.Lock()
        self._tuples_of = [0.0] * self.buckets.count
        """By bucket, since the hottest was asked for last."""

    @property
    def node(self) -> Node:
        return self.shop.team.nodes[0]

    def make_member(self) -> Member:
        return KeyedMember(self.shop.team, self)

    def make_bucket(self) -> BucketKernel:
        return FunctionBucket(self.shop.team.run, self.node)

    def bucket(self, number: int) -> BucketKernel:
        """What works on a bucket. The caller must hold it."""
        found = self.buckets.kernels.get(number)
        if found is None:
            found = self.buckets.kernels[number] = self.make_bucket()
        return found

    def hottest_share(self) -> float:
        """Of the last periods, and no more than is certain: among few tuples one bucket always has the most."""
        found = self._tuples_of
        self._tuples_of = [_REMEMBERED * count for count in found]
        most = max(found)
        return max(0.0, most - 2 * math.sqrt(most)) / max(1.0, sum(found))

    @property
    def waiting(self) -> int:
        return self._worklist.waiting

    # What is kept of it

    def snapshots(self) -> dict[str, Kept]:
        return {self.node.name: Kept(self.buckets.snapshot(), self.rest())}

    def changed(self) -> dict[str, Changed]:
        return {self.node.name: Changed(*self.buckets.take_changed(), self.rest())}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        if self.node.name not in kept:
            return
        by_key, rest = kept[self.node.name]
        by_bucket: dict[int, dict[Any, Any]] = defaultdict(dict)
        for key, state in by_key.items():
            by_bucket[self.bucket_kept_in(key, state)][key] = state
        self.buckets.check_placed()
        self.restore_rest(rest)
        for number, of_bucket in by_bucket.items():
            self.bucket(number).restore(Kept(of_bucket, rest))

    def rest(self) -> Any:
        """What all buckets share."""
        return None

    def restore_rest(self, rest: Any) -> None:
        pass

    def bucket_kept_in(self, kept_as: Any, state: Any) -> int:
        """Where a state belongs that is kept by its key, or by the bytes of that."""
        return self.buckets.of(kept_as.key if isinstance(kept_as, StoredKey) else kept_as)

    def by_bytes(self, kept_as: bytes, key: Any) -> int:
        """The same where it is kept by the bytes of its key."""
        return bucket_of(kept_as, self.buckets.count) if self.buckets.partitioner is None else self.buckets.of(key)

    # What members ask for

    def has_work(self, member: Member) -> bool:
        if member.number is not None and self._worklist.has_work(member.number, len(self.shop.roster.working)):
            return True
        # While a member takes a chunk apart there is nothing for others; it tells them afterwards.
        return self.shop.intake.has_work and not self._splitting.locked() and self._most_to_take(member) > 0

    def next_parts(self, member: Member) -> list[BucketPart]:
        """Parts of buckets that no other member holds."""
        number = member.number or 0
        while True:
            workers = len(self.shop.roster.working)
            budget = self.shop.budget(member, len(self.shop.intake.port) // workers)
            parts = self._worklist.take(budget, number, workers)
            if parts or not self._take_apart(member):
                break
        self.shop.roster.wake_one()
        return parts

    def done(self, parts: list[BucketPart]) -> None:
        """They have been worked on: merge them into their units."""
        for part in parts:
            unit = part.unit
            with self._merging:
                is_done = unit.add(part)
            if is_done:
                unit.merge()
                self.shop.finished(unit)
        self._worklist.done(parts)
        self.shop.roster.wake_one()

    def _take_apart(self, member: Member) -> bool:
        """Take the next chunk apart, if there is one, and room; whether there may be parts now."""
        if not self._splitting.acquire(blocking=False):
            return False
        try:
            most = self._most_to_take(member)
            unit = self.shop.intake.cut(most, member.number or 0) if most > 0 else None
            if unit is None:
                return False
            assert isinstance(unit, KeyedUnit)
            parts = self.parts_of(unit)
            self.buckets.check_placed()
            for part in parts:
                self._tuples_of[part.bucket] += len(part)
            self._worklist.add(parts)
        finally:
            self._splitting.release()
        return True

    def _most_to_take(self, member: Member) -> int:
        """How many tuples to take apart next: a chunk for each member, where there is room for them.

        For all of them: a member that takes a chunk's worth alone holds most buckets, and leaves nothing to the others.
        But a member that finds all buckets held would otherwise take in the whole input.
        """
        intake, workers = self.shop.intake, len(self.shop.roster.working)
        chunks = workers * self.shop.budget(member, len(intake.port) // workers)
        chunks = min(chunks, max(workers, self._queue_size // 2))
        most = min(self._queue_size, _CHUNKS_APART * chunks)
        waiting = self._worklist.waiting
        if waiting > most // 2 or intake.inside >= max(self._queue_size, workers):
            return 0
        return min(chunks, max(workers, most - waiting))

    def parts_of(self, unit: KeyedUnit) -> list[BucketPart]:
        """Take a unit apart; units come in their order. The caller must hold the lock for that."""
        return unit.take_apart(self.buckets_of(unit))

    def buckets_of(self, unit: KeyedUnit) -> list[int]:
        """The bucket of each tuple."""
        return self.buckets.of_all(self.key, unit.values)

    def _spoken(self, unit: Unit, part: BucketPart, member: KeyedMember) -> None:
        """Last words have been said: they are all that there is in their unit."""
        assert isinstance(unit, KeyedUnit)
        unit.add(part)
        unit.merge()
        member.count(part)

    @property
    def speaker(self) -> KeyedMember:
        """The member that says the last words."""
        member = self.shop.roster.working[0]
        assert isinstance(member, KeyedMember)
        return member


class KeyedLoopWork(KeyedWork):
    """A keyed driver loop with several replicas."""

    has_last_words = True

    def make_bucket(self) -> BucketKernel:
        return LoopBucket(self.shop.team.run, self.node)

    def bucket_kept_in(self, kept_as: Any, state: Any) -> int:
        return self.by_bytes(kept_as, state[0])

    def rest(self) -> Any:
        return waiting_in([self.shop.intake.port])

    def restore_rest(self, rest: Any) -> None:
        if rest:  # other engines leave none
            put_back([self.shop.intake.port], rest, self.shop.team.run.clock.now())

    def _loop_buckets(self) -> list[LoopBucket]:
        return [bucket for bucket in self.buckets.kernels.values() if isinstance(bucket, LoopBucket)]

    def leave(self) -> None:
        for bucket in self._loop_buckets():
            bucket.loops.leave()

    def say_last_words(self, unit: Unit) -> None:
        """Of all keys, in the order in which they always come."""
        loops = {identity: bucket for bucket in self._loop_buckets() for identity in bucket.loops.loops}
        assert isinstance(unit, KeyedUnit)
        (part,), speaker = unit.more_parts([0]), self.speaker
        try:
            for at, identity in enumerate(sorted(loops, key=firing_order)):
                loops[identity].end(identity, at, part, speaker.failing_in(part))
        except Failure:
            pass  # it is in the part
        self._spoken(unit, part, speaker)
