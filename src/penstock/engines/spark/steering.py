"""Elasticity on Spark: after each batch the same controllers as everywhere, for tasks, executors and admission."""

from __future__ import annotations

import math
from typing import Any

from penstock.clock import Clock
from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import Change, Signals
from penstock.engines.batch_meter import BatchEnd, BatchMeter
from penstock.engines.spark.executors import SparkExecutors
from penstock.observe.journal import Decision
from penstock.plan.groups import Plan
from penstock.runtime.steering import Steering

_START_SECONDS = 90.0
"""After that, executors that were asked for are taken to be more than there are."""


class SparkSteering:
    """Looks at each batch, and applies what the controllers want before the next one."""

    def __init__(
        self,
        plan: Plan,
        elastic: Elastic,
        clock: Clock,
        spark: Any,
        batches: Any,
        admission: Any,
        decisions: list[Decision],
    ) -> None:
        self._clock = clock
        self._batches = batches
        self._admission = admission
        self._executors = SparkExecutors(spark)
        self._why_fixed = self._executors.why_fixed()
        self._most_rows = admission.limits.rows
        self._started = clock.now()
        self._meter = BatchMeter(plan, elastic)
        self._decisions = decisions
        self._steering = Steering(elastic, clock.now, self._never, self._apply, decisions)
        self._most_slots = max(self._executors.slots(), self._executors.most_slots or 0)
        self._awaited: tuple[int, float] | None = None
        """How many slots there will be, and when that was asked for."""
        if self._why_fixed is not None and (elastic.most_threads or 0) > self._executors.slots():
            slots = self._executors.slots()
            reason = f"there can't be more executors: {self._why_fixed}"
            decisions.append(Decision(0.0, "executors", "", slots, slots, reason, is_applied=False))

    def after_batch(self, seconds: float, interval_seconds: float) -> None:
        """A batch is over, and none of our tasks runs."""
        slots = self._executors.slots()
        self._steering.step(
            self._meter.read(
                BatchEnd(
                    time=self._clock.now() - self._started,
                    seconds=seconds,
                    counts=self._batches.counts(),
                    tasks=self._batches.tasks,
                    slots=slots,
                    least_slots=1 if self._why_fixed is None else slots,
                    most_slots=self._most_slots if self._why_fixed is None else slots,
                    slots_awaited=self._slots_awaited(slots),
                    slots_each=self._executors.slots_each,
                    interval_seconds=interval_seconds,
                    most_rows=self._admission.limits.rows,
                    offered=self._admission.offered(self._clock.now()),
                )
            )
        )

    def _slots_awaited(self, slots: int) -> int:
        """Executors take seconds to come and go: until they have, or should have, nothing new is asked for."""
        if self._awaited is None:
            return 0
        wanted, since = self._awaited
        is_late = self._clock.now() - since > _START_SECONDS
        if slots == wanted or is_late:
            self._awaited = None
            if slots < wanted:
                self._most_slots = slots  # there are no more to be had
            return 0
        return abs(wanted - slots)

    def _apply(self, change: Change, signals: Signals) -> bool:
        match change.what:
            case "replicas":
                self._batches.tasks[self._meter.group(change.operator).number] = int(change.after)
                return True
            case "rows":
                self._admission.set_rows(min(int(change.after), self._most_rows))
                return bool(self._admission.limits.rows != change.before)
            case "executors":
                return self._change_executors(int(change.before), int(change.after))
        return False

    def _change_executors(self, before: int, after: int) -> bool:
        if self._why_fixed is not None:
            return False
        count = math.ceil(after / self._executors.slots_each)
        is_heard = bool(self._executors.release(count)) if after < before else self._executors.request(count)
        if is_heard:
            self._awaited = (count * self._executors.slots_each, self._clock.now())
        return is_heard

    def _never(self) -> Signals:
        raise AssertionError("it is told when a batch is over")
