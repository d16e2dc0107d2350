"""What a run writes down about itself on its way, and the report that is made of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.observe.arrivals import Arrivals, Sight
from penstock.observe.journal import Decision
from penstock.observe.report import Latency, LeftBehind, OperatorReport, Report

_KEPT_LATENCIES = 10_000


class Latencies(Protocol):
    """Told by sinks how long tuples were under way."""

    def note(self, seconds: float) -> None:
        """A tuple is out."""
        ...

    def note_processing(self, seconds: float) -> None:
        """The same without the time that it has waited in its source's queue."""
        ...

    def measured(self) -> Latency:
        """What the report says."""
        ...


class LastLatencies:
    """The latest ones.

    >>> latencies = LastLatencies()
    >>> latencies.note(0.25)
    >>> latencies.measured().p50
    0.25
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT_LATENCIES)
        self._processing_seconds: deque[float] = deque(maxlen=_KEPT_LATENCIES)
        self.note = self._seconds.append
        self.note_processing = self._processing_seconds.append

    def measured(self) -> Latency:
        return Latency.of(tuple(self._seconds), tuple(self._processing_seconds))


class Logbook:
    """Arrivals, decisions and latencies of one run, and when it began."""

    def __init__(self, flow: str, now: Callable[[], float], latencies: Latencies, records_arrivals: bool) -> None:
        self.arrivals: dict[str, list[Sight]] = {}
        self.decisions: list[Decision] = []
        self.latencies = latencies
        self.flow = flow
        self._now = now
        self._started = now()
        self._records_arrivals = records_arrivals

    def seconds(self) -> float:
        """Since the run began."""
        return self._now() - self._started

    def share_of_time(self, seconds: float) -> float:
        """How much of the time since the run began that is, at most all of it."""
        elapsed = self.seconds()
        return min(1.0, seconds / elapsed) if elapsed > 0 else 0.0

    def report(self, engine: str, operators: Mapping[str, OperatorReport], left_behind: Sequence[LeftBehind]) -> Report:
        """All of it, as it is now."""
        arrivals = None
        if self._records_arrivals:
            arrivals = Arrivals({loop: tuple(sights) for loop, sights in self.arrivals.items()})
        return Report(
            self.flow,
            engine,
            self.seconds(),
            operators,
            self.latencies.measured(),
            tuple(self.decisions),
            arrivals,
            left_behind=tuple(left_behind),
        )
