"""Windows and joins by key: the only place where the store's states meet event time.

A task sees the tuples of its own keys alone, but the watermark rises with everybody's (`marks.py`). What fires in a
slice comes out by its timers, as it does where one task sees all: a later timer never fires before an earlier one.
"""

from __future__ import annotations

import heapq
from typing import Any

from penstock.engines.spark.keyed_states import KeyedStates
from penstock.engines.spark.wire import CLOSING, Slice, placed_by
from penstock.flow.nodes import Node, Waits
from penstock.operators.timed import Entry, Fired, LateTuple, TimedTable
from penstock.ordering.keys import firing_order
from penstock.runtime.failures import dead_letter, survived


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

    def __init__(self, flow: str, node: Node, states: KeyedStates) -> None:
        assert isinstance(node.kind, Waits)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._table = _Recording(node.kind)
        self._entries: dict[bytes, Entry] = dict(states.mine())
        self._restore()
        self._received = self._emitted = self._failed = self._late = 0
        self._dead: list[tuple[int, Any]] = []
        self.failed_at = 0

    def _restore(self) -> None:
        timers = [(entry.scheduled, *firing_order(identity)) for identity, entry in self._entries.items()]
        heapq.heapify(timers)
        sides = self._kind.logic.sides
        # A copy: only one task keeps what it makes of them, and the others must leave them in the cache as they were.
        watermarks = list(self._states.shared() or [None] * sides)
        self._table.restore((watermarks, [False] * sides, self._entries, timers))

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """What comes out because of a slice on one of the inputs, and the late tuples among its dead letters."""
        self._dead = []
        fired: list[Fired] = []
        added: list[tuple[int, Any]] = []
        marks = [None] * len(part.values) if part.marks is None else part.marks.at
        for number, (value, mark) in enumerate(zip(part.values, marks, strict=True)):
            self.failed_at = part.position(number)
            fired += self._rise(side, mark)
            self._add(side, value, number, added)
        fired += self._rise(side, None if part.marks is None else part.marks.after)
        self._received += len(part.values)
        found = {"": self._by_timer(part.place, fired) if self._kind.logic.fires_outputs else _placed(part, added)}
        self._emitted += len(found[""].values)
        if self._dead:
            found[self._node.name] = _placed(part, self._dead)
        return found

    def close(self) -> dict[str, Slice]:
        """The streams have ended: everything that is open."""
        fired = [one for side in range(self._kind.logic.sides) for one in self._table.close(side)]
        found = self._by_timer(CLOSING, fired)
        self._emitted += len(found.values)
        return {"": found}

    def _rise(self, side: int, mark: Any) -> list[Fired]:
        return [] if mark is None else self._table.rise(side, mark)

    def _add(self, side: int, value: Any, number: int, added: list[tuple[int, Any]]) -> None:
        kind, table = self._kind, self._table
        try:
            key, time = kind.keys[side].fn(value), kind.times[side](value)
            table.advance(side, time)  # it is there already; but what can't be compared fails here, as elsewhere
            added += [(number, output) for output in table.add(side, key, value, time)]
        except LateTuple as late:
            self._late += 1
            if kind.on_late == "dead-letter":
                self._dead.append((number, dead_letter(self._node, value, late)))
            elif callable(kind.on_late):
                try:
                    kind.on_late(value)
                except Exception as error:
                    self._fail(value, error, number)
        except Exception as error:
            self._fail(value, error, number)

    def _fail(self, value: Any, error: Exception, number: int = 0) -> None:
        letter = survived(self._flow, self._node, value, error)
        self._failed += 1
        if letter is not None:
            self._dead.append((number, letter))

    def _by_timer(self, place: bytes, fired: list[Fired]) -> Slice:
        """Outputs in the order of their timers: several of one timer are told apart by their own order."""
        values: list[Any] = []
        places: list[tuple[Any, int, bytes, int]] = []
        for one in fired:
            if one.error is not None:
                self._fail(one.key, one.error)
            values += one.outputs
            places += [(*one.timer, ordinal) for ordinal in range(len(one.outputs))]
        return placed_by(place, places, values)

    def keep(self) -> None:
        """Hand the changes to the store."""
        touched, entries = self._table.touched, self._entries
        changed = {identity: entries[identity] for identity in touched if identity in entries}
        self._states.change(changed, touched - changed.keys())
        watermarks, *_ = self._table.snapshot()
        self._states.keep_shared(watermarks)

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, self._late)}

    def shares(self) -> dict[str, float]:
        return {self._node.name: 1.0}


def _placed(part: Slice, found: list[tuple[int, Any]]) -> Slice:
    return part.placed([output for _, output in found], [number for number, _ in found])
