"""Elasticity of flows that run in batches, stage by stage: tasks, slots and admission, on Spark and simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.clock import Clock
from penstock.elasticity.changes import AdmitRows, Change, SetExecutors, SetReplicas
from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import Signals
from penstock.engines.batch_meter import BatchEnd, BatchMeter, SlotSupply
from penstock.engines.batch_tasks import rescaled_group
from penstock.engines.steering import Steering
from penstock.observe.journal import Decision
from penstock.observe.report import OperatorReport
from penstock.plan.groups import Plan


class Adjustable(Protocol):
    """What the two engines that run batches tell of them, and let be changed between two of them."""

    @property
    def tasks(self) -> dict[int, int]:
        """How many tasks each group has from the next batch on."""
        ...

    @property
    def most_rows(self) -> int:
        """How many tuples of each source the next batch may read."""
        ...

    def admit_rows(self, rows: int) -> None: ...

    def slots(self) -> SlotSupply:
        """The tasks that can run at once."""
        ...

    def set_slots(self, count: int) -> bool:
        """Ask for executors with so many; `False` if that can't be done."""
        ...

    def counts(self) -> Mapping[str, OperatorReport]:
        """Of all batches."""
        ...

    def hottest(self) -> Mapping[int, float]:
        """By keyed group, the share of its tuples that only one task can work on, because they have one key."""
        ...

    def offered(self) -> float | None:
        """Tuples that have come to all sources; `None` where they can be read as fast as one likes."""
        ...


class BatchPlant:
    """An engine between two batches."""

    def __init__(self, plan: Plan, elastic: Elastic, engine: Adjustable, clock: Clock, interval_seconds: float) -> None:
        self._plan = plan
        self._engine = engine
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._started = clock.now()
        self._most_rows = engine.most_rows
        self._meter = BatchMeter(plan, elastic)
        self._batch_seconds = 0.0

    def ended(self, seconds: float) -> None:
        """A batch is over, after so many seconds, and no task runs."""
        self._batch_seconds = seconds

    def signals(self) -> Signals:
        engine = self._engine
        return self._meter.read(
            BatchEnd(
                time=self._clock.now() - self._started,
                seconds=self._batch_seconds,
                counts=engine.counts(),
                tasks=engine.tasks,
                slots=engine.slots(),
                interval_seconds=self._interval_seconds,
                most_rows=engine.most_rows,
                offered=engine.offered(),
                hottest=engine.hottest(),
            )
        )

    def apply(self, change: Change) -> bool:
        match change:
            case SetReplicas(operator=name):
                group = rescaled_group(self._plan, name, int(change.after))
                self._engine.tasks[group.number] = int(change.after)
                return True
            case SetExecutors():
                return self._engine.set_slots(int(change.after))
            case AdmitRows():
                before = self._engine.most_rows
                self._engine.admit_rows(min(int(change.after), self._most_rows))
                return self._engine.most_rows != before
        return False


class BatchSteering:
    """Measures each batch when it is over, and changes what the controllers want before the next one."""

    def __init__(
        self,
        plan: Plan,
        elastic: Elastic,
        engine: Adjustable,
        clock: Clock,
        interval_seconds: float,
        decisions: list[Decision],
    ) -> None:
        self._plant = BatchPlant(plan, elastic, engine, clock, interval_seconds)
        self._steering = Steering(self._plant, elastic, decisions)

    def after_batch(self, seconds: float) -> None:
        self._plant.ended(seconds)
        self._steering.step()
