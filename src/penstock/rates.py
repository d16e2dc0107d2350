"""`ps.rates`: how many tuples a second a source offers, as time goes by.

>>> import penstock as ps
>>> source = ps.sources.generate(lambda n: n, rate=ps.rates.steps((0, 100), (60, 1000)))
"""

from __future__ import annotations

import csv
import itertools
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from penstock.errors import FlowError

__all__ = ["Rate", "constant", "parse", "seasonal", "spikes", "steps", "trace"]

_TOGETHER_SECONDS = 0.01
Segment = tuple[float, float]
"""So many seconds at so many tuples a second."""


class Rate:
    """A rate that is constant for a while, then another one, and so on."""

    def __init__(self, segments: Callable[[], Iterable[Segment]], words: str) -> None:
        self._segments = segments
        self._words = words
        self._left: Iterator[Segment] = iter(segments())
        self._times = [0.0]
        self._counts = [0.0]
        self._rates: list[float] = []

    def __str__(self) -> str:
        return self._words

    def __repr__(self) -> str:
        return f"<rate: {self._words}>"

    def __reduce__(self) -> tuple[Callable[..., Rate], tuple[Sequence[Segment], str]]:
        return _of_list, (list(itertools.islice(self._segments(), 100_000)), self._words)

    def at(self, seconds: float) -> float:
        """Tuples a second at that time.

        >>> steps((0, 100), (60, 1000)).at(61)
        1000
        """
        self._extend(lambda: self._times[-1] <= seconds)
        return self._rates[min(bisect_right(self._times, seconds), len(self._rates)) - 1]

    def count_by(self, seconds: float) -> float:
        """How many tuples have been offered by that time.

        >>> steps((0, 100), (60, 1000)).count_by(61)
        7000.0
        """
        self._extend(lambda: self._times[-1] <= seconds)
        segment = min(bisect_right(self._times, seconds), len(self._rates)) - 1
        return self._counts[segment] + (seconds - self._times[segment]) * self._rates[segment]

    def time_of(self, count: float) -> float:
        """When so many tuples have been offered; infinity if that never happens.

        >>> steps((0, 100), (60, 1000)).time_of(7000)
        61.0
        """
        self._extend(lambda: self._counts[-1] <= count)
        segment = min(bisect_right(self._counts, count), len(self._rates)) - 1
        if not self._rates[segment]:
            return math.inf
        return self._times[segment] + (count - self._counts[segment]) / self._rates[segment]

    def due(self, count: int, seconds: float) -> int:
        """How many tuples after the first `count` can be taken together at that time: those that came with the first.

        >>> constant(1000).due(5, seconds=0.0072), constant(1000).due(5, seconds=60)
        (3, 11)
        """
        until = min(seconds, self.time_of(count) + _TOGETHER_SECONDS)
        # At least the one that is due: a product of floats may miss it.
        return max(1, int(self.count_by(until)) + 1 - count)

    def _extend(self, is_short: Callable[[], bool]) -> None:
        while is_short():
            seconds, rate = next(self._left, (math.inf, 0.0))
            if seconds == math.inf:
                # The last one goes on for ever; there is nothing to add up behind it.
                if len(self._rates) < len(self._times):
                    self._rates.append(rate)
                return
            self._times.append(self._times[-1] + seconds)
            self._counts.append(self._counts[-1] + seconds * rate)
            self._rates.append(rate)


def _of_list(segments: Sequence[Segment], words: str) -> Rate:
    return Rate(lambda: segments, words)


def constant(rate: float) -> Rate:
    """Always the same.

    >>> constant(100).time_of(50)
    0.5
    """
    return Rate(lambda: [(math.inf, _checked(rate))], f"{rate:,g} a second")


def steps(*steps: tuple[float, float]) -> Rate:
    """From each time (in seconds) on, another rate; the last one stays.

    >>> steps((0, 10), (5, 0), (10, 20)).count_by(11)
    70.0
    """
    times = [time for time, _ in steps]
    if not steps or times[0] != 0 or times != sorted(times):
        raise FlowError(f"steps: (seconds, rate) pairs that begin at 0 and go forward, not {steps!r}")
    lengths = [after - before for before, after in itertools.pairwise(times)] + [math.inf]
    segments = [(length, _checked(rate)) for length, (_, rate) in zip(lengths, steps, strict=True)]
    words = ", then ".join(f"{rate:,g} a second from {time:g} s on" for time, rate in steps)
    return Rate(lambda: segments, words)


