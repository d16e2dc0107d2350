"""Event time: the only arithmetic on what a user's `time=` function returns, be it seconds or a `datetime`."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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

    def along(self, time: Time) -> Any:
        """This span in the unit of a given time."""
        return timedelta(seconds=self.seconds) if isinstance(time, datetime) else self.seconds

    def starts_covering(self, time: Time, length: Span) -> list[Time]:
        """The multiples of this span since the epoch whose window of `length` holds `time`, the last one first.

        >>> Span(10).starts_covering(27, Span(20)), Span(0.1).starts_covering(1.0, Span(0.1))
        ([20, 10], [1.0])
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
            # Floor division of floats may miss by one (1.0 // 0.1 is 9.0): a time is never outside its own window.
            if (index + 1) * every <= time:
                index += 1
        starts = []
        while (start := origin + index * every) + extent > time:
            starts.append(start)
            index -= 1
        return starts


def checked_time(time: Time) -> Time:
    """What a user's `time=` function returned, or a `TypeError` that says what it should return."""
    if isinstance(time, datetime):
        return time
    if isinstance(time, numbers.Real) and not isinstance(time, bool) and math.isfinite(time):
        return time
    raise TypeError(f"the time= function returns seconds (a finite number) or a datetime, not {time!r}")
