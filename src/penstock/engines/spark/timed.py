"""Windows by key: the only place where the store's states meet event time.

A task sees the tuples of its own keys alone, but the watermark rises with everybody's. So whoever sends a slice sends
with each tuple how far the watermark is there, and to every task how far it is at the slice's end. What fires in a
slice comes out by its timers, as it does where one task sees all: a later timer never fires before an earlier one.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.clock import SystemClock
from penstock.engines.spark.wire import Marks, Slice
from penstock.flow.nodes import Node, Waits
from penstock.operators.timed import Entry, Fired, LateTuple, TimedTable
from penstock.ordering.keys import firing_order
from penstock.runtime.failures import dead_letter, is_fatal, reported
from penstock.state.buckets import Place, TaskStates

_CLOSING = 1 << 49


class Marker:
    """Finds how far the watermark of one slice is at each of its tuples."""

    def __init__(self, kind: Waits) -> None:
        self._time = kind.times[0]
        self._mark_of = TimedTable(kind.logic, kind.lateness).mark_of

    def marks(self, values: Sequence[Any], key: Callable[[Any], Any]) -> list[Any]:
        """For each value the highest mark so far, itself included; what has no key or no time is passed over."""
        highest: Any = None
        found = []
        for value in values:
            try:
                key(value)
                mark = self._mark_of(self._time(value))
                if highest is None or mark > highest:
                    highest = mark
            except Exception:  # its operator fails on it
                pass
            found.append(highest)
        return found


class _Recording(TimedTable):
    """Knows which keys it was asked for: the others have not changed."""

    def __init__(self, kind: Waits) -> None:
        super().__init__(kind.logic, kind.lateness)
        self.touched: set[bytes] = set()

    def _entry(self, identity: bytes) -> Entry | None:
        self.touched.add(identity)
        return super()._entry(identity)


class TimedStep:
    """One windowed operator in one task of one batch."""

    def __init__(self, flow: str, node: Node, states: TaskStates, buckets: int, is_mine: Callable[[int], bool]) -> None:
        assert isinstance(node.kind, Waits)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._buckets = buckets
        self._owns_watermark = is_mine(0)
        self._watermark_place = Place(node.name, buckets)
        self._table = _Recording(node.kind)
        self._entries: dict[Any, Entry] = {}
        """By the bytes of the key."""
        self._restore(is_mine)
        self._received = self._emitted = self._failed = self._late = 0
        self._dead: list[tuple[int, Any]] = []
        self._clock = SystemClock()
        self._busy_seconds = 0.0
        self.failed_at = 0

    def _restore(self, is_mine: Callable[[int], bool]) -> None:
        for bucket in filter(is_mine, range(self._buckets)):
            self._entries.update(self._states.states(Place(self._node.name, bucket)))
        timers = [(entry.scheduled, *firing_order(identity)) for identity, entry in self._entries.items()]
        heapq.heapify(timers)
        watermark = self._states.get(self._watermark_place, None, None)
        self._table.restore(([watermark], [False], self._entries, timers))

    def run(self, part: Slice) -> dict[str, Slice]:
        """What the windows give that close in a slice, and the late tuples among its dead letters."""
        began = self._clock.now()
        assert part.marks is not None
        self._dead = []
        fired: list[Fired] = []
        column = part.positions[0] if part.positions is not None else range(len(part.values))
        for value, mark, position in zip(part.values, part.marks.at, column, strict=True):
            self.failed_at = int(position)
            fired += self._rise(mark)
            self._add(value, int(position))
        fired += self._rise(part.marks.after)
        self._received += len(part.values)
        found = {"": self._placed(part.number, fired)}
        if self._dead:
            positions = np.array([position for position, _ in self._dead], dtype=np.int64)
            found[self._node.name] = Slice(part.number, [letter for _, letter in self._dead], (positions,))
        self._busy_seconds += self._clock.now() - began
        return found

    def close(self) -> dict[str, Slice]:
        """The stream has ended: all windows that are open."""
        return {"": self._placed(_CLOSING, self._table.close(0))}

    def _rise(self, mark: Any) -> list[Fired]:
        return [] if mark is None else self._table.rise(0, mark)

    def _add(self, value: Any, position: int) -> None:
        kind, table = self._kind, self._table
        try:
            key, time = kind.keys[0].fn(value), kind.times[0](value)
            table.advance(0, time)  # it is there already; but what can't be compared fails here, as it does elsewhere
            table.add(0, key, value, time)
        except LateTuple as late:
            self._late += 1
            if kind.on_late == "dead-letter":
                self._dead.append((position, dead_letter(self._node, value, late)))
            elif callable(kind.on_late):
                try:
                    kind.on_late(value)
                except Exception as error:
                    self._fail(value, error)
        except Exception as error:
            self._fail(value, error)

    def _fail(self, value: Any, error: Exception) -> None:
        if is_fatal(self._node, error):
            raise reported(self._flow, self._node, value, error) from error
        self._failed += 1

    def _placed(self, number: int, fired: list[Fired]) -> Slice:
        """Outputs in the order of their timers: several of one timer are told apart by their own order."""
        values: list[Any] = []
        places: list[tuple[Any, int, bytes, int]] = []
        for one in fired:
            if one.error is not None:
                self._fail(one.key, one.error)
            values += one.outputs
            places += [(*one.timer, ordinal) for ordinal in range(len(one.outputs))]
        self._emitted += len(values)
        return Slice(number, values, tuple(_objects(column) for column in zip(*places, strict=True)))

    def keep(self) -> None:
        """Hand the changes to the store."""
        changed: Mapping[int, dict[Any, Entry]] = defaultdict(dict)
        deleted: Mapping[int, list[bytes]] = defaultdict(list)
        for identity in self._table.touched:
            bucket = zlib.crc32(identity) % self._buckets
            entry = self._entries.get(identity)
            if entry is None:
                deleted[bucket].append(identity)
            else:
                changed[bucket][identity] = entry
        for bucket in {*changed, *deleted}:
            place = Place(self._node.name, bucket)
            kept = self._states.states(place)
            gone = [identity for identity in deleted[bucket] if identity in kept]
            self._states.change(place, changed[bucket], gone)
        if self._owns_watermark:
            (watermark,), *_ = self._table.snapshot()
            self._states.change(self._watermark_place, {None: watermark})

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, self._late)}

    def busy_seconds(self) -> dict[str, float]:
        return {self._node.name: self._busy_seconds}


def _objects(column: Sequence[Any]) -> Any:
    """A column that numpy sorts by Python's own order."""
    array = np.empty(len(column), dtype=object)
    array[:] = column
    return array


def share_of(marks: list[Any], places: Any) -> Marks:
    """What a task is told of a slice's marks: those of its own tuples, and the last."""
    return Marks([marks[place] for place in places.tolist()], marks[-1] if marks else None)
