"""Several workers in one keyed operator: chunks are taken apart by buckets of keys, and put together again.

Whoever finds nothing to do takes the next chunk apart, unless somebody else is doing so. What it holds for a bucket is
worked on in order, by whoever holds that bucket; a unit is done when its last part is.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.flow.nodes import Node, Remembers
from penstock.ordering.keys import key_bytes
from penstock.ordering.reorder import ReorderBuffer
from penstock.ordering.worklists import Worklist
from penstock.runtime.cells import Failed
from penstock.runtime.chain import Chain, changes_number, compile_chain, kept_of, make_part, restore_part
from penstock.runtime.failures import dead_letter
from penstock.runtime.function_cells import FunctionCell
from penstock.runtime.ports import Port
from penstock.runtime.team import Replica, Team, Unit

if TYPE_CHECKING:
    from penstock.runtime.run import Run

BUCKETS = 64
"""Far more than workers, so that a hot key shares its bucket with few others; few enough for parts of many tuples."""
_MOST_KNOWN_KEYS = 1 << 17

_Placed = tuple[int, Any]
"""Something that came of a tuple, and that tuple's position in its unit."""


class KeyedUnit(Unit):
    """A unit that several replicas work on."""

    __slots__ = ("dead", "error_at", "found", "parts")

    def __init__(self, serial: int, values: list[Any], born: float, replica: int, since: float) -> None:
        super().__init__(serial, values, born, replica, since)
        self.parts = 0
        """How many of its parts are not done."""
        self.found: list[_Placed] = []
        self.dead: list[_Placed] = []
        self.error_at = len(values)

    def merge(self, dead_letter_port: int) -> None:
        """All parts are done: what came of them in the order of tuples, up to the first that ends it all."""
        for port, placed in (0, self.found), (dead_letter_port, self.dead):
            values = [value for at, value in sorted(placed, key=itemgetter(0)) if at < self.error_at]
            if values:
                self.given.append((port, values, self.born))


class Part:
    """What a unit holds for one bucket, and what came of it."""

    __slots__ = ("bucket", "dead", "error", "found", "positions", "unit", "values")

    def __init__(self, unit: KeyedUnit, bucket: int) -> None:
        self.unit = unit
        self.bucket = bucket
        self.positions: list[int] = []
        self.values: list[Any] = []
        self.found: list[_Placed] = []
        self.dead: list[_Placed] = []
        self.error: tuple[int, Failed] | None = None

    @property
    def serial(self) -> int:
        return self.unit.serial

    def __len__(self) -> int:
        return len(self.values)


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
        counters = self.counters[self.name]
        self.processed = sum(map(len, self._parts))
        counters.received += self.processed
        for part in self._parts:
            self._work_on(part)
            counters.emitted += len(part.found)

    def _work_on(self, part: Part) -> None:
        chain = self.team.chain(part.bucket)
        found: list[Any] = []
        numbers: list[int] = []

        def fail(_step: int, value: Any, error: Exception, number: int | None = None) -> None:
            self._fail(part, part.positions[len(found) if number is None else number], value, error)

        with suppress(_Ended):
            chain.whole(part.values, [found, numbers] if chain.is_numbered else [found], fail, [0])
        if chain.is_numbered:
            positions = part.positions
            part.found = [(positions[number], value) for number, value in zip(numbers, found, strict=True)]
        else:  # each has given one, up to the one that ended it
            part.found = list(zip(part.positions, found, strict=False))

    def _fail(self, part: Part, position: int, value: Any, error: Exception) -> None:
        (node,) = self.nodes
        try:
            self.failed(node, value, error, part.unit.born)
        except Failed as failed:
            part.error = (position, failed)
            raise _Ended from None
        if node.on_error == "dead-letter":
            part.dead.append((position, dead_letter(node, value, error)))

    def give_dead_letter(self, node: Node, value: Any, error: Exception, born: float) -> None:
        """It has a position, and goes with its part."""

    def flush(self) -> bool:
        parts, self._parts = self._parts, []
        if parts:
            self.team.done(parts)
        return True


class _Ended(Exception):
    """Unwinds a loop after a tuple that ends the flow."""


