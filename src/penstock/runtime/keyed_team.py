"""Several workers in one keyed operator: chunks are taken apart by buckets of keys, and put together again.

Whoever finds nothing to do takes the next chunk apart, unless somebody else is doing so. What it holds for a bucket is
worked on in order, by whoever holds that bucket; a unit is done when its last part is.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import index, itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from penstock.clock import wall_time
from penstock.errors import PenstockError, PolicyError, describe_exception, short_repr
from penstock.flow.nodes import Key, Node
from penstock.operators.kept import Changed, Kept
from penstock.ordering.keys import StoredKey, bucket_of, firing_order, key_bytes
from penstock.ordering.reorder import ReorderBuffer
from penstock.ordering.worklists import Worklist
from penstock.runtime.cells import Failed
from penstock.runtime.chain import changed_in, changes_number, compile_chain, kept_of, make_part, restore_part
from penstock.runtime.failures import survived
from penstock.runtime.function_cells import FunctionCell
from penstock.runtime.keyed_loops import KeyedLoops
from penstock.runtime.ports import Port
from penstock.runtime.replicas import Replica, Unit
from penstock.runtime.team import Team

if TYPE_CHECKING:
    from penstock.runtime.run import Run

_MOST_KNOWN_KEYS = 1 << 17

Found = dict[int, list[tuple[Any, Any]]]
"""By output port: what came out, and its place: the position in its unit of the tuple that it came of."""
Fail = Callable[[Any, Any, BaseException], None]
"""Told the place of a tuple, the tuple and what happened; raises `Ended` if that ends the flow."""


class Ended(Exception):
    """Unwinds the work on a part after a tuple that ends the flow."""


class KeyedUnit(Unit):
    """A unit that several replicas work on."""

    __slots__ = ("error_at", "found", "parts")

    def __init__(self, serial: int, values: list[Any], born: float, replica: int, since: float) -> None:
        super().__init__(serial, values, born, replica, since)
        self.parts = 0
        """How many of its parts are not done."""
        self.found: Found = defaultdict(list)
        self.error_at: Any = len(values)

    def merge(self) -> None:
        """All parts are done: what came of them in the order of tuples, up to the first that ends it all."""
        for port, placed in self.found.items():
            values = [value for at, value in sorted(placed, key=itemgetter(0)) if at < self.error_at]
            if values:
                self.given.append((port, values, self.born))


class Part:
    """What a unit holds for one bucket, and what came of it."""

    __slots__ = ("bucket", "error", "found", "late", "positions", "unit", "values")

    def __init__(self, unit: KeyedUnit, bucket: int) -> None:
        self.unit = unit
        self.bucket = bucket
        self.positions: list[int] = []
        self.values: list[Any] = []
        self.found: Found = {}
        self.error: tuple[Any, Failed] | None = None
        self.late = 0

    @property
    def serial(self) -> int:
        return self.unit.serial

    def __len__(self) -> int:
        return len(self.values)


class Bucket(Protocol):
    """The states of some keys; used by one replica at a time."""

    def run(self, part: Part, fail: Fail) -> None:
        """Work on a part: what comes out goes into its `found`."""
        ...

    def snapshot(self) -> Kept:
        """The states of its keys, as the operator's own cell would keep them."""
        ...

    def take_changed(self) -> Changed:
        """Those that have changed since this was last asked."""
        ...

    def restore(self, kept: Kept) -> None: ...


class FunctionBucket:
    """A keyed function over its share of the states."""

    def __init__(self, run: Run, node: Node) -> None:
        is_numbered = changes_number(node) or node.on_error != "fail"
        part = make_part(node, wall_time(run.clock), run.settings.knows_changes)
        self._chain = compile_chain([node], [part], is_numbered)

    def run(self, part: Part, fail: Fail) -> None:
        found: list[Any] = []
        numbers: list[int] = []
        positions = part.positions

        def failed(_step: int, value: Any, error: BaseException, number: int | None = None) -> None:
            fail(positions[len(found) if number is None else number], value, error)

        try:
            self._chain.whole(part.values, [found, numbers] if self._chain.is_numbered else [found], failed, [0])
        finally:
            if self._chain.is_numbered:
                placed = [(positions[number], value) for number, value in zip(numbers, found, strict=True)]
            else:  # each has given one, up to the one that ended it
                placed = list(zip(positions, found, strict=False))
            part.found.setdefault(0, []).extend(placed)

    def snapshot(self) -> Kept:
        return kept_of(self._chain.parts[0])

    def take_changed(self) -> Changed:
        return changed_in(self._chain.parts[0])

    def restore(self, kept: Kept) -> None:
        restore_part(self._chain.parts[0], kept)


