"""Replicas of all operators at once, from what they have to do next (PRESPS, equations 1 to 6).

Equation 1 asks how many replicas can do in one period what is expected of an operator. What is expected is its share of
what will come to the sources (2), by the shares of all edges on the way (3, 4), and what waits already (5, 6). What a
tuple costs is measured while the flow runs, as core seconds and the least waiting that was ever seen for a tuple: wall
time would grow with every thread, and run away.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.elasticity.changes import Change, SetReplicas
from penstock.elasticity.forecast import Forecast
from penstock.elasticity.learning import Learnt
from penstock.elasticity.signals import Controller, OperatorSignals, Signals

_FADING = 0.7
_SLACK = 0.05
"""What is missing of a replica's work is not worth one more."""
_DEAD_BAND = 1.05
"""So many times the work must fit into fewer replicas before the others go."""
_CLEARLY_LESS = 3.0
"""A rate that has fallen by so many times what it usually changes by is no noise."""


@dataclass(frozen=True)
class Demanded:
    """What one operator has to do."""

    tuples: float
    """A second."""
    seconds_per_tuple: float
    hottest_share: float = 0.0

    @property
    def cores(self) -> float:
        return self.tuples * self.seconds_per_tuple

    def replicas(self, roomy: bool = False) -> int:
        """As many as can do it; no more than can do anything where one key has a good part of the tuples."""
        wanted = max(1, math.ceil(self.cores * _DEAD_BAND if roomy else self.cores - _SLACK))
        return min(wanted, math.floor(1 / max(self.hottest_share, 1e-6)) + 1)


class Predictive(Controller):
    """Sizes every operator in one decision, for what is expected to come in the next period.

    What waits is to be done within `drain_seconds`. A forecast may only raise the number: a wrong one costs little.
    Fewer replicas after `grace` periods in a row that could do with them, or at once where the load has clearly gone.
    """

    name = "predictive"
    settles = False

    def __init__(self, drain_seconds: float = 60.0, headroom: float = 0.0, grace: int = 2) -> None:
        self._drain_seconds = drain_seconds
        self._headroom = headroom
        self._rate = Forecast()
        self._learnt = Learnt()
        self._sized_for = 0.0
        """The rate for which there are as many replicas as there are."""
        self._recent: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=grace))

    def decide(self, signals: Signals) -> Sequence[Change]:
        self._learn(signals)
        rate = self.expected_rate(signals)
        if rate is None:
            return []
        demands = self.demands(signals, rate)
        reason = self._reason(signals, rate)
        has_gone = rate * _DEAD_BAND + _CLEARLY_LESS * self._rate.noise < self._sized_for
        at_most = self.demands(signals, rate + self._rate.noise)
        changes: list[Change] = []
        for name, demand in demands.items():
            one = signals.operators[name]
            wanted = self._wanted(signals, one, demand)
            enough = wanted if has_gone else self._wanted(signals, one, at_most[name], roomy=True)
            settled = self._settled(one, wanted, enough, at_once=has_gone)
            if settled != one.replicas:
                busy = f"{demand.cores:.2f} replicas' work ({demand.seconds_per_tuple * 1e6:,.0f} µs each)"
                changes.append(SetReplicas(name, before=one.replicas, after=settled, reason=f"{reason} {busy}"))
        if changes:
            self._sized_for = rate
        return changes

    # What is known

    def see(self, signals: Signals) -> None:
        if signals.offered_rate is not None:
            self._rate.add(signals.offered_rate)

    def _learn(self, signals: Signals) -> None:
        self.see(signals)
        self._learnt.add(signals)

    def expected_rate(self, signals: Signals) -> float | None:
        """Tuples a second to be ready for; where they can be read at any speed, as many as the cores can do."""
        if signals.offered_rate is not None:
            return max(self._rate.now, self._rate.next()) * (1 + self._headroom)
        sources = {name for name, one in signals.operators.items() if one.is_source}
        work = self._learnt.cpu_seconds_a_tuple(signals.operators.keys() - sources)
        if signals.is_gil_bound or not work:
            return None
        return signals.cores / work

    def demands(self, signals: Signals, rate: float) -> dict[str, Demanded]:
        """What every operator has to do a second, so that it keeps up and what waits is done in time."""
        found = {}
        is_open = signals.offered_rate is not None
        for name, one in signals.operators.items():
            if one.is_source or name not in self._learnt.costs:
                continue
            late = self._learnt.waiting(signals, name) / self._drain_seconds if is_open else 0.0
            tuples = rate * self._learnt.shares[name] + late
            found[name] = Demanded(tuples, self._learnt.costs[name].at(one.replicas), one.hottest_share)
        return found

    # How many

    def _wanted(self, signals: Signals, one: OperatorSignals, demand: Demanded, roomy: bool = False) -> int:
        """Where more replicas made tuples dearer, count on it going on like that."""
        count = demand.replicas(roomy)
        cost = self._learnt.costs[one.name]
        for _ in range(3):
            dearer = Demanded(demand.tuples, cost.at(count), demand.hottest_share).replicas(roomy)
            if dearer <= count:
                break
            count = dearer
        return min(max(min(count, self._useful(signals, one)), one.least_replicas), one.most_replicas)

    def _useful(self, signals: Signals, one: OperatorSignals) -> int:
        """Replicas that need a core are no use beyond the cores, or the GIL; those that wait need threads to do so."""
        if one.cpu_share < 0.5:
            return one.most_replicas if signals.has_thread_each else signals.threads
        return 1 if signals.is_gil_bound and not one.has_own_process else signals.cores

    def _settled(self, one: OperatorSignals, count: int, enough: int, at_once: bool = False) -> int:
        """More at once; fewer only if they were enough for a while, or the load has gone, and not by a hair."""
        recent = self._recent[one.name]
        recent.append(min(max(count, enough), one.replicas))
        if count >= one.replicas:
            return count
        if at_once:
            return recent[-1]
        return max(recent) if len(recent) == recent.maxlen else one.replicas

    def _reason(self, signals: Signals, rate: float) -> str:
        if signals.offered_rate is None:
            return f"{signals.cores} cores can take {rate:,.0f} tuples/s, for which it has"
        waiting = signals.backlog + sum(one.queue_length for one in signals.operators.values())
        behind = f" and {waiting:,} wait" if waiting > rate * signals.seconds else ""
        guess = f" ({self._rate.best})" if rate > self._rate.now * (1 + self._headroom) else ""
        return f"{rate:,.0f} tuples/s are expected{guess}{behind}, for which it has"
