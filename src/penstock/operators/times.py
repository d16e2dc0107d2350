"""Event time: what a user's `time=` function may return, seconds or a `datetime`, and lengths of either."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

Time = Any
"""Seconds since the epoch (a real number) or a `datetime`; one operator sees only one of the two."""

_NAIVE_EPOCH = datetime(1970, 1, 1)
_UTC_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Span:
    """A length of time, in seconds; it can be added to either kind of time.

    >>> Span.of(timedelta(minutes=1)).seconds
    60
    """

    seconds: float

    @classmethod
    def of(cls, length: float | timedelta, what: str = "length") -> Span:
        """Seconds or a `timedelta`, checked."""
        given: Any = length.total_seconds() if isinstance(length, timedelta) else length
        if isinstance(given, bool) or not isinstance(given, numbers.Real) or not math.isfinite(given):
            raise ValueError(f"{what} is a number of seconds or a timedelta, not {length!r}")
        seconds = float(given)
        return cls(int(seconds) if seconds.is_integer() else seconds)

    @property
    def is_whole(self) -> bool:
        return float(self.seconds).is_integer()

    def along(self, time: Time) -> Any:
        """This span in the unit of a given time."""
        if isinstance(time, datetime):
            return timedelta(seconds=self.seconds)
        return _as_written(self.seconds) if isinstance(time, Fraction) else self.seconds

    def starts_covering(self, time: Time, length: Span) -> list[Time]:
        """The multiples of this span since the epoch whose window of `length` holds `time`, the last one first.

        >>> Span(10).starts_covering(27, Span(20))
        [20, 10]
        >>> Span(3600).starts_covering(datetime(2026, 3, 1, 7, 45), Span(3600))
        [datetime.datetime(2026, 3, 1, 7, 0)]
        """
        every, extent = self.along(time), length.along(time)
        origin: Any = 0
        if isinstance(time, datetime):
            origin = _NAIVE_EPOCH if time.tzinfo is None else _UTC_EPOCH
            index = (time - origin) // every
        else:
            index = time // every
        starts = []
        while (start := origin + index * every) + extent > time:
            starts.append(start)
            index -= 1
        return starts


def exact_time(time: Time) -> Time:
    """A float as the fraction that its digits say, for multiples of 0.1 and the like, which floats miss.

    >>> exact_time(0.3) // Span(0.1).along(exact_time(0.3)), 0.3 // 0.1
    (3, 2.0)
    """
    return time if isinstance(time, datetime) else _as_written(time)


def shown_time(time: Time) -> Time:
    """A time as users know it."""
    return float(time) if isinstance(time, Fraction) else time


def _as_written(seconds: float) -> Fraction:
    return Fraction(repr(float(seconds)))


def checked_time(time: Time) -> Time:
    """What a user's `time=` function returned, or a `TypeError` that says what it should return."""
    if isinstance(time, datetime):
        return time
    if isinstance(time, numbers.Real) and not isinstance(time, bool) and math.isfinite(time):
        return time
    raise TypeError(f"the time= function returns seconds (a finite number) or a datetime, not {time!r}")
