"""How many threads: by utilisation (C-Stream, section 4.1), or by trust and trend (IBM Streams 4.2, section 4.2)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.elasticity.changes import Change, SetThreads
from penstock.elasticity.demand import Demand
from penstock.elasticity.signals import Controller, Signals

SENSITIVITY = 0.05
MOST_SYSTEM_CPU = 0.8
_PERIODS = 5
"""What threads have done is averaged over so many periods."""
_JUMP = 0.25
"""Unless their utilisation has changed by so much."""
_SPARE = 1.5
"""Threads beside those that are busy, as a multiple of how much that number varies."""


class Utilisation(Controller):
    """One thread more while threads are busy nearly all the time, one fewer while they are idle a good part of it."""

    name = "utilisation"

    def __init__(self, low: float = 0.90, high: float = 0.95) -> None:
        self._low = low
        self._high = high

    def decide(self, signals: Signals) -> Sequence[Change]:
        level, used = signals.threads, signals.utilisation
        if used > self._high and level < signals.useful_threads:
            return [_threads(level, level + 1, f"threads are busy {used:.0%} of the time")]
        # With one fewer, the others have its work to do: not if that would make them ask for it again.
        if used < self._low and level > signals.least_threads and used * level / (level - 1) <= self._high:
            return [_threads(level, level - 1, f"threads are busy only {used:.0%} of the time")]
        return []


@dataclass
class Record:
    """What is known of a number of threads."""

    throughput: float
    is_trusted: bool = True
    enough: int = 0
    """How many threads could have done what was done; 0 where that was not asked."""
    utilisation: float = 0.0
    periods: int = 1
    """How many of them these figures are the average of."""


def levels(least: int, most: int, growth: float) -> list[int]:
    """Numbers of threads, each so many times the one before, and at least one more.

    >>> levels(1, 20, 1.5)
    [1, 2, 3, 5, 8, 12, 18, 20]
    """
    found = [least]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, math.ceil(found[-1] * growth))))
    return found


class Figure7(Controller):
    """The algorithm of figure 7 as it is printed, with no memory; for comparison.

    Its levels are one by one, or, where they need not be linear, each `growth` times the one below. `rule` is the
    number, in the paper's list, of the one that was last followed.
    """

    name = "figure-7"

    def __init__(
        self, sensitivity: float = SENSITIVITY, most_system_cpu: float = MOST_SYSTEM_CPU, growth: float = 1.0
    ) -> None:
        self._growth = growth
        self._sensitivity = sensitivity
        self._most_system_cpu = most_system_cpu
        self._records: dict[int, Record] = {}
        self._held_periods = 0
        self.rule = 6

    def decide(self, signals: Signals) -> Sequence[Change]:
        if self._is_held_up(signals):
            return []  # what was to happen has not happened yet
        return self._by_rule(signals)

    def _by_rule(self, signals: Signals) -> Sequence[Change]:
        level, throughput = signals.threads, signals.throughput
        if self.change_in_load(level, throughput):
            for record in self._records.values():
                record.is_trusted = False
        self._records[level] = self.record(level, throughput)
        below, above = self.neighbours(signals)
        self.rule, wanted = self._followed(signals, below, above)
        if wanted == level:
            return []
        return [_threads(level, wanted, self._reason(level, below, above))]

    def _is_held_up(self, signals: Signals) -> bool:
        """Whether threads are held by what users' functions do; those that are held for ever are not waited for."""
        self._held_periods = self._held_periods + 1 if signals.stuck_threads else 0
        return 0 < self._held_periods <= _PERIODS

    def record(self, level: int, throughput: float) -> Record:
        return Record(throughput)

    def change_in_load(self, level: int, throughput: float) -> bool:
        """Whether this level now gives something else than it has given before."""
        known = self._records.get(level)
        return known is not None and known.is_trusted and self._differ(throughput, known.throughput)

    def neighbours(self, signals: Signals) -> tuple[int | None, int | None]:
        level = signals.threads
        found = levels(signals.least_threads, signals.most_threads, self._growth)
        place = bisect_left(found, level)
        below = found[place - 1] if place else None
        above = next((one for one in found[place:] if one > level), None)
        return below, above if above is not None and above <= signals.useful_threads else None

    def _followed(self, signals: Signals, below: int | None, above: int | None) -> tuple[int, int]:
        """The rule that applies, and the level that it leads to."""
        level, throughput = signals.threads, signals.throughput
        trend_below = self._trusts(below) and self._is_better(throughput, self._at(below))
        trend_above = self._trusts(above) and self._is_better(self._at(above), throughput)
        upward = [
            (1, trend_below and not self._trusts(above)),
            (2, trend_above),
            (3, below is None and not self._trusts(above)),
        ]
        if above is not None and self._may_add(signals):
            for rule, applies in upward:
                if applies:
                    return rule, above
        if below is not None and not self._trusts(below):
            return 4, below
        if below is not None and not trend_below:
            return 5, below
        return 6, level

    def _may_add(self, signals: Signals) -> bool:
        """The CPU guard: others are on this machine too."""
        others = signals.system_cpu - signals.cores_used / max(1, signals.cores)
        return signals.system_cpu < self._most_system_cpu or others < 1 - self._most_system_cpu

    def _trusts(self, level: int | None) -> bool:
        return level in self._records and self._records[level].is_trusted

    def _at(self, level: int | None) -> float:
        assert level is not None
        return self._records[level].throughput

    def _is_better(self, throughput: float, other: float) -> bool:
        return throughput > other * (1 + self._sensitivity)

    def _differ(self, one: float, other: float) -> bool:
        return abs(one - other) > self._sensitivity * max(one, other)

    def _reason(self, level: int, below: int | None, above: int | None) -> str:
        here = f"{self._at(level):,.0f} tuples/s with {level}"
        match self.rule:
            case 1:
                return f"{here} threads is more than {self._at(below):,.0f} with {below}, and {above} were not tried"
            case 2:
                return f"{self._at(above):,.0f} tuples/s were seen with {above} threads, and {here}"
            case 3:
                return f"there is one thread, and {above} were not tried"
            case 4:
                return f"{below} threads were not tried under this load"
        return f"{here} threads is no more than {self._at(below):,.0f} with {below}"


