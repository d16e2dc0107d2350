"""What can be changed of Spark between two batches: tasks, executors, and what the next batch reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.clock import Clock
from penstock.engines.batch_meter import SlotSupply
from penstock.engines.spark.executors import SparkExecutors
from penstock.observe.report import OperatorReport

_START_SECONDS = 90.0
"""After that, executors that were asked for are taken to be more than there are."""


class AdjustableSpark:
    """One query on Spark, as the batch plant sees it."""

    def __init__(self, clock: Clock, executors: SparkExecutors, batches: Any, admission: Any) -> None:
        self._clock = clock
        self._batches = batches
        self._admission = admission
        self._executors = executors
        self.why_fixed = executors.why_fixed()
        """Why there can't be more or fewer executors; `None` if there can."""
        self._most_slots = max(executors.slots(), executors.most_slots or 0)
        self._awaited: tuple[int, float] | None = None
        """How many slots there will be, and when that was asked for."""

    @property
    def tasks(self) -> dict[int, int]:
        tasks: dict[int, int] = self._batches.tasks
        return tasks

    @property
    def most_rows(self) -> int:
        rows: int = self._admission.limits.rows
        return rows

    def admit_rows(self, rows: int) -> None:
        self._admission.set_rows(rows)

    def counts(self) -> Mapping[str, OperatorReport]:
        counts: Mapping[str, OperatorReport] = self._batches.counts()
        return counts

    def hottest(self) -> Mapping[int, float]:
        hottest: Mapping[int, float] = self._batches.hottest
        return hottest

    def offered(self) -> float | None:
        offered: float | None = self._admission.offered(self._clock.now())
        return offered

    def slots(self) -> SlotSupply:
        now, each = self._executors.slots(), self._executors.slots_each
        awaited = self._slots_awaited(now)
        if self.why_fixed is not None:
            return SlotSupply(now, least=now, most=now, awaited=awaited, each=each)
        return SlotSupply(now, least=1, most=self._most_slots, awaited=awaited, each=each)

    def _slots_awaited(self, now: int) -> int:
        """Executors take seconds to come and go: until they have, or should have, nothing new is asked for."""
        if self._awaited is None:
            return 0
        wanted, since = self._awaited
        is_late = self._clock.now() - since > _START_SECONDS
        if now == wanted or is_late:
            self._awaited = None
            if now < wanted:
                self._most_slots = now  # there are no more to be had
            return 0
        return abs(wanted - now)

    def set_slots(self, count: int) -> bool:
        if self.why_fixed is not None:
            return False
        executors = math.ceil(count / self._executors.slots_each)
        is_fewer = count < self._executors.slots()
        is_heard = bool(self._executors.release(executors)) if is_fewer else self._executors.request(executors)
        if is_heard:
            self._awaited = (executors * self._executors.slots_each, self._clock.now())
        return is_heard
