"""Executors, tasks and rows of flows that run stage after stage, in one decision, from what a batch has to do.

How long a batch takes follows from what its rows cost, how many tasks can run at once, and how much of a stage's work
one task has to do alone. What is to come is the rate now, or what a season lets one expect until executors are there.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.elasticity.changes import AdmitRows, Change, SetExecutors, SetReplicas
from penstock.elasticity.learning import Learnt, RunningRatio
from penstock.elasticity.seasons import Seasons
from penstock.elasticity.signals import Batches, Controller, Signals

BATCHES_DRAIN = 4.0
_START_SECONDS = 12.0
"""What executors take to come, until that was seen."""
_HEADROOM = 1.2
"""So many times the work must fit into what is asked for, and into what is left where some are given back."""
_HELD = 1 / 2
"""Of the time in which executors come, so long are they held for what may come again at once."""
_HELD_IN_SEASON = 1 / 4
"""So long where a season tells when that will be."""
_INTERVALS_BEFORE = 3
"""Executors are to be there so many intervals before a season needs them."""
_MORE_UNDER_WAY = 1.25
"""Where some have been asked for and have not come, more are asked for if it is so many times as many."""
_AS_SHORT = 1.05
"""Slots that make a batch shorter by less are not asked for, where no number of them makes it short enough."""
_TASK_SECONDS = 0.05
"""Less work is not worth a task."""
_WORTH_A_TASK = 0.02
"""Of the time of a batch, more tasks must save so much."""
_FEWER_TASKS = 0.7
"""Of the tasks that there are, so few must be enough, in so many batches."""
_GRACE_BATCHES = 3
_LEAST_ROWS = 100
_SAME_ROWS = 0.8


@dataclass(frozen=True)
class StageWork:
    """What a stage has to do."""

    name: str
    seconds: float
    """Of all its tasks; for a row, or for a batch."""
    alone: float = 0.0
    """The share of it that one task has to do at least."""

    def time(self, slots: int) -> float:
        """How long it takes with as many tasks as slots."""
        return self.seconds * max(1 / slots, self.alone)


class Batching(Controller):
    """Sizes batches so that they end within their interval, and what waits is done within `drain_seconds`."""

    name = "batching"
    settles = False

    def __init__(self, drain_seconds: float = BATCHES_DRAIN) -> None:
        self._drain_seconds = drain_seconds
        self._learnt = Learnt()
        self._seasons = Seasons()
        self._slots = _SlotCounts()
        self._tasks = _Tasks()
        self._admitting = Admitting()

    def see(self, signals: Signals) -> None:
        self._learnt.add(signals)
        if signals.offered_rate is not None:
            self._seasons.add(signals.time, signals.seconds, signals.offered_rate)

    def decide(self, signals: Signals) -> Sequence[Change]:
        if (batches := signals.batches) is None:
            return []
        self.see(signals)
        a_row = [
            StageWork(
                name,
                self._learnt.shares[name] * self._learnt.costs[name].seconds,
                max(one.hottest_share, 1 / one.most_replicas),
            )
            for name, one in signals.operators.items()
            if not one.is_source and name in self._learnt.costs
        ]
        changes: list[Change] = []
        target = self._slots.target(signals)
        if batches.interval_seconds > batches.fixed_seconds and any(stage.seconds for stage in a_row):
            settled, reason = self._settled(signals, batches, a_row, target)
            if settled != target:
                changes.append(SetExecutors(before=target, after=settled, reason=reason))
                self._slots.asked(target, settled, signals.time)
            target = settled
        changes += self._tasks.decide(signals, self._in_a_batch(signals, batches, a_row), min(target, signals.threads))
        return [*changes, *self._admitting.decide(signals)]

    # Slots

    def _settled(self, signals: Signals, batches: Batches, a_row: Sequence[StageWork], target: int) -> tuple[int, str]:
        """How many tasks are to run at once, and why."""
        room = batches.interval_seconds - batches.fixed_seconds
        interval, start = batches.interval_seconds, self._slots.start_seconds
        late = self._late(signals, batches) / self._drain_seconds
        a_row_seconds = sum(stage.seconds for stage in a_row)

        def seconds(slots: int, rate: float) -> float:
            return sum(stage.time(slots) for stage in a_row) * rate * interval

        def wanted(rate: float) -> int:
            return self._slots.fewest(signals, lambda slots: seconds(slots, rate) * _HEADROOM, room)

        rate = self._rate(signals, batches, a_row_seconds)
        soon, later = (
            self._seasons.peak(times * start + _INTERVALS_BEFORE * interval, interval) for times in (1.0, 1.5)
        )
        expected = max(rate, soon) + late
        share = _HELD if self._seasons.season_seconds is None else _HELD_IN_SEASON
        held = max(share * start, _GRACE_BATCHES * interval)
        enough = self._slots.enough(signals.time, wanted(max(rate, soon)), target, held)
        settled = target
        if seconds(target, expected) > room:
            # What will be late when they have come, and what a season brings next: so that it is asked for once.
            lacking = max(0.0, rate - room / seconds(signals.threads, 1.0)) if signals.offered_rate is not None else 0.0
            falls_behind = lacking * self._slots.left_seconds(signals.time) / self._drain_seconds
            more = wanted(max(rate, later) + late + falls_behind)
            if more > target and (not signals.stuck_threads or more >= _MORE_UNDER_WAY * target):
                settled = more
        elif enough < target and not late and not signals.stuck_threads:
            # What a season needs soon would have to be asked for again at once.
            settled = min(target, max(enough, wanted(max(rate, later))))
        settled = min(max(settled, signals.least_threads), signals.most_threads)
        ago = self._seasons.season_seconds
        season = f", as {ago:g} s ago" if ago and soon > rate else ""
        waiting = f", {late * self._drain_seconds:,.0f} tuples being late" if late else ""
        return settled, (
            f"{expected * a_row_seconds:.2f} seconds of work are expected in a second{season}{waiting}, "
            f"and a batch has {room:.2f} of {interval:g} s"
        )

    def _rate(self, signals: Signals, batches: Batches, a_row_seconds: float) -> float:
        """Tuples a second that come; where that is not known, that are read; or could be, if there is always more."""
        if signals.offered_rate is not None:
            return signals.offered_rate
        is_full = batches.rows >= _SAME_ROWS * batches.most_rows
        return signals.cores / a_row_seconds if is_full else batches.rows / batches.interval_seconds

    def _late(self, signals: Signals, batches: Batches) -> float:
        """What waits, besides what comes in an interval anyway and is the next batch's."""
        return max(0.0, signals.backlog - (signals.offered_rate or 0.0) * batches.interval_seconds)

    def _in_a_batch(self, signals: Signals, batches: Batches, a_row: Sequence[StageWork]) -> list[StageWork]:
        """What the next batch has to do: what has come in an interval, and what is late."""
        rows = float(batches.rows)
        if signals.offered_rate is not None and batches.interval_seconds:
            rows = signals.offered_rate * batches.interval_seconds + self._late(signals, batches)
        return [StageWork(stage.name, stage.seconds * rows, stage.alone) for stage in a_row]