class Trend(Figure7):
    """The same six rules, with levels that are worked out instead of tried one by one, and a memory of past loads.

    Threads that are idle a good part of the time are known to be too many, and how many are enough follows from how
    busy they are; so the level below is that one, and the step up doubles. Where threads are never idle, fewer can't do
    as much: the data below is trusted without going there. What was found under a load is kept, and when that load
    comes back it is there at once: the paper's algorithm searches again, and oscillates.

    Where it is known what is offered, throughput says what came and not what a level can do: there `Demand` decides.
    """

    name = "trend"

    def __init__(
        self, sensitivity: float = SENSITIVITY, most_system_cpu: float = MOST_SYSTEM_CPU, busy_share: float = 0.9
    ) -> None:
        super().__init__(sensitivity, most_system_cpu)
        self._busy_share = busy_share
        self._demand = Demand(of_replicas=False)
        self._enough = 1
        self._used = 0.0
        self._periods = 1
        self._memory: list[tuple[float, int, dict[int, Record]]] = []
        """Loads (seconds of work for a tuple), where they settled, and what was seen under them."""
        self._load: float | None = None
        self._strange = 0

    def see(self, signals: Signals) -> None:
        self._demand.see(signals)

    def accept(self, changes: Sequence[Change], signals: Signals) -> None:
        self._demand.accept(changes, signals)

    def decide(self, signals: Signals) -> Sequence[Change]:
        if signals.offered_rate is not None:
            return self._demand.decide(signals)
        self.see(signals)
        if not signals.throughput or self._is_held_up(signals):
            return []
        level = signals.threads
        self._used, self._periods = self._averaged(signals)
        self._enough = self._enough_for(signals)
        recalled = self._recalled(signals)
        if recalled is not None and recalled != level:
            return [_threads(level, recalled, f"{recalled} threads were best when the load was like this before")]
        return self._by_rule(signals)

    def _averaged(self, signals: Signals) -> tuple[float, int]:
        """How busy threads are, over the last periods with as many of them, unless that has just changed."""
        known, now = self._records.get(signals.threads), signals.utilisation
        if known is None or abs(now - known.utilisation) > _JUMP:
            return now, 1
        periods = min(known.periods + 1, _PERIODS)
        return known.utilisation + (now - known.utilisation) / periods, periods

    def _enough_for(self, signals: Signals) -> int:
        """As many as are busy, and some for when more are; all of them, where few would go.

        How many are busy varies with the square root of how many that is, as in a call centre.
        """
        level = signals.threads
        busy = self._used * level
        needed = busy + _SPARE * math.sqrt(busy)
        enough = max(signals.least_threads, math.ceil(needed - 1e-9))
        return level if level - needed < 1.0 or level - enough < level / 8 else enough

    def record(self, level: int, throughput: float) -> Record:
        """Averaged with what was seen there before: one period may be better than the next by chance."""
        known = self._records.get(level)
        if known is not None and self._periods > 1:
            throughput = known.throughput + (throughput - known.throughput) / self._periods
        return Record(throughput, enough=self._enough, utilisation=self._used, periods=self._periods)

    def change_in_load(self, level: int, throughput: float) -> bool:
        return False  # noticed by what a tuple costs, which does not depend on the level

    def _recalled(self, signals: Signals) -> int | None:
        """Under another load: forget what was seen, or remember what was seen under that one."""
        handled = signals.throughput * signals.seconds
        load = signals.busy_seconds / handled
        if self._load is None or not self._is_other(load, self._load, signals):
            self._strange = 0
            self._load = load if self._load is None else 0.8 * self._load + 0.2 * load
            return None
        self._strange += 1
        if self._strange < 2:  # once may be chance
            return None
        self._strange = 0
        if self._records:
            best = max(self._records, key=lambda level: (self._records[level].throughput, -level))
            self._memory = [kept for kept in self._memory if self._is_other(kept[0], self._load, signals)][-19:]
            self._memory.append((self._load, best, self._records))
        self._load, self._records = load, {}
        for kept, level, records in self._memory:
            if not self._is_other(load, kept, signals):
                self._records = dict(records)
                return min(max(level, signals.least_threads), signals.most_threads)
        return None

    def _is_other(self, one: float, other: float, signals: Signals) -> bool:
        """A tuple costs clearly more or less than it did; threads that fight for something may double it."""
        return max(one, other) > 2.5 * min(one, other)

    def neighbours(self, signals: Signals) -> tuple[int | None, int | None]:
        level, enough = signals.threads, self._enough
        known = [other for other in self._records if self._records[other].is_trusted]
        below: int | None = max((other for other in known if other < level), default=None)
        if enough < level and (below is None or below < enough):
            below = enough
        above: int | None = min((other for other in known if other > level), default=None)
        seen_above = [self._records[other].enough for other in known if other > level]
        if signals.utilisation < self._busy_share or any(0 < seen <= level for seen in seen_above):
            return below, above  # those that there are have time, or there was no work for more
        if above is None:
            above = min(2 * level, signals.useful_threads)
        elif above - level > max(1, level // 4) and not self._is_better(self._at(above), self._at(level)):
            above = (level + above) // 2  # what is best lies between the two
        if above is not None and (above <= level or above > signals.useful_threads):
            above = None
        return below, above

    def _followed(self, signals: Signals, below: int | None, above: int | None) -> tuple[int, int]:
        level = signals.threads
        may_be_better = not self._trusts(below) or self._is_better(self._at(level), self._at(below))
        if above is not None and not self._trusts(above) and may_be_better and self._may_add(signals):
            return (3 if below is None else 1), above
        # Where threads have time, it takes more to believe that others would help.
        margin = self._sensitivity if self._used >= self._busy_share else 2 * self._sensitivity
        if self._trusts(above) and self._may_add(signals) and self._at(above) > self._at(level) * (1 + margin):
            assert above is not None
            return 2, above
        if below is not None and not self._trusts(below):
            return 4, below
        if below is not None and not self._is_worse(self._at(below), self._at(level)):
            return 5, below
        return 6, level

    def _is_worse(self, throughput: float, other: float) -> bool:
        """Half as sensitive as what leads upward, so that two levels don't take turns."""
        return throughput < other * (1 - self._sensitivity / 2)

    def _reason(self, level: int, below: int | None, above: int | None) -> str:
        if self.rule == 4:
            return f"{level} threads have work for {below}"
        if self.rule in (1, 3):
            return f"all {level} threads are busy all the time, and {above} were not tried under this load"
        return super()._reason(level, below, above)


def _threads(before: int, after: int, reason: str) -> Change:
    return SetThreads(before=before, after=after, reason=reason)
