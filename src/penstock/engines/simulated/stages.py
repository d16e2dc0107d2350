"""How long a simulated batch takes: what operators have spent, as the tasks of its stages, on the slots there are."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.engines.batch_tasks import first_tasks
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.skew import Skew
from penstock.observe.report import OperatorReport
from penstock.plan.groups import Group, Plan


class Ledger:
    """What each operator has spent, since it was last asked; spending takes no time."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self.total_by_operator: dict[str, float] = defaultdict(float)

    def spend(self, operator: str, seconds: float) -> None:
        self._seconds[operator] += seconds
        self.total_by_operator[operator] += seconds

    def settle(self) -> Mapping[str, float]:
        settled, self._seconds = self._seconds, defaultdict(float)
        return settled


@dataclass(frozen=True)
class GroupWork:
    """What one group has to do in a batch."""

    seconds: float
    """Of all its tasks."""
    tasks: int
    shares: Sequence[float] | None = None
    """What each of them has of it; `None` where they have equally much to do."""

    def seconds_by_task(self) -> list[float]:
        if self.shares is None:
            return [self.seconds / self.tasks] * self.tasks
        return [self.seconds * share for share in self.shares]


def stage_seconds(groups: Iterable[GroupWork], slots: int) -> float:
    """From the first task's start to the last one's end, as Spark starts them: in order, each on the next free slot.

    >>> stage_seconds([GroupWork(6.0, tasks=3)], slots=8), stage_seconds([GroupWork(6.0, tasks=3)], slots=2)
    (2.0, 4.0)
    >>> stage_seconds([GroupWork(6.0, tasks=3, shares=(0.75, 0.125, 0.125))], slots=8)  # of a hot key
    4.5
    """
    free_at = [0.0] * slots
    for group in groups:
        if group.seconds:
            for seconds in group.seconds_by_task():
                heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)


class Stages:
    """The stages of a plan, with as many tasks in each as the flow says, or as there is `parallelism`."""

    def __init__(self, plan: Plan, machine: Machine, ledger: Ledger, skew: Skew, parallelism: int) -> None:
        self._plan = plan
        self._skew = skew
        self._machine = machine
        self._ledger = ledger
        self.tasks = first_tasks(plan, parallelism)
        """How many each group has from the next batch on."""
        self._tasks_now = dict(self.tasks)
        self._received: dict[str, int] = {}
        self.used_seconds = 0.0
        """Of all slots together."""

    def begin(self) -> None:
        """The next batch begins."""
        self._tasks_now = dict(self.tasks)

    def seconds(self, counts: Mapping[str, OperatorReport], slots: int) -> float:
        """What the batch that ends with these counts has taken: its stages, one after the other."""
        spent = self._ledger.settle()
        received = {name: count.received - self._received.get(name, 0) for name, count in counts.items()}
        self._received = {name: count.received for name, count in counts.items()}
        total = self._machine.batch_seconds
        for level, groups in enumerate(self._plan.levels):
            work = [self._work(group, spent, received) for group in groups]
            total += stage_seconds(work, slots) + (self._machine.exchange_seconds if level else 0.0)
            self.used_seconds += sum(one.seconds for one in work)
        return total

    def _work(self, group: Group, spent: Mapping[str, float], received: Mapping[str, int]) -> GroupWork:
        seconds = sum(spent.get(node.name, 0.0) for node in group.nodes)
        if group.level and group.nodes:
            seconds += received[group.nodes[0].name] * self._machine.exchanged_tuple_seconds
        tasks = self._tasks_now[group.number]
        return GroupWork(seconds, tasks, self._skew.take(group.number, tasks))

    def hottest(self) -> Mapping[int, float]:
        """By keyed group, the share of its tuples that only one task can work on."""
        return self._skew.hottest()

    def charged(self, counts: Mapping[str, OperatorReport]) -> dict[str, OperatorReport]:
        """With their tasks, and what they would have spent: while they compute no time passes."""
        spent, plan = self._ledger.total_by_operator, self._plan
        return {
            name: replace(one, busy_seconds=spent.get(name, 0.0), replicas=self.tasks[plan.group_of(name).number])
            for name, one in counts.items()
        }