class LoopBucket:
    """A keyed driver loop: the loops of its keys."""

    def __init__(self, run: Run, node: Node) -> None:
        self._fail: Fail
        self._node = node
        self._on_loop = run.settings.on_loop
        self.loops = KeyedLoops(node, self._failed, is_stopping=lambda: run.is_stopping)
        self.loops.touched = set() if run.settings.knows_changes else None

    def run(self, part: Part, fail: Fail) -> None:
        self._fail = fail
        if self._on_loop is not None:
            self._on_loop(self._node, part.values)
        try:
            for position, value in zip(part.positions, part.values, strict=True):
                self.loops.because = position
                self.loops.arrive(0, value)
        finally:
            for port, found in self.loops.take_found().items():
                part.found.setdefault(port, []).extend(found)

    def end(self, identity: bytes, at: int, part: Part, fail: Fail) -> None:
        """The last words of a key, which is the so-many-th to say them."""
        self._fail = lambda _, value, error: fail(at, value, error)
        try:
            self.loops.end(0, identity)
        finally:
            for port, found in self.loops.take_found().items():
                part.found.setdefault(port, []).extend((at, value) for _, value in found)

    def _failed(self, value: Any, error: BaseException) -> None:
        self._fail(self.loops.because, value, error)

    def snapshot(self) -> Kept:
        return Kept(self.loops.snapshots())

    def take_changed(self) -> Changed:
        return Changed(self.loops.take_changed())

    def restore(self, kept: Kept) -> None:
        for identity, (key, snapshot) in kept.by_key.items():
            self.loops.add(identity, key, snapshot)


class KeyedReplica(Replica, FunctionCell):
    """Works on the parts of the buckets that it holds."""

    team: KeyedTeam

    def __init__(self, run: Run, place: float, nodes: Sequence[Node], port: Port) -> None:
        super().__init__(run, place, nodes, port)
        self._parts: list[Part] = []

    @property
    def has_given_all(self) -> bool:
        return not self._parts

    def take(self) -> bool:
        self._parts = [] if self.is_retired else self.team.next_parts(self)
        return bool(self._parts)

    def process(self) -> None:
        (node,) = self.nodes
        counters = self.counters[node.name]
        self.processed = sum(map(len, self._parts))
        counters.received += self.processed
        for part in self._parts:
            with suppress(Ended):
                self.team.work_on(part, self.failing(part))
            counters.emitted += sum(len(found) for port, found in part.found.items() if port < node.outputs)
            counters.late += part.late

    def failing(self, part: Part) -> Fail:
        """What to do about tuples of a part that fail."""

        def fail(place: Any, value: Any, error: BaseException) -> None:
            (node,) = self.nodes
            try:
                letter = survived(self.run.flow, node, value, error)
            except PenstockError as failure:
                part.error = (place, Failed(self.place, failure))
                raise Ended from None
            self.counters[node.name].failed += 1
            if letter is not None:
                part.found.setdefault(self.dead_letter_port(node), []).append((place, letter))

        return fail

    def flush(self) -> bool:
        parts, self._parts = self._parts, []
        if parts:
            self.team.done(parts)
        return True


