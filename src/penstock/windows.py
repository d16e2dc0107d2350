"""`ps.windows`: where event-time windows begin and end.

Lengths are seconds or a `timedelta`; `time` returns a tuple's seconds since the epoch or its `datetime`. The watermark
is the largest time seen so far, minus `lateness`, in the order of the stream. A tuple whose windows have all closed is
late: `on_late="drop"` counts it, `"dead-letter"` sends it to `flow.dead_letters(name)`, a function is called with it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from penstock.errors import FlowError
from penstock.operators.times import Span, Time
from penstock.operators.windows import OnLate, WindowResult, WindowSpec

__all__ = ["WindowResult", "WindowSpec", "session", "sliding", "tumbling"]


def tumbling(
    length: float | timedelta,
    time: Callable[[Any], Time],
    lateness: float | timedelta = 0,
    on_late: OnLate = "drop",
) -> WindowSpec:
    """Windows side by side, each beginning at a multiple of `length` since the epoch.

    >>> tumbling(60, time=lambda click: click["ts"]).length.seconds
    60
    """
    span = _span("tumbling", "length", length)
    return _spec("tumbling", span, span, time, lateness, on_late)


def sliding(
    length: float | timedelta,
    every: float | timedelta,
    time: Callable[[Any], Time],
    lateness: float | timedelta = 0,
    on_late: OnLate = "drop",
) -> WindowSpec:
    """Windows of one length that overlap: one begins at every multiple of `every` since the epoch.

    >>> sliding(60, 10, time=lambda click: click["ts"]).every.seconds
    10
    """
    return _spec(
        "sliding", _span("sliding", "length", length), _span("sliding", "every", every), time, lateness, on_late
    )


def session(
    gap: float | timedelta,
    time: Callable[[Any], Time],
    lateness: float | timedelta = 0,
    on_late: OnLate = "drop",
) -> WindowSpec:
    """Windows that last as long as a key's tuples come less than `gap` apart; they end `gap` after the last.

    >>> session(timedelta(minutes=30), time=lambda click: click["ts"]).length.seconds
    1800
    """
    return _spec("session", _span("session", "gap", gap), None, time, lateness, on_late)


def _spec(
    what: str,
    length: Span,
    every: Span | None,
    time: Callable[[Any], Time],
    lateness: float | timedelta,
    on_late: OnLate,
) -> WindowSpec:
    if not callable(time):
        raise FlowError(f"{what} window: time= is a function from a tuple to its time, not {time!r}")
    if on_late not in ("drop", "dead-letter") and not callable(on_late):
        raise FlowError(f"{what} window: on_late= is 'drop', 'dead-letter' or a function, not {on_late!r}")
    return WindowSpec(time, _span(what, "lateness", lateness, at_least_zero=True), on_late, length, every)


def _span(what: str, name: str, value: float | timedelta, at_least_zero: bool = False) -> Span:
    try:
        span = Span.of(value, name)
    except ValueError as error:
        raise FlowError(f"{what} window: {error}") from None
    if span.seconds < 0 or (span.seconds == 0 and not at_least_zero):
        raise FlowError(f"{what} window: {name}={value!r} is too small, it must be more than 0")
    return span
