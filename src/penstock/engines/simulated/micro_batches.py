"""Simulated micro-batches: what the Spark engine would make of a flow, stage by stage.

While a batch is computed no time passes; what it would have taken is worked out from its plan afterwards, and then the
clock moves on. Sources pause between two batches, as they do for a checkpoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from penstock.clock import FakeClock
from penstock.engines.simulated.machine import Machine
from penstock.observe.report import BatchReport, Latency
from penstock.plan.groups import Plan, Spread
from penstock.runtime.running.logbook import LastLatencies
from penstock.runtime.running.registry import Registry


class Ledger:
    """What has been spent by whom, since it was last asked; spending takes no time."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self.total_by_operator: dict[str, float] = defaultdict(float)

    def spend(self, operator: str, seconds: float) -> None:
        self._seconds[operator] += seconds
        self.total_by_operator[operator] += seconds

    def settle(self) -> Mapping[str, float]:
        settled, self._seconds = self._seconds, defaultdict(float)
        return settled


class Executors:
    """How many tasks can run at once; more of them come some time after they are asked for.

    >>> executors = Executors(2, start_seconds=6.0)
    >>> executors.request(4, now=10.0)
    >>> executors.slots(15.0), executors.slots(16.0)
    (2, 4)
    >>> executors.request(1, now=20.0)
    >>> executors.slots(20.0)
    1
    """

    def __init__(self, slots: int, start_seconds: float) -> None:
        self._slots = slots
        self._start_seconds = start_seconds
        self._requested = (slots, 0.0)

    @property
    def requested(self) -> int:
        return self._requested[0]

    def request(self, slots: int, now: float) -> None:
        """Fewer at once, more when they have started."""
        self._slots = min(self.slots(now), slots)
        self._requested = (slots, now + self._start_seconds)

    def slots(self, now: float) -> int:
        slots, ready = self._requested
        if now >= ready:
            self._slots = slots
        return self._slots


class MicroBatches:
    """Pauses the sources, waits until all that they have read is out, and says how long that has taken."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        clock: FakeClock,
        ledger: Ledger,
        executors: Executors,
        trigger_seconds: float,
        most_rows: int,
    ) -> None:
        self._levels = [
            [(group.spread, [node.name for node in group.nodes]) for group in groups] for groups in plan.levels
        ]
        self._machine = machine
        self._clock = clock
        self._ledger = ledger
        self._executors = executors
        self._trigger_seconds = trigger_seconds
        self.most_rows = most_rows
        self._sources = [node.name for node in plan.graph.sources]
        self._before = self._settled = 0
        """What sources had read when they last asked, and when the last batch was over."""
        self._began = 0.0
        self._received: dict[str, int] = {}
        self._born: list[float] = []
        self._latencies = LastLatencies()
        self.used_seconds = 0.0
        """Of all slots together."""
        self.batches: list[BatchReport] = []
        self.on_end: Callable[[BatchReport], None] | None = None
        """Told when a batch is over."""

    def note(self, seconds: float) -> None:
        """A sink has a tuple: its latency is what it is when the batch is out."""
        self._born.append(self._clock.now() - seconds)

    def note_processing(self, seconds: float) -> None:
        """For all tuples of a batch that is how long the batch takes."""

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
        seconds = self._seconds(registry, self._executors.slots(self._began))
        self._clock.move_to(self._began + seconds)
        for born in self._born:
            self._latencies.note(self._clock.now() - born)
            self._latencies.note_processing(seconds)
        self.batches.append(BatchReport(len(self.batches), seconds, rows, {}))
        if self.on_end is not None:
            self.on_end(self.batches[-1])
        self._clock.move_to(self._began + max(seconds, self._trigger_seconds))
        self._began, self._settled, self._born = self._clock.now(), self._settled + rows, []

    def _seconds(self, registry: Registry, slots: int) -> float:
        """Levels one after the other; in each, a group of one task can't use more than one slot."""
        spent, counts = self._ledger.settle(), registry.counts()
        received = {name: count.received - self._received.get(name, 0) for name, count in counts.items()}
        self._received = {name: count.received for name, count in counts.items()}
        total = self._machine.batch_seconds
        for level, groups in enumerate(self._levels):
            work = [(spread, sum(spent.get(name, 0.0) for name in names)) for spread, names in groups]
            shared = sum(seconds for _, seconds in work)
            if level:
                rows = sum(received[names[0]] for _, names in groups if names)
                total += self._machine.exchange_seconds
                shared += rows * self._machine.exchanged_tuple_seconds
            narrow = [seconds for spread, seconds in work if spread is Spread.ONE]
            total += max([shared / slots, *narrow])
            self.used_seconds += shared
        return total
