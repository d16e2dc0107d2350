"""Event-time state: the only code in which timers fire, in an order that no engine can change."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from penstock.operators.kept import Changed, Kept, Touched, changed_of
from penstock.operators.times import Span, Time, checked_time, exact_time, shown_time
from penstock.ordering.keys import firing_order, key_bytes


class LateTuple(Exception):
    """A tuple came after the watermark had closed the window that it belongs to."""


class TimedLogic(ABC):
    """What one key does in event time; it is given its state, and knows neither watermark nor other keys.

    A timer is due when the watermark has reached it (`strict=False`) or passed it (`strict=True`).
    """

    sides: int = 1
    strict: bool = False
    exact: bool = False
    """Whether times are to be exact fractions, because floats would miss multiples of its spans."""
    fires_outputs: bool = True
    """Whether timers give outputs; otherwise they only let go of what is no longer needed."""

    @property
    @abstractmethod
    def told(self) -> str:
        """What it is, in words that change when states of another one can't be gone on with."""

    @abstractmethod
    def create(self) -> Any:
        """The state of a key that was never seen."""

    @abstractmethod
    def add(self, state: Any, side: int, value: Any, time: Time, watermark: Time | None) -> Sequence[Any]:
        """Take a value in and return what comes out at once; `LateTuple` if it came after `watermark`."""

    @abstractmethod
    def due(self, state: Any) -> Time | None:
        """The earliest timer of this key."""

    @abstractmethod
    def fire(self, key: Hashable, state: Any, until: Time) -> Sequence[Any]:
        """Take out of the state and return what is due at `until`."""


Timer = tuple[Time, int, bytes]
"""When it is due, and whose it is: its order among all timers."""


class Fired(NamedTuple):
    """What a key's timer gave, or why it gave nothing."""

    timer: Timer
    key: Hashable
    outputs: Sequence[Any]
    error: BaseException | None = None


class Entry:
    """What is kept of a key."""

    __slots__ = ("key", "scheduled", "state")

    def __init__(self, key: Hashable, state: Any) -> None:
        self.key = key
        self.state = state
        self.scheduled: Time | None = None

    def schedule(self, due: Time | None) -> None:
        """From now on, this is its earliest timer."""
        self.scheduled = due


class TimedTable:
    """All keys of one timed operator: the watermark of each side, the states, and the timers in firing order.

    What fires together comes out sorted by (timer, key hash, key bytes). `lateness` of `None` means that nothing is
    ever late, and nothing fires before its input ends.
    """

    def __init__(self, logic: TimedLogic, lateness: Span | None, knows_changes: bool = False) -> None:
        self._logic = logic
        self._lateness = lateness
        self._watermarks: list[Time | None] = [None] * logic.sides
        self._closed = [False] * logic.sides
        self._entries: dict[bytes, Entry] = {}
        self._timers: list[Timer] = []
        self.touched: Touched | None = Touched() if knows_changes else None
        """Where changes are asked for."""

    def advance(self, side: int, time: Time) -> list[Fired]:
        """A value of this time is next on this side: return what fires because of it, before it is added."""
        mark = self.mark_of(time)
        return [] if mark is None else self.rise(side, mark)

    def mark_of(self, time: Time) -> Time | None:
        """How far a value of this time lets the watermark rise."""
        time = self._normal(time)
        return None if self._lateness is None else time - self._lateness.along(time)

    def rise(self, side: int, mark: Time) -> list[Fired]:
        """Let the watermark of a side rise to a mark, if it is below; return what fires."""
        current = self._watermarks[side]
        if current is not None and mark <= current:
            return []
        self._watermarks[side] = mark
        return self._fire()

    def next_due(self) -> Time | None:
        """No timer is due before this."""
        return self._timers[0][0] if self._timers else None

    def add(self, side: int, key: Hashable, value: Any, time: Time) -> Sequence[Any]:
        """Take a value in, after `advance`; return what it gives at once, or raise `LateTuple`."""
        time = self._normal(time)
        identity = key_bytes(key)
        entry = self._entry(identity) or Entry(key, self._logic.create())
        try:
            outputs = self._logic.add(entry.state, side, value, time, self._watermarks[side])
        except LateTuple:
            watermark = shown_time(self._watermarks[side])
            raise LateTuple(f"its time is {shown_time(time)}, the watermark {watermark}") from None
        self._schedule(identity, entry)
        if entry.scheduled is not None:
            self._entries[identity] = entry
            if self.touched is not None:
                self.touched.came(identity)  # unless it was touched before
        return outputs

    def close(self, side: int) -> list[Fired]:
        """This side has ended; return what was waiting for it."""
        self._closed[side] = True
        return self._fire()

    def snapshot(self) -> Kept:
        """Everything that it remembers: an entry for each key; the watermarks, and which inputs have ended."""
        return Kept(self._entries, self._sides())

    def restore(self, kept: Kept) -> None:
        self._entries = dict(kept.by_key)
        self._watermarks, self._closed = map(list, kept.rest)
        self._timers = [(entry.scheduled, *firing_order(identity)) for identity, entry in self._entries.items()]
        heapq.heapify(self._timers)

    def take_changed(self) -> Changed:
        """The same of the keys that were touched since this was last called."""
        assert self.touched is not None
        touched, self.touched = self.touched, Touched()
        return changed_of(touched, self._entries, self._sides())

    def _sides(self) -> Any:
        return list(self._watermarks), list(self._closed)

    def _entry(self, identity: bytes) -> Entry | None:
        """What there is of a key; the caller may change it."""
        entry = self._entries.get(identity)
        if entry is not None and self.touched is not None:
            self.touched.changed(identity)
        return entry

    def _normal(self, time: Time) -> Time:
        checked_time(time)
        return exact_time(time) if self._logic.exact else time

    def _schedule(self, identity: bytes, entry: Entry) -> None:
        due = self._logic.due(entry.state)
        # A timer that moved later is found when the earlier one comes up: no entry is pushed for every value.
        if due is not None and (entry.scheduled is None or due < entry.scheduled):
            entry.schedule(due)
            heapq.heappush(self._timers, (due, *firing_order(identity)))

    def _fire(self) -> list[Fired]:
        """Everything that is due; a key that fails keeps no other from firing."""
        found: list[Fired] = []
        open_marks: list[Any] = [mark for mark, closed in zip(self._watermarks, self._closed) if not closed]
        if None in open_marks:
            return found
        watermark = min(open_marks) if open_marks else None  # every side has ended: all timers are due
        while self._timers and (watermark is None or self._is_due(self._timers[0][0], watermark)):
            timer = heapq.heappop(self._timers)
            due, _, identity = timer
            entry = self._entry(identity)
            if entry is None or entry.scheduled != due:
                continue
            entry.schedule(None)
            try:
                found.append(Fired(timer, entry.key, self._logic.fire(entry.key, entry.state, due)))
            except BaseException as error:
                found.append(Fired(timer, entry.key, (), error))
            self._schedule(identity, entry)
            if entry.scheduled is None:
                del self._entries[identity]
                if self.touched is not None:
                    self.touched.went(identity)
        return found

    def _is_due(self, timer: Time, watermark: Time) -> bool:
        return bool(timer < watermark if self._logic.strict else timer <= watermark)
