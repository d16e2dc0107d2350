"""Simulated micro-batches: what the Spark engine would make of a flow, stage by stage.

While a batch is computed no time passes; what it would have taken is worked out from its plan and the number of tasks
in each stage afterwards, and then the clock moves on. Sources pause between two batches, as they do for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.clock import FakeClock
from penstock.engines.batch_meter import SlotSupply
from penstock.engines.simulated.stages import Stages
from penstock.observe.report import BatchReport, Latency, OperatorReport
from penstock.runtime.cells.sources import SourceCell
from penstock.runtime.running.logbook import LastLatencies
from penstock.runtime.running.registry import Registry


class Executors:
    """How many tasks can run at once; more of them come some time after they are asked for.

    >>> executors = Executors(2, most=8, start_seconds=6.0)
    >>> executors.request(4, now=10.0)
    >>> executors.request(5, now=12.0)
    >>> executors.slots(15.0), executors.slots(16.0), executors.slots(18.0)
    (2, 4, 5)
    >>> executors.request(1, now=20.0)
    >>> executors.slots(20.0)
    1
    """

    def __init__(self, slots: int, most: int, start_seconds: float) -> None:
        self._slots = slots
        self._most = most
        self._start_seconds = start_seconds
        self._coming: list[tuple[int, float]] = []
        """How many there will be, and from when on."""

    def request(self, slots: int, now: float) -> None:
        """Fewer at once, more when they have started; what was asked for before comes when it would have come."""
        self._slots = min(self.slots(now), slots)
        coming = [(min(count, slots), ready) for count, ready in self._coming if self._slots < slots]
        self._coming = [*coming, (slots, now + self._start_seconds)]

    def slots(self, now: float) -> int:
        self._slots = max(self._slots, *(count for count, ready in self._coming if now >= ready), 0)
        self._coming = [(count, ready) for count, ready in self._coming if now < ready and count > self._slots]
        return self._slots

    def supply(self, now: float) -> SlotSupply:
        """What there is, what may be asked for, and what was."""
        slots = self.slots(now)
        requested = max((count for count, _ in self._coming), default=slots)
        return SlotSupply(slots, least=1, most=self._most, awaited=requested - slots)


class MicroBatches:
    """Pauses the sources, waits until all that they have read is out, and says how long that has taken.

    Between two batches tasks, slots and what a batch reads can be changed, as on Spark.
    """

    def __init__(
        self,
        sources: Sequence[str],
        stages: Stages,
        clock: FakeClock,
        executors: Executors,
        trigger_seconds: float,
        most_rows: int,
    ) -> None:
        self._sources = sources
        self._stages = stages
        self._clock = clock
        self._executors = executors
        self._trigger_seconds = trigger_seconds
        self.most_rows = most_rows
        """How many tuples a batch may read."""
        self._before = self._settled = 0
        """What sources had read when they last asked, and when the last batch was over."""
        self._began = 0.0
        self._born: list[float] = []
        self._latencies = LastLatencies()
        self.batches: list[BatchReport] = []
        self._on_end: Callable[[float], None] = lambda seconds: None

    def call_after_each(self, on_end: Callable[[float], None]) -> None:
        """When a batch is over, tell how long it took."""
        self._on_end = on_end

    def note(self, seconds: float) -> None:
        """A sink has a tuple: its latency is what it is when the batch is out."""
        self._born.append(self._clock.now() - seconds)

    def note_processing(self, seconds: float) -> None:
        """Its batch takes as long as it takes, whatever that is."""

    def measured(self) -> Latency:
        """Of the tuples that are out."""
        return self._latencies.measured()

    def opened(self, registry: Registry) -> None:
        self._registry = registry

    def is_due(self) -> bool:
        """Asked when a source has read something, or finds that no more has come."""
        rows = self._read()
        is_idle, self._before = rows == self._before, rows
        return rows - self._settled >= (1 if is_idle else self.most_rows)

    def _read(self) -> int:
        return sum(self._registry.cell_of(name).figures.passed()[0] for name in self._sources)

    def take(self, registry: Registry) -> None:
        """Everything that was read is out: a batch is over."""
        rows = self._read() - self._settled
        if not rows:
            return
        seconds = self._stages.seconds(registry.counts(), self._executors.slots(self._began))
        self._clock.move_to(self._began + seconds)
        for born in self._born:
            self._latencies.note(self._clock.now() - born)
            self._latencies.note_processing(seconds)
        self.batches.append(BatchReport(len(self.batches), seconds, rows, {}))
        self._on_end(seconds)
        self._clock.move_to(self._began + max(seconds, self._trigger_seconds))
        self._began, self._settled, self._born = self._clock.now(), self._settled + rows, []
        self._stages.begin()

    # What can be changed between two batches, and what is told of them

    @property
    def tasks(self) -> dict[int, int]:
        return self._stages.tasks

    def admit_rows(self, rows: int) -> None:
        self.most_rows = rows

    def slots(self) -> SlotSupply:
        return self._executors.supply(self._clock.now())

    def set_slots(self, count: int) -> bool:
        self._executors.request(count, self._clock.now())
        return True

    def counts(self) -> Mapping[str, OperatorReport]:
        return self._stages.charged(self._registry.counts())

    def hottest(self) -> Mapping[int, float]:
        return self._stages.hottest()

    def offered(self) -> float | None:
        counts = [cell.offered() for cell in self._registry.cells if isinstance(cell, SourceCell)]
        return None if not counts or None in counts else sum(count for count in counts if count is not None)