def spikes(base: float, peak: float, every: float, lasting: float) -> Rate:
    """A base rate with a peak of some seconds at the end of every so many.

    >>> [spikes(10, 100, every=60, lasting=5).at(second) for second in (0, 54, 56, 61)]
    [10, 10, 100, 10]
    """
    if not 0 < lasting < every:
        raise FlowError(f"spikes: 0 < lasting < every must hold, not lasting={lasting!r}, every={every!r}")
    segments = [(every - lasting, _checked(base)), (lasting, _checked(peak))]
    return Rate(
        lambda: itertools.cycle(segments), f"{base:,g} a second, {peak:,g} for {lasting:g} s in every {every:g} s"
    )


def seasonal(mean: float, amplitude: float, period: float) -> Rate:
    """Up and down like the hours of a day, in a hundred steps.

    >>> rate = seasonal(mean=100, amplitude=50, period=100)
    >>> round(rate.at(25)), round(rate.at(75)), round(rate.count_by(100))
    (150, 50, 10000)
    """
    if not 0 <= amplitude <= mean or period <= 0:
        raise FlowError(f"seasonal: 0 <= amplitude <= mean and period > 0 must hold, not {mean}, {amplitude}, {period}")
    step = period / 100
    segments = [(step, mean + amplitude * math.sin(2 * math.pi * (number + 0.5) / 100)) for number in range(100)]
    return Rate(lambda: itertools.cycle(segments), f"{mean:,g} ± {amplitude:,g} a second with a period of {period:g} s")


def trace(recorded: str | os.PathLike[str] | Iterable[tuple[float, float]], repeat: bool = False) -> Rate:
    """A recorded one: (seconds, rate) pairs, or a CSV file of them; each rate holds until the next time.

    >>> trace([(0, 5), (10, 8), (20, 0)]).count_by(30)
    130.0
    """
    where = "the trace"
    if isinstance(recorded, str | os.PathLike):
        where = os.fspath(recorded)
        try:
            with Path(recorded).open(newline="") as file:
                rows = [row for row in csv.reader(file) if row]
        except OSError as error:
            raise FlowError(f"trace {where}: {error.strerror}") from error
        try:
            points = [(float(row[0]), float(row[1])) for row in rows[_header_rows(rows) :]]
        except (ValueError, IndexError) as error:
            raise FlowError(f"trace {where}: each line has a time in seconds and a rate ({error})") from error
    else:
        points = [(float(time), float(rate)) for time, rate in recorded]
    if not points or points[0][0] != 0 or points != sorted(points, key=lambda point: point[0]):
        raise FlowError(f"trace: {where} has to begin at 0 seconds and go forward")
    if not repeat:
        return Rate(steps(*points)._segments, f"as recorded in {where}")
    segments = [(after - time, rate) for (time, rate), (after, _) in itertools.pairwise(points)]
    if not segments:
        raise FlowError(f"trace: {where} has one point; to repeat it needs a second one that says when it ends")
    return Rate(lambda: itertools.cycle(segments), f"as recorded in {where}, again and again")


def parse(text: str) -> Rate:
    """What a command line says: a number, `name:numbers`, or a CSV file.

    >>> parse("250").at(0), parse("spikes:10,100,60,5").at(58)
    (250.0, 100.0)
    """
    name, _, numbers = text.partition(":")
    try:
        if not numbers:
            return constant(float(text))
    except ValueError:
        return trace(text)
    try:
        given = [float(number) for number in numbers.split(",")]
        match name:
            case "spikes":
                return spikes(*given)
            case "seasonal":
                return seasonal(*given)
            case "steps":
                return steps(*zip(given[::2], given[1::2], strict=True))
    except (TypeError, ValueError) as error:
        raise FlowError(f"rate {text!r}: {error}") from error
    raise FlowError(
        f"rate {text!r}: a number, a CSV file of seconds and rates, steps:0,100,60,1000 (seconds and rate in turn), "
        "spikes:base,peak,every,lasting or seasonal:mean,amplitude,period"
    )


def _header_rows(rows: list[list[str]]) -> int:
    try:
        float(rows[0][0])
    except (ValueError, IndexError):
        return 1
    return 0


def _checked(rate: float) -> float:
    if rate < 0 or rate != rate:
        raise FlowError(f"a rate is a number of tuples a second, not {rate!r}")
    return rate
