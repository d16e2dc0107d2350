"""Event-time windows: how tuples fall into them, and what one key does with its open ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from penstock.operators.timed import LateTuple, TimedLogic
from penstock.operators.times import Span, Time, shown_time

OnLate = Literal["drop", "dead-letter"] | Callable[[Any], object]


class WindowResult(NamedTuple):
    """What a window gives when it closes: `start <= time < end` holds for everything in it."""

    key: Any
    start: Any
    end: Any
    value: Any


@dataclass(frozen=True)
class WindowSpec:
    """Where windows begin and end, and when they close; made by `ps.windows`."""

    time: Callable[[Any], Time]
    lateness: Span
    on_late: OnLate
    length: Span
    every: Span | None
    """`None` makes it a session window, whose gap is `length`."""


@dataclass(frozen=True)
class Aggregate:
    """How the tuples of a window become its value."""

    init: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    """Joins two accumulators; without it, sessions keep their tuples until they close."""
    told: str = "aggregate"
    """What it makes of them, in a word."""

    def finished(self, accumulator: Any) -> Any:
        return accumulator if self.finish is None else self.finish(accumulator)


def _count(count: int, _value: Any) -> int:
    return count + 1


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


COUNT = Aggregate(init=int, add=_count, merge=operator.add, told="count")
COLLECT = Aggregate(init=list, add=_append, told="list")


def window_logic(spec: WindowSpec, aggregate: Aggregate) -> TimedLogic:
    """The logic of one key under this specification."""
    if spec.every is None:
        return SessionWindows(spec.length, aggregate)
    return FixedWindows(spec.length, spec.every, aggregate)


class FixedWindows(TimedLogic):
    """Tumbling and sliding windows; the state is an accumulator for each open window, by its start."""

    def __init__(self, length: Span, every: Span, aggregate: Aggregate) -> None:
        self._length = length
        self._every = every
        self._aggregate = aggregate
        self.exact = not (length.is_whole and every.is_whole)

    @property
    def told(self) -> str:
        every = "" if self._every == self._length else f" every {self._every.seconds} s"
        return f"{self._aggregate.told} of windows of {self._length.seconds} s{every}"

    def create(self) -> dict[Time, Any]:
        return {}

    def add(self, state: dict[Time, Any], side: int, value: Any, time: Time, watermark: Time | None) -> Sequence[Any]:
        starts = self._every.starts_covering(time, self._length)
        length = self._length.along(time)
        still_open = [start for start in starts if watermark is None or start + length > watermark]
        if starts and not still_open:
            raise LateTuple
        # Computed first, stored after: a function that raises leaves no window with half of the tuple.
        added = {}
        for start in still_open:
            accumulator = state[start] if start in state else self._aggregate.init()
            added[start] = self._aggregate.add(accumulator, value)
        state.update(added)
        return ()

    def due(self, state: dict[Time, Any]) -> Time | None:
        if not state:
            return None
        start = min(state)
        return start + self._length.along(start)

    def fire(self, key: Hashable, state: dict[Time, Any], until: Time) -> list[WindowResult]:
        results = []
        for start in sorted(state):
            end = start + self._length.along(start)
            if end > until:
                break
            value = self._aggregate.finished(state.pop(start))
            results.append(WindowResult(key, shown_time(start), shown_time(end), value))
        return results


@dataclass
class _Session:
    start: Time
    end: Time
    content: Any
    """An accumulator where two can be merged, else the tuples with their arrival numbers."""


class _Sessions:
    """The state of one key: its open sessions, and how many tuples have come."""

    def __init__(self) -> None:
        self.open: list[_Session] = []
        self.arrivals = 0

    def arrive(self) -> int:
        """One more tuple has come; its number."""
        self.arrivals += 1
        return self.arrivals

    def replace(self, gone: Sequence[_Session], by: _Session) -> None:
        """Some sessions have become one."""
        left = [session for session in self.open if session not in gone]
        self.open = sorted([*left, by], key=lambda session: session.start)

    def take_ended(self, until: Time) -> list[_Session]:
        """Let go of those that have ended by then."""
        ended = [session for session in self.open if session.end <= until]
        self.open = [session for session in self.open if session.end > until]
        return ended


class SessionWindows(TimedLogic):
    """Windows that end when nothing came for `gap`; a tuple exactly `gap` after the last begins a new one."""

    def __init__(self, gap: Span, aggregate: Aggregate) -> None:
        self._gap = gap
        self._aggregate = aggregate

    @property
    def told(self) -> str:
        return f"{self._aggregate.told} of sessions with a gap of {self._gap.seconds} s"

    def create(self) -> _Sessions:
        return _Sessions()

    def add(self, state: _Sessions, side: int, value: Any, time: Time, watermark: Time | None) -> Sequence[Any]:
        end = time + self._gap.along(time)
        touching = [session for session in state.open if session.start < end and time < session.end]
        if not touching and watermark is not None and end <= watermark:
            raise LateTuple
        number = state.arrive()
        content = self._content(touching)
        if self._aggregate.merge is None:
            content.append((number, value))
        else:
            content = self._aggregate.add(content, value)
        if touching:
            time, end = min(time, touching[0].start), max(end, touching[-1].end)
        state.replace(touching, _Session(time, end, content))
        return ()

    def _content(self, sessions: list[_Session]) -> Any:
        """What some sessions hold together."""
        merge = self._aggregate.merge
        if not sessions:
            return [] if merge is None else self._aggregate.init()
        first, *rest = sessions
        content = first.content
        for session in rest:
            content = content + session.content if merge is None else merge(content, session.content)
        return content

    def due(self, state: _Sessions) -> Time | None:
        return min((session.end for session in state.open), default=None)

    def fire(self, key: Hashable, state: _Sessions, until: Time) -> list[WindowResult]:
        return [WindowResult(key, s.start, s.end, self._value(s.content)) for s in state.take_ended(until)]

    def _value(self, content: Any) -> Any:
        if self._aggregate.merge is not None:
            return self._aggregate.finished(content)
        accumulator = self._aggregate.init()
        for _, value in sorted(content, key=operator.itemgetter(0)):
            accumulator = self._aggregate.add(accumulator, value)
        return self._aggregate.finished(accumulator)