class KeyedTeam(Team):
    """A keyed operator with several replicas; states are kept by bucket, and move with it."""

    can_be_helped = False
    can_be_split = False
    _unit_type = KeyedUnit

    def __init__(
        self,
        run: Run,
        place: float,
        node: Node,
        port: Port,
        make_replica: Callable[[], Replica],
        buffer: Callable[[int, Any], ReorderBuffer],
        worklist: Callable[[], Worklist[Part]],
        key: Key,
    ) -> None:
        super().__init__(run, place, [node], port, make_replica, buffer)
        self._key = key.fn
        self._worklist = worklist()
        self._splitting = threading.Lock()
        self._merging = threading.Lock()
        self._bucket_of: dict[Any, int] = {}
        self._buckets: dict[int, Bucket] = {}
        self._bucket_count = run.settings.buckets
        self._partitioner = run.settings.partitioner
        self._misplaced: PolicyError | None = None
        """What the user's partitioner has raised, where nothing may be raised."""
        self._tuples_of = [0] * self._bucket_count
        """By bucket, since somebody last asked which is the hottest."""

    def hottest_share(self) -> float:
        found, self._tuples_of = self._tuples_of, [0] * self._bucket_count
        return max(found) / max(1, sum(found))

    def bucket(self, number: int) -> Bucket:
        """Asked for by who holds the bucket."""
        found = self._buckets.get(number)
        if found is None:
            found = self._buckets[number] = self.make_bucket()
        return found

    def make_bucket(self) -> Bucket:
        raise NotImplementedError

    def work_on(self, part: Part, fail: Fail) -> None:
        self.bucket(part.bucket).run(part, fail)

    # What is kept of it

    def snapshots(self) -> dict[str, Kept]:
        kept = [bucket.snapshot().by_key for bucket in self._buckets.values()]
        return {self.name: Kept({key: state for of_bucket in kept for key, state in of_bucket.items()}, self._rest())}

    def _changed(self) -> dict[str, Changed]:
        found = [bucket.take_changed() for bucket in self._buckets.values()]
        by_key = {key: state for changed in found for key, state in changed.by_key.items()}
        return {self.name: Changed(by_key, [key for changed in found for key in changed.deleted], self._rest())}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        if self.name not in kept:
            return
        by_key, rest = kept[self.name]
        by_bucket: dict[int, dict[Any, Any]] = defaultdict(dict)
        for key, state in by_key.items():
            by_bucket[self._bucket_kept_in(key, state)][key] = state
        self._check_placed()
        self._restore_rest(rest)
        for number, of_bucket in by_bucket.items():
            self.bucket(number).restore(Kept(of_bucket, rest))

    def _rest(self) -> Any:
        """What all buckets share."""
        return None

    def _restore_rest(self, rest: Any) -> None:
        pass

    def _bucket_kept_in(self, kept_as: Any, state: Any) -> int:
        """Where a state belongs: by the bytes of the key, by which it is kept most often, and by the key itself."""
        if self._partitioner is None:
            return bucket_of(kept_as, self._bucket_count)
        return self._bucket_of_key(self._key_kept_with(state))

    def _key_kept_with(self, state: Any) -> Any:
        raise NotImplementedError

    # What replicas ask for

    def has_work(self, replica: Replica) -> bool:
        if self._worklist.has_work(replica.number, len(self._replicas)):
            return True
        # While somebody takes a chunk apart there is nothing for others; that one tells them afterwards.
        return super().has_work(replica) and not self._splitting.locked()

    def next_parts(self, replica: Replica) -> list[Part]:
        """Parts of buckets that nobody else holds."""
        while True:
            workers = len(self._replicas)
            parts = self._worklist.take(replica.budget(len(self._port) // workers), replica.number, workers)
            if parts or not self._take_apart(replica):
                break
        self.wake_one()
        return parts

    def done(self, parts: list[Part]) -> None:
        """They have been worked on: merge them into their units."""
        for part in parts:
            unit = part.unit
            with self._merging:
                for port, found in part.found.items():
                    unit.found[port] += found
                if part.error is not None and part.error[0] < unit.error_at:
                    unit.error_at, unit.error = part.error
                unit.parts -= 1
                is_done = not unit.parts
            if is_done:
                unit.merge()
                self.finished(unit)
        self._worklist.done(parts)
        self.wake_one()

    def _take_apart(self, replica: Replica) -> bool:
        """Take the next chunk apart, if there is one; whether there may be parts now."""
        if not self._splitting.acquire(blocking=False):
            return False
        try:
            # For all of them: who takes a chunk's worth alone holds most buckets, and leaves nothing to the others.
            unit = self._cut(replica, len(self._replicas))
            if unit is None:
                return False
            assert isinstance(unit, KeyedUnit)
            parts = self._parts_of(unit)
            self._check_placed()
            unit.parts = len(parts)
            for part in parts:
                self._tuples_of[part.bucket] += len(part)
            self._worklist.add(parts)
        finally:
            self._splitting.release()
        return True

    def _parts_of(self, unit: KeyedUnit) -> list[Part]:
        parts: dict[int, Part] = {}
        for position, (bucket, value) in enumerate(zip(self._buckets_of(unit), unit.values, strict=True)):
            part = parts.get(bucket)
            if part is None:
                part = parts[bucket] = Part(unit, bucket)
            part.positions.append(position)
            part.values.append(value)
        return list(parts.values())

    def _buckets_of(self, unit: KeyedUnit) -> list[int]:
        """The bucket of each tuple; what has no key goes to the first, where its function fails on it."""
        key, known = self._key, self._bucket_of
        buckets: list[int] = []
        for value in unit.values:
            try:
                buckets.append(known[key(value)])
            except BaseException:
                try:
                    buckets.append(self._bucket_of_new(key(value)))
                except BaseException:
                    buckets.append(0)
        return buckets

    def _bucket_of_key(self, key: Any) -> int:
        """Raises where something can't be a key."""
        try:
            return self._bucket_of[key]
        except (KeyError, TypeError):
            return self._bucket_of_new(key)

    def _bucket_of_new(self, key: Any) -> int:
        identity = key_bytes(key)
        bucket = bucket_of(identity, self._bucket_count) if self._partitioner is None else self._partitioned(key)
        if len(self._bucket_of) >= _MOST_KNOWN_KEYS:
            self._bucket_of.clear()
        self._bucket_of[key] = bucket
        return bucket

    def _partitioned(self, key: Any) -> int:
        assert self._partitioner is not None
        if self._misplaced is None:
            try:
                return index(self._partitioner(key)) % self._bucket_count
            except BaseException as error:
                on = f"key {short_repr(key)} of operator {self.name!r}"
                self._misplaced = PolicyError(f"partitioner= failed on {on}: {describe_exception(error)}")
                self._misplaced.__cause__ = error
        return 0

    def _check_placed(self) -> None:
        """A tuple in another bucket than that of its state would begin another state: end the run instead."""
        if self._misplaced is not None:
            raise self._misplaced


class KeyedFunctionTeam(KeyedTeam):
    """A keyed function with several replicas."""

    def make_bucket(self) -> Bucket:
        return FunctionBucket(self.run, self.nodes[0])

    def _bucket_kept_in(self, kept_as: Any, state: Any) -> int:
        return self._bucket_of_key(kept_as.key if isinstance(kept_as, StoredKey) else kept_as)


class KeyedLoopTeam(KeyedTeam):
    """A keyed driver loop with several replicas."""

    has_last_words = True

    def make_bucket(self) -> Bucket:
        return LoopBucket(self.run, self.nodes[0])

    def _key_kept_with(self, state: Any) -> Any:
        return state[0]

    def _rest(self) -> Any:
        return [self._port.waiting()]

    def _restore_rest(self, rest: Any) -> None:
        (waiting,) = rest or [[]]  # other engines leave none
        if waiting:
            self._port.grow(max(self._port.capacity, len(waiting)))
            self._port.offer(waiting, self.run.clock.now())

    @property
    def _speaker(self) -> KeyedReplica:
        replica = self._replicas[0]
        assert isinstance(replica, KeyedReplica)
        return replica

    def leave(self, has_failed: bool) -> None:
        super().leave(has_failed)
        for bucket in self._buckets.values():
            if isinstance(bucket, LoopBucket):
                bucket.loops.leave()

    def say_last_words(self, unit: Unit) -> None:
        """Of all keys, in the order in which they always come."""
        loops = {
            identity: bucket
            for bucket in self._buckets.values()
            if isinstance(bucket, LoopBucket)
            for identity in bucket.loops.loops
        }
        assert isinstance(unit, KeyedUnit)
        part = Part(unit, 0)
        try:
            for at, identity in enumerate(sorted(loops, key=firing_order)):
                loops[identity].end(identity, at, part, self._speaker.failing(part))
        except Ended:
            assert part.error is not None
            unit.error_at, unit.error = part.error
        else:
            unit.error_at = len(loops)
        unit.found = part.found
        unit.merge()
        counters = self._speaker.counters[self.name]
        counters.emitted += sum(len(found) for port, found in part.found.items() if port < self.nodes[0].outputs)
