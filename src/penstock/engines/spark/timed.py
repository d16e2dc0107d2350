"""Windows and joins by key: the only place where the store's states meet event time.

A task sees the tuples of its own keys alone, but the watermark rises with everybody's (`marks.py`). What fires in a
slice comes out by its timers, as it does where one task sees all: a later timer never fires before an earlier one.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.engines.spark.wire import CLOSING, Slice, column_of
from penstock.flow.nodes import Node, Waits
from penstock.operators.timed import Entry, Fired, LateTuple, TimedTable
from penstock.ordering.keys import firing_order
from penstock.runtime.failures import dead_letter, is_fatal, reported
from penstock.state.buckets import Place, TaskStates


class _Recording(TimedTable):
    """Knows which keys it was asked for: the others have not changed."""

    def __init__(self, kind: Waits) -> None:
        super().__init__(kind.logic, kind.lateness)
        self.touched: set[bytes] = set()

    def _entry(self, identity: bytes) -> Entry | None:
        self.touched.add(identity)
        return super()._entry(identity)


class TimedStep:
    """One operator in event time, in one task of one batch."""

    def __init__(self, flow: str, node: Node, states: TaskStates, buckets: int, is_mine: Callable[[int], bool]) -> None:
        assert isinstance(node.kind, Waits)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._buckets = buckets
        self._owns_watermarks = is_mine(0)
        self._watermarks_place = Place(node.name, buckets)
        self._table = _Recording(node.kind)
        self._entries: dict[Any, Entry] = {}
        """By the bytes of the key."""
        self._restore(is_mine)
        self._received = self._emitted = self._failed = self._late = 0
        self._dead: list[tuple[int, Any]] = []
        self.failed_at = 0

    def _restore(self, is_mine: Callable[[int], bool]) -> None:
        for bucket in filter(is_mine, range(self._buckets)):
            self._entries.update(self._states.states(Place(self._node.name, bucket)))
        timers = [(entry.scheduled, *firing_order(identity)) for identity, entry in self._entries.items()]
        heapq.heapify(timers)
        sides = self._kind.logic.sides
        watermarks = self._states.get(self._watermarks_place, None, None) or [None] * sides
        # A copy: only one task keeps what it makes of them, and the others must leave them in the cache as they were.
        self._table.restore((list(watermarks), [False] * sides, self._entries, timers))

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """What comes out because of a slice on one of the inputs, and the late tuples among its dead letters."""
        self._dead = []
        fired: list[Fired] = []
        added: list[tuple[int, Any]] = []
        column = range(len(part.values)) if part.positions is None else part.positions[0].tolist()
        marks = [None] * len(part.values) if part.marks is None else part.marks.at
        for value, mark, position in zip(part.values, marks, column, strict=True):
            self.failed_at = position
            fired += self._rise(side, mark)
            self._add(side, value, position, added)
        fired += self._rise(side, None if part.marks is None else part.marks.after)
        self._received += len(part.values)
        found = {"": self._by_timer(part.number, fired) if self._kind.logic.fires_outputs else _by_place(part, added)}
        self._emitted += len(found[""].values)
        if self._dead:
            found[self._node.name] = _by_place(part, self._dead)
        return found

    def close(self) -> dict[str, Slice]:
        """The streams have ended: everything that is open."""
        fired = [one for side in range(self._kind.logic.sides) for one in self._table.close(side)]
        found = self._by_timer(CLOSING, fired)
        self._emitted += len(found.values)
        return {"": found}

    def _rise(self, side: int, mark: Any) -> list[Fired]:
        return [] if mark is None else self._table.rise(side, mark)

    def _add(self, side: int, value: Any, position: int, added: list[tuple[int, Any]]) -> None:
        kind, table = self._kind, self._table
        try:
            key, time = kind.keys[side].fn(value), kind.times[side](value)
            table.advance(side, time)  # it is there already; but what can't be compared fails here, as elsewhere
            added += [(position, output) for output in table.add(side, key, value, time)]
        except LateTuple as late:
            self._late += 1
            if kind.on_late == "dead-letter":
                self._dead.append((position, dead_letter(self._node, value, late)))
            elif callable(kind.on_late):
                try:
                    kind.on_late(value)
                except Exception as error:
                    self._fail(value, error, position)
        except Exception as error:
            self._fail(value, error, position)

    def _fail(self, value: Any, error: Exception, position: int | None = None) -> None:
        if is_fatal(self._node, error):
            raise reported(self._flow, self._node, value, error) from error
        self._failed += 1
        if self._node.on_error == "dead-letter" and position is not None:
            self._dead.append((position, dead_letter(self._node, value, error)))

    def _by_timer(self, number: int, fired: list[Fired]) -> Slice:
        """Outputs in the order of their timers: several of one timer are told apart by their own order."""
        values: list[Any] = []
        places: list[tuple[Any, int, bytes, int]] = []
        for one in fired:
            if one.error is not None:
                self._fail(one.key, one.error)
            values += one.outputs
            places += [(*one.timer, ordinal) for ordinal in range(len(one.outputs))]
        return Slice(number, values, tuple(column_of(column) for column in zip(*places, strict=True)))

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
        if self._owns_watermarks:
            watermarks, *_ = self._table.snapshot()
            self._states.change(self._watermarks_place, {None: watermarks})

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, self._late)}

    def shares(self) -> dict[str, float]:
        return {self._node.name: 1.0}


def _by_place(part: Slice, found: list[tuple[int, Any]]) -> Slice:
    """Outputs in the order of the tuples that they came from."""
    origin = np.array([position for position, _ in found], dtype=np.int64)
    ordinal = np.arange(len(found)) - np.searchsorted(origin, origin)
    return Slice(part.number, [output for _, output in found], (origin, ordinal))
