"""Windows and joins by key, on states from the store and a watermark that all tasks agree on.

A task sees the tuples of its own keys alone, but the watermark rises with those of all tasks (`marks.py`). What fires
in a slice comes out by its timers, as it does where one task sees all: a later timer never fires before an earlier
one. Where tuples give something at once, too, what fires stands before the tuple that let the watermark rise so far.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.durable.keyed_states import KeyedStates
from penstock.engines.spark.wire import CLOSING, Slice, slice_at
from penstock.flow.nodes import Node, Waits
from penstock.operators.kept import Kept
from penstock.operators.timed import Fired, LateTuple, TimedTable
from penstock.operators.times import Time
from penstock.plan.groups import interleaves
from penstock.runtime.failures import dead_letter, survived


class _Emitted(NamedTuple):
    """Something that came out, because of a tuple or because of a timer."""

    value: Any
    number: int
    """Of the tuple, among this task's own."""
    position: tuple[int, bool, Time, int, bytes]
    """The tuple of all, whether it came of that tuple itself and not of a timer before it, and the timer."""


class _By(Enum):
    """What tells where something belongs in its slice."""

    TUPLE = "the tuple that it came of"
    TIMER = "the timer that gave it"
    BOTH = "both, because there is some of each"


class TimedStep:
    """One operator in event time, in one task of one batch."""

    def __init__(self, flow: str, node: Node, states: KeyedStates) -> None:
        assert isinstance(node.kind, Waits)
        self._flow = flow
        self._node = node
        self._kind = node.kind
        self._states = states
        self._table = TimedTable(node.kind.logic, node.kind.lateness, knows_changes=True)
        sides = node.kind.logic.sides
        kept = states.kept()
        self._table.restore(Kept(kept.by_key, kept.rest or ([None] * sides, [False] * sides)))
        self._received = self._emitted = self._failed = self._late = 0
        self._found: list[_Emitted] = []
        self._dead: list[_Emitted] = []
        self._found_by = _By.TIMER if node.kind.logic.fires_outputs else _By.TUPLE
        self._dead_by = _By.TUPLE
        if interleaves(node):
            self._found_by = self._dead_by = _By.BOTH
        self.failed_at = 0

    def run(self, part: Slice, side: int) -> dict[str, Slice]:
        """What comes out because of a slice on one of the inputs, and its dead letters by the operator's name."""
        rises = _Rises(part, side, self._table, self._kind.logic.strict)
        # A tuple has no timer, but something that compares with timers, and is the same for all tasks.
        no_timer = (0 if part.marks is None or part.marks.after is None else part.marks.after, 0, b"")
        for number, value in enumerate(part.values):
            self.failed_at = part.position(number)
            self._take(rises.up_to(number))
            self._add(side, _Emitted(value, number, (self.failed_at, True, *no_timer)))
        self._take(rises.to_the_end())
        self._received += len(part.values)
        if part.marks is None:  # so nothing has fired
            return self._out(part, _By.TUPLE, _By.TUPLE)
        return self._out(part, self._found_by, self._dead_by)

    def close(self) -> dict[str, Slice]:
        """The streams have ended: everything that is open."""
        for side in range(self._kind.logic.sides):
            self._take([(0, one) for one in self._table.close(side)])
        return self._out(Slice(CLOSING, []), _By.TIMER, _By.TIMER)

    def _take(self, fired: list[tuple[int, Fired]]) -> None:
        for before, one in fired:
            given = _Emitted(one.key, 0, (before, False, *one.timer))
            if one.error is not None:
                self._fail(given, one.error)
            self._found += [given._replace(value=output) for output in one.outputs]

    def _add(self, side: int, given: _Emitted) -> None:
        kind, table, value = self._kind, self._table, given.value
        try:
            key, time = kind.keys[side].fn(value), kind.times[side](value)
            table.advance(side, time)  # it is there already; but what can't be compared fails here, as elsewhere
            self._found += [given._replace(value=output) for output in table.add(side, key, value, time)]
        except LateTuple as late:
            self._late += 1
            if kind.on_late == "dead-letter":
                self._dead.append(given._replace(value=dead_letter(self._node, value, late)))
            elif callable(kind.on_late):
                try:
                    kind.on_late(value)
                except BaseException as error:
                    self._fail(given, error)
        except BaseException as error:
            self._fail(given, error)

    def _fail(self, given: _Emitted, error: BaseException) -> None:
        letter = survived(self._flow, self._node, given.value, error)
        self._failed += 1
        if letter is not None:
            self._dead.append(given._replace(value=letter))

    def _out(self, part: Slice, found_by: _By, dead_by: _By) -> dict[str, Slice]:
        self._emitted += len(self._found)
        out = {"": _slice_of(part, self._found, found_by), self._node.name: _slice_of(part, self._dead, dead_by)}
        self._found, self._dead = [], []
        return out

    def keep(self) -> None:
        """Hand the changes to the store."""
        self._states.keep(self._table.take_changed())

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._node.name: (self._received, self._emitted, self._failed, self._late)}

    def shares(self) -> dict[str, float]:
        return {self._node.name: 1.0}


class _Rises:
    """How the watermark of one input rises in a slice, seen from those of its tuples that are this task's own."""

    def __init__(self, part: Slice, side: int, table: TimedTable, strict: bool) -> None:
        self._side = side
        self._table = table
        self._first_past = bisect_right if strict else bisect_left
        self._reached = 0
        self._marks: Sequence[Any] = ()
        self._limits: Sequence[int] = [0] * len(part.values)
        self._positions: Sequence[int] | None = None
        if part.marks is None:
            return
        if part.marks.rises is None:
            self._marks = [*part.marks.at, part.marks.after]
            self._limits = range(1, len(part.values) + 1)
        else:
            positions, self._marks = part.marks.rises
            limits: Any = np.searchsorted(positions, part.column()[0], side="right")
            self._limits, self._positions = limits.tolist(), positions.tolist()

    def up_to(self, number: int) -> list[tuple[int, Fired]]:
        """What fires before one of the task's tuples, and, if that is told, before which tuple of all."""
        return self._rise(self._limits[number])

    def to_the_end(self) -> list[tuple[int, Fired]]:
        return self._rise(len(self._marks))

    def _rise(self, limit: int) -> list[tuple[int, Fired]]:
        if self._positions is None:
            mark = self._marks[limit - 1] if limit else None
            return [] if mark is None else [(0, one) for one in self._table.rise(self._side, mark)]
        found: list[tuple[int, Fired]] = []
        while self._reached < limit:
            due = self._table.next_due()
            past = limit if due is None else self._first_past(self._marks, due, self._reached, limit)
            rise = min(past, limit - 1)
            fired = self._table.rise(self._side, self._marks[rise])
            found += [(self._positions[rise], one) for one in fired]
            self._reached = rise + 1
            if not fired and due is not None and self._table.next_due() == due:
                # The other input holds it back, and whatever is due after it.
                self._table.rise(self._side, self._marks[limit - 1])
                self._reached = limit
        return found


def _slice_of(part: Slice, found: list[_Emitted], by: _By) -> Slice:
    """Several of one tuple or timer are told apart by their own order."""
    values = [one.value for one in found]
    if by is _By.TUPLE:
        return part.with_outputs(values, [one.number for one in found])
    first = 0 if by is _By.BOTH else 2
    return slice_at(part.sort_key, [(*one.position[first:], at) for at, one in enumerate(found)], values)