class _SlotCounts:
    """How many slots were asked for, and how long they take to come."""

    def __init__(self) -> None:
        self.start_seconds = _START_SECONDS
        self._asked: tuple[int, int, float] | None = None
        """How many there were, how many there are to be, and since when."""
        self._recent: deque[tuple[float, int]] = deque()
        self._came = 0.0
        """When the last of them did."""

    def asked(self, before: int, after: int, time: float) -> None:
        self._asked = before, after, time

    def target(self, signals: Signals) -> int:
        """How many there are, or will be as soon as those that were asked for have come."""
        if self._asked is None:
            return signals.threads
        before, after, since = self._asked
        if signals.stuck_threads:
            return after
        self._asked = None
        if before < after <= signals.threads:
            self.start_seconds, self._came = signals.time - since, signals.time
        return signals.threads

    def left_seconds(self, time: float) -> float:
        """Until what is asked for now, or was already, has come."""
        return self.start_seconds if self._asked is None else max(0.0, self._asked[2] + self.start_seconds - time)

    def fewest(self, signals: Signals, seconds: Callable[[int], float], room: float) -> int:
        """Whole executors, as few as make a batch fit; or as many as make it shorter, if nothing makes it fit."""
        assert signals.batches is not None
        each, least, most = signals.batches.slots_each, signals.least_threads, signals.most_threads
        choices = range(-(-max(1, least) // each) * each, most + each, each)
        limit = max(room, seconds(choices[-1]) * _AS_SHORT)
        found = next((slots for slots in choices if seconds(slots) <= limit), choices[-1])
        return min(max(found, least), most)

    def enough(self, time: float, wanted: int, target: int, held_seconds: float) -> int:
        """As many as there are to be, if so many were wanted, or have come, in the last so many seconds.

        If not, as few as are enough after the last two batches, so that they go at once and not one by one.
        """
        self._recent.append((time, wanted))
        while self._recent[0][0] < time - held_seconds:
            self._recent.popleft()
        if time - self._came < held_seconds or any(count >= target for _, count in self._recent):
            return target
        return max(wanted, *(count for _, count in list(self._recent)[-2:]))


class _Tasks:
    """How many tasks each stage has: no more than slots, and none with next to nothing to do.

    It takes clearly more work for more of them, and clearly less for fewer, so that at a constant load none changes.
    """

    def __init__(self) -> None:
        self._recent: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_GRACE_BATCHES))

    def decide(self, signals: Signals, in_a_batch: Sequence[StageWork], slots: int) -> list[Change]:
        changes: list[Change] = []
        assert signals.batches is not None
        span = signals.batches.interval_seconds or signals.seconds
        for stage in in_a_batch:
            one = signals.operators[stage.name]
            # More tasks than slots would take turns, and the last of them would have most slots for themselves.
            wanted = max(1, min(slots, math.ceil(stage.seconds / _TASK_SECONDS)))
            recent = self._recent[stage.name]
            recent.append(wanted)
            tasks = one.replicas
            if wanted > tasks and stage.seconds / tasks - stage.seconds / wanted > _WORTH_A_TASK * span:
                tasks = wanted
            elif max(recent) <= _FEWER_TASKS * tasks and len(recent) == recent.maxlen:
                tasks = max(recent)
            tasks = min(max(min(tasks, slots), one.least_replicas), one.most_replicas)
            if tasks != one.replicas:
                reason = f"{stage.seconds:.2f} s of work in a batch, on {slots} slots"
                changes.append(SetReplicas(stage.name, before=one.replicas, after=tasks, reason=reason))
        return changes


class Admitting(Controller):
    """As many tuples in a batch as its interval can hold, so that a backlog is not one endless batch."""

    name = "admission"
    settles = False

    def __init__(self, least_rows: int = _LEAST_ROWS) -> None:
        self._least_rows = least_rows
        self._row_cost = RunningRatio()

    def decide(self, signals: Signals) -> Sequence[Change]:
        batches = signals.batches
        if batches is None or not batches.rows or batches.interval_seconds <= batches.fixed_seconds:
            return []
        self._row_cost.add(signals.busy_seconds, batches.rows, signals.seconds)
        if not (cost := self._row_cost.value):
            return []
        room = batches.interval_seconds - batches.fixed_seconds
        fits = max(self._least_rows, int(room * signals.threads / cost))
        if _SAME_ROWS <= fits / max(1, batches.most_rows) <= 1 / _SAME_ROWS:
            return []
        reason = f"{room:.2f} s of a batch on {signals.threads} slots hold so many at {cost * 1e6:,.1f} µs"
        return [AdmitRows(before=batches.most_rows, after=fits, reason=reason)]