class KeyedTeam(Team):
    """A keyed operator with several replicas; states are kept by bucket, and move with it."""

    _unit_type = KeyedUnit

    def __init__(
        self,
        run: Run,
        place: float,
        node: Node,
        port: Port,
        make_replica: Callable[[Team], Replica],
        buffer: Callable[[int, Any], ReorderBuffer],
        worklist: Callable[[], Worklist[Part]],
    ) -> None:
        super().__init__(run, place, node, port, make_replica, buffer)
        assert isinstance(node.kind, Remembers)
        assert node.kind.key is not None
        self._key = node.kind.key.fn
        self._is_numbered = changes_number(node) or node.on_error != "fail"
        self._worklist = worklist()
        self._splitting = threading.Lock()
        self._merging = threading.Lock()
        self._bucket_of: dict[Any, int] = {}
        self._chains: dict[int, Chain] = {}

    def chain(self, bucket: int) -> Chain:
        """The loop over a bucket's states; asked for by who holds the bucket."""
        chain = self._chains.get(bucket)
        if chain is None:
            parts = [make_part(self.nodes[0], self.run.clock.now)]
            chain = self._chains[bucket] = compile_chain(self.nodes, parts, self._is_numbered)
        return chain

    def snapshots(self) -> dict[str, Any]:
        states: dict[Any, Any] = {}
        for chain in self._chains.values():
            states |= kept_of(chain.parts[0])
        return {self.name: states}

    def restore(self, kept: Any) -> None:
        for key, state in kept.get(self.name, {}).items():
            restore_part(self.chain(_bucket_of(key)).parts[0], {key: state})

    # What replicas ask for

    def has_work(self, replica: Replica) -> bool:
        if self._worklist.has_work(replica.number, len(self._replicas)):
            return True
        # While somebody takes a chunk apart there is nothing for others; that one tells them afterwards.
        return super().has_work(replica) and not self._splitting.locked()

    def next_parts(self, replica: Replica) -> list[Part]:
        """Parts of buckets that nobody else holds."""
        while True:
            parts = self._worklist.take(replica.budget(len(self._port)), replica.number, len(self._replicas))
            if parts or not self._split(replica):
                break
        self.wake_one()
        return parts

    def done(self, parts: list[Part]) -> None:
        """They have been worked on: merge them into their units."""
        for part in parts:
            unit = part.unit
            with self._merging:
                unit.found += part.found
                unit.dead += part.dead
                if part.error is not None and part.error[0] < unit.error_at:
                    unit.error_at, unit.error = part.error
                unit.parts -= 1
                is_done = not unit.parts
            if is_done:
                unit.merge(self.dead_letter_port(self.nodes[0]))
                self.finished(unit)
        self._worklist.done(parts)
        self.wake_one()

    def _split(self, replica: Replica) -> bool:
        """Take the next chunk apart, if there is one; whether there may be parts now."""
        if not self._splitting.acquire(blocking=False):
            return False
        try:
            unit = self.next_unit(replica)
            if unit is None:
                return False
            assert isinstance(unit, KeyedUnit)
            parts = self._parts_of(unit)
            unit.parts = len(parts)
            self._worklist.add(parts)
        finally:
            self._splitting.release()
        return True

    def _parts_of(self, unit: KeyedUnit) -> list[Part]:
        parts: dict[int, Part] = {}
        key, known = self._key, self._bucket_of
        for position, value in enumerate(unit.values):
            try:
                bucket = known[key(value)]
            except Exception:
                bucket = self._bucket(value)
            part = parts.get(bucket)
            if part is None:
                part = parts[bucket] = Part(unit, bucket)
            part.positions.append(position)
            part.values.append(value)
        return list(parts.values())

    def _bucket(self, value: Any) -> int:
        """Of a key that is new; what has none goes to the first, where its function fails on it."""
        try:
            key = self._key(value)
            bucket = _bucket_of(key)
        except Exception:
            return 0
        if len(self._bucket_of) >= _MOST_KNOWN_KEYS:
            self._bucket_of.clear()
        self._bucket_of[key] = bucket
        return bucket


def _bucket_of(key: Any) -> int:
    return zlib.crc32(key_bytes(key)) % BUCKETS
