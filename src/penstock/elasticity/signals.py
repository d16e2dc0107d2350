"""What controllers see: frozen figures of one period, the same from every engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.elasticity.changes import Change

_ONE_CORE = 0.6
"""What threads that fight for the GIL use at least, where neighbours take a good part of a core."""
_IDLE_CORES = 0.25


@dataclass(frozen=True)
class OperatorSignals:
    """One operator over one period."""

    name: str
    received: int = 0
    """Tuples that it has worked on."""
    emitted: int = 0
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Tuples that each of those before it has sent here."""
    busy_seconds: float = 0.0
    """How long workers were in it, all together."""
    cpu_seconds: float = 0.0
    """How long they used a core there."""
    queue_length: int = 0
    """Tuples that wait here at the end of the period."""
    queue_capacity: int = 1
    full_share: float = 0.0
    """The share of the period in which those that write to it found no room."""
    replicas: int = 1
    least_replicas: int = 1
    most_replicas: int = 1
    """Bounds by what it is, and by what the user wants."""
    hottest_share: float = 0.0
    """The share of its tuples that only one replica at a time can work on, because they have one key."""
    has_own_process: bool = False
    """Whether its functions run in companion processes."""
    is_source: bool = False
    loop: str = ""
    """Where several operators are fused: the first of them, for one worker runs them all."""
    can_be_helped: bool = False

    @property
    def handled(self) -> int:
        """Tuples that it has worked on; of a source, those that it has read."""
        return self.emitted if self.is_source else self.received

    @property
    def queue_share(self) -> float:
        return self.queue_length / max(1, self.queue_capacity)

    @property
    def cpu_share(self) -> float:
        """How much of its time it needs a core for; 1 where it has not worked."""
        return min(1.0, self.cpu_seconds / self.busy_seconds) if self.busy_seconds > 0 else 1.0


@dataclass(frozen=True)
class Batches:
    """How an engine works that runs one stage after another, batch by batch."""

    interval_seconds: float
    """From one batch to the next, as wanted; 0 where the next follows at once."""
    fixed_seconds: float
    """What a batch takes however small it is."""
    rows: int
    """Tuples that the last batches have read in this period."""
    slots_each: int = 1
    """Tasks that an executor can run at once."""
    most_rows: int = 0
    """How many tuples a batch may read now."""


@dataclass(frozen=True)
class Signals:
    """A flow over one period."""

    time: float
    """Seconds since the flow has begun, at the end of the period."""
    seconds: float
    operators: Mapping[str, OperatorSignals]
    """In the order of the graph: sources first."""
    threads: int = 1
    least_threads: int = 1
    most_threads: int = 1
    has_thread_each: bool = False
    """Whether every replica has a thread of its own, besides these."""
    stuck_threads: int = 0
    """Threads that should have gone, or are held by a user's function."""
    cores: int = 1
    cores_used: float = 0.0
    """By this process, on average over the period."""
    system_cpu: float = 0.0
    """The share of all cores that was used, by this process and others."""
    has_gil: bool = False
    gil_seconds: float = 0.0
    """How long threads have waited for the GIL where that is no part of how long they were busy."""
    offered_rate: float | None = None
    """Tuples a second that have come to the sources; `None` where they can be read as fast as one likes."""
    backlog: int = 0
    """Tuples that have come and were not read yet."""
    helping: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By pair of operators: the share of its output that the first processes with the second's function."""
    batches: Batches | None = None

    @property
    def busy_seconds(self) -> float:
        return sum(operator.busy_seconds for operator in self.operators.values())

    @property
    def utilisation(self) -> float:
        """The share of the threads' time that they spent in operators."""
        return min(1.0, self.busy_seconds / (self.seconds * max(1, self.threads))) if self.seconds > 0 else 0.0

    @property
    def throughput(self) -> float:
        """Tuples a second, of all operators together; sources read in jumps, and don't count."""
        handled = sum(one.received for one in self.operators.values() if not one.is_source)
        return handled / self.seconds if self.seconds > 0 else 0.0

    @property
    def is_gil_bound(self) -> bool:
        """Whether threads want more than a core, and get one, though there is another: what they run holds the GIL."""
        if not self.has_gil or (1 - self.system_cpu) * self.cores < _IDLE_CORES:
            return False  # another process may well have taken the other cores
        inside = sum(one.busy_seconds for one in self.operators.values() if not one.has_own_process)
        has_one_core = _ONE_CORE < self.cores_used < 1.15  # with less than that they wait for something else
        return inside + self.gil_seconds > 1.3 * self.seconds and has_one_core and self.cores > 1

    @property
    def useful_threads(self) -> int:
        """The most that may bring something: more than cores only where threads wait, and neither for them nor the GIL.

        >>> busy = {"op": OperatorSignals("op", busy_seconds=2.0)}
        >>> Signals(1.0, 1.0, busy, threads=2, most_threads=64, cores=2, cores_used=0.1).useful_threads
        64
        >>> Signals(1.0, 1.0, busy, threads=2, most_threads=64, cores=2, cores_used=1.9).useful_threads
        2
        """
        waits = self.cores_used * self.seconds < 0.5 * self.busy_seconds and self.cores_used < 0.8 * self.cores
        if waits and not self.is_gil_bound:
            return self.most_threads
        return min(self.most_threads, max(self.cores, self.threads))

    def readers(self, name: str) -> list[OperatorSignals]:
        """Those that have received something from an operator."""
        return [one for one in self.operators.values() if name in one.inputs]

    def output_full_share(self, name: str) -> float:
        return max((one.full_share for one in self.readers(name)), default=0.0)


class Controller(ABC):
    """Decides about one kind of number, from what it has seen so far and nothing else.

    A flow gets a copy of its own, so what it remembers in `self` is that flow's.
    """

    name: str = "controller"
    settles: bool = True
    """Whether it judges by what it sees, so that the period after a change tells it nothing."""

    def see(self, signals: Signals) -> None:
        """Called instead in the period after a change: nothing is decided, because nothing is as it will be."""

    @abstractmethod
    def decide(self, signals: Signals) -> Sequence[Change]:
        """Asked once a period; nothing where all is well."""

    def accept(self, changes: Sequence[Change], signals: Signals) -> None:
        """Called with those of its changes that are made: not where another controller came first."""
