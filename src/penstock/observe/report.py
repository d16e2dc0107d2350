"""What a run has done, by operator: the only form in which counts leave an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.observe.arrivals import Arrivals


@dataclass(frozen=True)
class Held:
    """What the output of an operator with several replicas is waiting for: an earlier unit than those that are done."""

    serial: int
    seconds: float
    """Since a replica has taken it."""
    waiting: int
    """Units that are done and wait for it."""
    replica: int


@dataclass(frozen=True)
class OperatorReport:
    """The counts of one operator."""

    received: int = 0
    emitted: int = 0
    busy_seconds: float = 0.0
    replicas: int = 1
    failed: int = 0
    """Tuples that it skipped or sent to the dead letters."""
    late: int = 0
    """Tuples that came after their window had closed."""
    queue_length: int = 0
    """Tuples waiting on its inputs."""
    write_blocked_ratio: float = 0.0
    """The share of the time that it could not go on because a reader's queue was full."""
    held: Held | None = None
    """Which of its units holds up the others, at the moment."""
    cpu_seconds: float | None = None
    """For how many of its busy seconds it used a core, to the ticks in which systems count that; `None` where the
    engine can't tell."""


@dataclass(frozen=True)
class Latency:
    """Seconds from a tuple's entry to the end of everything it caused, over a sample of tuples.

    Processing is the part of it after the first operator has taken the tuple from its source's queue.
    """

    p50: float = 0.0
    p99: float = 0.0
    mean: float = 0.0
    processing_p50: float = 0.0
    processing_p99: float = 0.0
    processing_mean: float = 0.0

    @classmethod
    def of(cls, seconds: Sequence[float], processing_seconds: Sequence[float] = ()) -> Latency:
        """The percentiles and the mean of a sample.

        >>> latency = Latency.of([0.1, 0.2, 0.6], [0.05, 0.1, 0.3])
        >>> latency.p50, latency.p99, round(latency.mean, 3)
        (0.2, 0.6, 0.3)
        >>> latency.processing_p50, latency.processing_p99, round(latency.processing_mean, 3)
        (0.1, 0.3, 0.15)
        """
        return cls(*_summary(seconds), *_summary(processing_seconds))


def _summary(seconds: Sequence[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile, and the mean."""
    if not seconds:
        return 0.0, 0.0, 0.0
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return ordered[len(ordered) // 2], ordered[min(last, int(len(ordered) * 0.99))], sum(ordered) / len(ordered)


@dataclass(frozen=True)
class BatchReport:
    """One micro-batch: how long it took, how much it read, and what was left of each source when it was admitted."""

    number: int
    seconds: float
    rows: int
    left: Mapping[str, int]
    """Rows, or bytes where a source's positions are bytes; what a source can't know is not there."""


@dataclass(frozen=True)
class Simulation:
    """What only a simulation can see."""

    cores: int
    utilisation: float
    """The share of all cores' time in which something was done."""
    gil_utilisation: float
    """The share of the time in which some thread held the GIL; 0 where there is none."""
    waited_seconds: Mapping[str, float]
    """How long workers waited for each of the things that they share."""


@dataclass(frozen=True)
class LeftBehind:
    """An operator that did not come back when the run was ended at once, and the line of its code that it stands at."""

    operator: str
    where: str

    def __str__(self) -> str:
        return f"left behind: {self.operator} at {self.where}"


@dataclass(frozen=True)
class Report:
    """What a run has done; printed, it is a table."""

    flow: str
    engine: str
    elapsed_seconds: float
    operators: Mapping[str, OperatorReport]
    latency: Latency = Latency()
    decisions: Sequence[Any] = ()
    arrivals: Arrivals | None = field(default=None, repr=False)
    """What every driver loop saw of its inputs, where the engine was told to record it."""
    batches: Sequence[BatchReport] = ()
    """The last batches, on an engine that works in batches."""
    simulation: Simulation | None = None
    left_behind: Sequence[LeftBehind] = ()
    """What did not come back when the run was ended at once."""

    def __str__(self) -> str:
        head = f"flow {self.flow} on {self.engine}: {self.elapsed_seconds:.3f} s"
        if self.latency.p99:
            head += f", latency p50 {duration(self.latency.p50)}, p99 {duration(self.latency.p99)}"
        if self.batches:
            rate = sum(batch.rows for batch in self.batches) / max(1e-9, sum(batch.seconds for batch in self.batches))
            head += f", {self.batches[-1].number + 1:,} batches, {rate:,.0f} rows/s"
        return "\n".join([head, operators_table(self.operators), *map(str, self.left_behind)])


def operators_table(operators: Mapping[str, OperatorReport]) -> str:
    """The counts of all operators, with columns for trouble only where there was some."""
    columns = ["operator", "received", "emitted", "busy", "replicas"]
    columns += [name for name in ("failed", "late") if any(getattr(o, name) for o in operators.values())]
    rows = [columns]
    for name, counts in operators.items():
        cells = [name, f"{counts.received:,}", f"{counts.emitted:,}", duration(counts.busy_seconds)]
        cells += [str(counts.replicas), *(f"{getattr(counts, column):,}" for column in columns[5:])]
        rows.append(cells)
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    lines = []
    for row in rows:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  " + "  ".join([first, *others]))
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """
    >>> duration(0.00012), duration(0.25), duration(75)
    ('120 µs', '250 ms', '75.0 s')
    """
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
