"""Which ready operator runs next: policies see live, read-only views, and know neither threads nor clocks."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import FlowError

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell


class OperatorView:
    """What a policy may know about a ready operator (or a fused chain of them)."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    @property
    def name(self) -> str:
        return self._cell.name

    @property
    def place(self) -> float:
        """Its rank in the flow: sources are low, sinks high."""
        return self._cell.place

    @property
    def depth(self) -> float:
        """How far it is from the sources, which have 0, by the longest way."""
        return self._cell.depth

    @property
    def is_source(self) -> bool:
        return self._cell.is_source

    @property
    def queue_length(self) -> int:
        """Tuples waiting on its inputs."""
        return sum(len(port) for port in self._cell.inputs)

    @property
    def oldest_time(self) -> float | None:
        """When the oldest of them entered the flow, in seconds of the engine's clock."""
        inputs = self._cell.inputs
        if len(inputs) == 1:
            return inputs[0].front_time
        return min((time for port in inputs if (time := port.front_time) is not None), default=None)

    @property
    def last_run(self) -> float:
        """When it was last picked."""
        return self._cell.last_run

    @property
    def seconds_per_tuple(self) -> float:
        """What a tuple costs, as measured so far."""
        return self._cell.budget.seconds_per_tuple

    @property
    def selectivity(self) -> float:
        """How many tuples it emits for one that it receives, as measured so far."""
        return self._cell.figures.selectivity()

    @property
    def share(self) -> float:
        """How many tuples it receives for one that has entered the flow, as measured so far."""
        return self._cell.figures.share()

    @property
    def busy_seconds(self) -> float:
        """How long workers have been in it."""
        return self._cell.figures.busy_seconds

    @property
    def workers(self) -> int:
        """How many workers are in it."""
        return self._cell.figures.workers

    @property
    def most_workers(self) -> int:
        """How many may be in it at once."""
        return self._cell.figures.most_workers

    @property
    def output_length(self) -> int:
        """Tuples waiting before the fullest of its readers."""
        return max((len(port) for targets in self._cell.outputs for port in targets), default=0)

    @property
    def room(self) -> int:
        """How many tuples its fullest reader can still take."""
        return min((port.capacity - len(port) for targets in self._cell.outputs for port in targets), default=1 << 30)


class SchedulingPolicy(ABC):
    """Picks among ready operators: the one with the largest priority runs next.

    >>> class Alphabetical(SchedulingPolicy):
    ...     def priority(self, operator):
    ...         return -ord(operator.name[0])
    """

    name: ClassVar[str] = ""
    follows: ClassVar[bool] = False
    """Whether a worker may go on with the reader of what it has just made, without asking: the policy would say so."""

    @abstractmethod
    def priority(self, operator: OperatorView) -> float:
        """How much this operator should run next, compared with others that are ready now."""


class Random(SchedulingPolicy):
    """Uniformly at random."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def priority(self, operator: OperatorView) -> float:
        return self._random.random()


class MaxQueue(SchedulingPolicy):
    """Sources first, then whoever has the most tuples waiting."""

    name = "max-queue"

    def priority(self, operator: OperatorView) -> float:
        return float("inf") if operator.is_source else operator.queue_length


class MinLatency(SchedulingPolicy):
    """Whose front tuple entered the flow first; for sources, when they last ran."""

    name = "min-latency"

    def priority(self, operator: OperatorView) -> float:
        oldest = operator.oldest_time
        return -(operator.last_run if oldest is None else oldest)


class LeastRecentlyRun(SchedulingPolicy):
    """Whoever has waited longest to be picked."""

    name = "least-recently-run"

    def priority(self, operator: OperatorView) -> float:
        return -operator.last_run


class MaxRunningTime(SchedulingPolicy):
    """Who can run longest: until its input is used up, or its fullest reader is full."""

    name = "max-running-time"

    def priority(self, operator: OperatorView) -> float:
        cost = operator.seconds_per_tuple or 1e-6
        selectivity = operator.selectivity
        can_write = operator.room / selectivity if selectivity else float("inf")
        can_read = float("inf") if operator.is_source else operator.queue_length
        return cost * min(can_read, can_write)


class LastInPipeline(SchedulingPolicy):
    """Whoever is furthest from the sources: what has been read is carried to the end before more is read.

    By depth and not by place, so that sources take turns: one flow beside another does not starve it.
    """

    name = "last-in-pipeline"
    follows = True

    def priority(self, operator: OperatorView) -> float:
        return operator.depth


class EstimatedTime(SchedulingPolicy):
    """Who would need the longest for what is waiting, with one worker more; sources when nobody else is ready."""

    name = "estimated-time"

    def priority(self, operator: OperatorView) -> float:
        if operator.is_source or operator.workers >= operator.most_workers:
            return 0.0
        return operator.queue_length * (operator.seconds_per_tuple or 1e-6) / (operator.workers + 1)


class CurrentThroughput(SchedulingPolicy):
    """The bottleneck: who has processed the fewest tuples of late, counted as tuples that entered the flow."""

    name = "current-throughput"

    _WINDOW = 512
    _SLICE_SECONDS = 0.001

    def __init__(self) -> None:
        self._asked = 0
        self._before: dict[str, float] = {}
        """The busy seconds of each operator when the window began."""

    def priority(self, operator: OperatorView) -> float:
        self._asked += 1
        if self._asked % self._WINDOW == 0:
            self._before = {}
        busy = operator.busy_seconds
        spent = busy - self._before.setdefault(operator.name, busy)
        cost = (operator.seconds_per_tuple or 1e-6) * (operator.share or 1e-6)
        return -(spent + operator.workers * self._SLICE_SECONDS) / cost


class QueueThrottling(SchedulingPolicy):
    """The first in the flow whose readers have less than their share of what the flow may hold."""

    name = "queue-throttling"

    _CAPACITY = 16_384

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}
        """How many tuples each operator emits for one that has entered the flow."""

    def priority(self, operator: OperatorView) -> float:
        share = self._shares[operator.name] = operator.share * operator.selectivity
        threshold = self._CAPACITY * share / (sum(list(self._shares.values())) or 1.0)
        is_throttled = operator.output_length > threshold
        return -operator.place - (1e9 if is_throttled else 0.0)


POLICIES: dict[str, type[SchedulingPolicy]] = {
    policy.name: policy
    for policy in (
        Random,
        MaxQueue,
        MinLatency,
        LeastRecentlyRun,
        MaxRunningTime,
        LastInPipeline,
        CurrentThroughput,
        EstimatedTime,
        QueueThrottling,
    )
}


def policy_name(policy: SchedulingPolicy) -> str:
    """What a policy is called: a user's own may have no name but that of its class."""
    return policy.name or type(policy).__name__


def resolve_policy(policy: str | SchedulingPolicy) -> SchedulingPolicy:
    """The policy of a name, or the policy itself.

    >>> resolve_policy("max-queue").name
    'max-queue'
    """
    if isinstance(policy, SchedulingPolicy):
        return policy
    if policy not in POLICIES:
        raise FlowError(
            f"there is no policy {policy!r}; there are {', '.join(POLICIES)}, or a ps.SchedulingPolicy of yours"
        )
    return POLICIES[policy]()
