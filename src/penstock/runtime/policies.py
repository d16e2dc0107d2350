"""Which ready operator runs next: policies see live, read-only views, and know neither threads nor clocks."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, get_args

from penstock.errors import FlowError
from penstock.runtime.views import OperatorView, PortView

__all__ = ["OperatorView", "PortView", "SchedulingPolicy"]

PriorityChanges = Literal["never", "when notified", "at any time"]


class SchedulingPolicy(ABC):
    """Picks among ready operators: the one with the largest priority runs next.

    >>> class Alphabetical(SchedulingPolicy):
    ...     priority_changes = "never"
    ...
    ...     def priority(self, operator):
    ...         return -ord(operator.name[0])
    """

    name: ClassVar[str] = ""
    priority_changes: ClassVar[PriorityChanges] = "at any time"
    """When an operator's priority may be another one than before: never; when it has run or been notified (a tuple has
    come, there is room again, a worker has left it), which costs one question for each such event; or at any time, so
    that a few operators are compared at each pick."""
    follows: ClassVar[bool] = False
    """Whether a worker may go on with the reader of what it has just made, without asking: the policy would say so."""

    @abstractmethod
    def priority(self, operator: OperatorView) -> float:
        """How much this operator should run next, compared with others that are ready now."""

    def preempts(self, operator: OperatorView) -> bool:
        """Whether a driver loop that has used up its quantum must let others run; otherwise it gets another one."""
        return True


class Random(SchedulingPolicy):
    """Uniformly at random."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def priority(self, operator: OperatorView) -> float:
        return self._random.random()


class MaxQueue(SchedulingPolicy):
    """Sources first, then the one with the most tuples waiting."""

    name = "max-queue"
    priority_changes = "when notified"

    def priority(self, operator: OperatorView) -> float:
        return float("inf") if operator.is_source else operator.queue_length


class MinLatency(SchedulingPolicy):
    """The one whose front tuple entered the flow first; for sources, when they last ran."""

    name = "min-latency"
    priority_changes = "when notified"

    def priority(self, operator: OperatorView) -> float:
        oldest = operator.oldest_time
        return -(operator.last_run if oldest is None else oldest)


class LeastRecentlyRun(SchedulingPolicy):
    """The one that has waited longest to be picked."""

    name = "least-recently-run"
    priority_changes = "when notified"

    def priority(self, operator: OperatorView) -> float:
        return -operator.last_run


class MaxRunningTime(SchedulingPolicy):
    """The one that can run longest: until its input is used up, or its fullest reader is full."""

    name = "max-running-time"

    def priority(self, operator: OperatorView) -> float:
        cost = operator.seconds_per_tuple or 1e-6
        selectivity = operator.selectivity
        can_write = operator.room / selectivity if selectivity else float("inf")
        can_read = float("inf") if operator.is_source else operator.queue_length
        return cost * min(can_read, can_write)


class LastInPipeline(SchedulingPolicy):
    """The one that is furthest from the sources: what has been read is carried to the end before more is read.

    By depth and not by place, so that sources take turns: one flow beside another does not starve it.
    """

    name = "last-in-pipeline"
    priority_changes = "never"
    follows = True

    def priority(self, operator: OperatorView) -> float:
        return operator.depth


class EstimatedTime(SchedulingPolicy):
    """The one that would need the longest for what is waiting, with one worker more; sources when no other is ready."""

    name = "estimated-time"
    priority_changes = "when notified"

    def priority(self, operator: OperatorView) -> float:
        if operator.is_source or operator.workers >= operator.most_workers:
            return 0.0
        return operator.queue_length * (operator.seconds_per_tuple or 1e-6) / (operator.workers + 1)


class CurrentThroughput(SchedulingPolicy):
    """The bottleneck: the one that has processed the fewest tuples of late, counted as tuples that entered the flow.

    "Of late" is since the last time that the policy had been asked `window` times; a worker in an operator counts as
    if it had been there for `slice_seconds` already.

    >>> CurrentThroughput(window=0)
    Traceback (most recent call last):
    penstock.errors.FlowError: policy 'current-throughput': window= is a number of questions from 1 up, not 0
    """

    name = "current-throughput"

    def __init__(self, window: int = 512, slice_seconds: float = 0.001) -> None:
        if window < 1:
            raise FlowError(f"policy {self.name!r}: window= is a number of questions from 1 up, not {window!r}")
        self._window = window
        self._slice_seconds = slice_seconds
        self._asked = 0
        self._before: dict[str, float] = {}
        """The busy seconds of each operator when the window began."""

    def priority(self, operator: OperatorView) -> float:
        self._asked += 1
        if self._asked % self._window == 0:
            self._before = {}
        busy = operator.busy_seconds
        spent = busy - self._before.setdefault(operator.name, busy)
        cost = (operator.seconds_per_tuple or 1e-6) * (operator.share or 1e-6)
        return -(spent + operator.workers * self._slice_seconds) / cost


class QueueThrottling(SchedulingPolicy):
    """The first in the flow whose readers have less than their share of what the flow may hold.

    That is `capacity` tuples; `None` stands for as many as may wait before the operator's own reader.
    """

    name = "queue-throttling"

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise FlowError(f"policy {self.name!r}: capacity= is a number of tuples from 1 up, not {capacity!r}")
        self._capacity = capacity
        self._shares: dict[str, float] = {}
        """How many tuples each operator emits for one that has entered the flow."""
        self._total = 0.0
        """Of all of them; added up once for as many questions as there are operators."""
        self._questions = 0

    def priority(self, operator: OperatorView) -> float:
        share = operator.share * operator.selectivity
        self._questions -= 1
        is_new = operator.name not in self._shares
        self._shares[operator.name] = share
        if is_new:
            self._total += share
        if self._questions < 0:
            shares = list(self._shares.values())
            self._total, self._questions = sum(shares), len(shares)
        capacity = self._capacity or operator.output_capacity
        is_throttled = operator.output_length > capacity * share / (self._total or 1.0)
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
        known = get_args(PriorityChanges)
        if policy.priority_changes not in known:
            raise FlowError(
                f"policy {policy_name(policy)!r}: priority_changes is one of {', '.join(map(repr, known))}, "
                f"not {policy.priority_changes!r}"
            )
        return policy
    if policy not in POLICIES:
        raise FlowError(
            f"there is no policy {policy!r}; there are {', '.join(POLICIES)}, or a ps.SchedulingPolicy of yours"
        )
    return POLICIES[policy]()
