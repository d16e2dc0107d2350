"""The keyed join of two streams in event time: what one key does."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.operators.timed import LateTuple, TimedLogic
from penstock.operators.times import Span, Time

JoinKind = Literal["inner", "left", "outer"]
LEFT, RIGHT = 0, 1


@dataclass
class _Waiting:
    """A tuple that may still find a partner."""

    time: Time
    value: Any
    matched: bool = False


@dataclass
class _Sides:
    waiting: tuple[list[_Waiting], list[_Waiting]] = field(default_factory=lambda: ([], []))


def _time(waiting: _Waiting) -> Time:
    return waiting.time


class Join(TimedLogic):
    """Pairs of one key at most `within` apart; a tuple is late when it is behind the watermark of its own side."""

    sides = 2
    strict = True

    def __init__(self, within: Span, how: JoinKind) -> None:
        self._within = within
        self._how = how
        self._keeps = (how in ("left", "outer"), how == "outer")
        self.fires_outputs = any(self._keeps)

    @property
    def told(self) -> str:
        return f"{self._how} join within {self._within.seconds} s"

    def create(self) -> _Sides:
        return _Sides()

    def add(self, state: _Sides, side: int, value: Any, time: Time, watermark: Time | None) -> list[tuple[Any, Any]]:
        # Judged by its own side alone, so that the result does not depend on how the two sides interleave.
        if watermark is not None and time < watermark:
            raise LateTuple
        within = self._within.along(time)
        arrived = _Waiting(time, value)
        pairs = []
        others = state.waiting[1 - side]
        for other in others[bisect_left(others, time - within, key=_time) :]:
            if other.time > time + within:
                break
            arrived.matched = other.matched = True
            pairs.append((value, other.value) if side == LEFT else (other.value, value))
        insort(state.waiting[side], arrived, key=_time)
        return pairs

    def due(self, state: _Sides) -> Time | None:
        firsts = [waiting[0].time for waiting in state.waiting if waiting]
        if not firsts:
            return None
        first = min(firsts)
        return first + self._within.along(first)

    def fire(self, key: Hashable, state: _Sides, until: Time) -> list[tuple[Any, Any]]:
        lonely: list[tuple[Any, Any]] = []
        for side, waiting in enumerate(state.waiting):
            gone = 0
            while gone < len(waiting) and waiting[gone].time + self._within.along(until) <= until:
                lost = waiting[gone]
                if self._keeps[side] and not lost.matched:
                    lonely.append((lost.value, None) if side == LEFT else (None, lost.value))
                gone += 1
            del waiting[:gone]
        return lonely
