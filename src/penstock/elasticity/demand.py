"""Threads and replicas of all operators in one decision, from what has to be done: the default.

Nothing is searched, so nothing has to settle after a change: what is offered, what a tuple costs and how many tuples
reach an operator don't depend on how many threads there are. Only where an operator waits for something else than a
core, and the offered rate is not known, more are tried for as long as that pays.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from penstock.elasticity.changes import Change, SetReplicas, SetThreads
from penstock.elasticity.learning import Learnt
from penstock.elasticity.signals import Controller, OperatorSignals, Signals

_SPARE = 0.5
"""Beside those that are busy, as a multiple of how much that number varies: by its square root, as in a call centre."""
_NOISE_SHARE = 0.07
"""And at least so much of their number, which loads that are steady vary by."""
_ONE_IS_ENOUGH = 0.8
"""So much work is left to one worker."""
_FULL = 0.98
"""More are wanted when so much of those that there are is needed."""
_WORTH_LOWERING = 7 / 8
_LEAST_THREADS_BUSY = 0.9
_LIMIT = 0.95
_AT_THE_LIMIT = 1.5
"""At the machine's limit: replicas as a multiple of those that have work, so that no core waits for an operator."""
_MOST_CROWDING = 4.0
_CROWDED = 0.25
"""A queue that is so full has work for more replicas."""
_BIG_FALL = 0.5
_BIG_FALL_SECONDS = 0.75
_STILL = 0.9
_BEHIND_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0
"""For so long a change that was asked for may take before it is asked for again."""
"""Of so many, so few are enough for so long: that is no pause for breath."""
_LEAST_TUPLES = 20
_RATE_SECONDS = 1.0
"""A rate is that of the last period; or of the last second, as long as fewer tuples than that have come."""
_NOISE = 1.12
"""A rate that was higher by no more than that is expected again, for `_NOISE_SECONDS`."""
_NOISE_SECONDS = 10.0
_PAYS = 1.2
_TRY_AGAIN_SECONDS = 30.0


class Demand(Controller):
    """As many threads and replicas as have work now, at once; fewer when that was enough for `hold_seconds`.

    What waits is to be done within `drain_seconds`. `of_threads` and `of_replicas` say what it decides about.
    """

    name = "demand"
    settles = False

    def __init__(
        self,
        drain_seconds: float = 2.0,
        hold_seconds: float = 2.0,
        of_threads: bool = True,
        of_replicas: bool = True,
    ) -> None:
        self._drain_seconds = drain_seconds
        self._of_threads = of_threads
        self._of_replicas = of_replicas
        self._learnt = Learnt()
        self._rate = _OfferedRate()
        self._sizes = _Sizes(hold_seconds)
        self._tries = _Tries()
        self._crowds = _Crowds()

    def see(self, signals: Signals) -> None:
        self._learnt.add(signals)
        self._rate.add(signals)

    def decide(self, signals: Signals) -> Sequence[Change]:
        self.see(signals)
        places = self._tries.places(signals, self._learnt)
        work = WorkPlan(signals, self._learnt, self._offered(signals, self._rate.now), places, self._drain_seconds)
        expected = WorkPlan(signals, self._learnt, self._offered(signals, self._rate.peak), places, self._drain_seconds)
        is_behind = work.late > _BEHIND_SECONDS * work.rate
        is_pressed = expected.is_limited or expected.is_saturated or is_behind
        crowded = self._crowds.found(signals) if is_pressed else frozenset()
        sizes: dict[str, Size] = {}
        if self._of_threads and not signals.has_thread_each:
            needed, least = min(work.threads, signals.most_threads), signals.least_threads
            wanted, enough = (min(max(plan.wanted_threads(), least), signals.most_threads) for plan in (expected, work))
            sizes[""] = Size(signals.threads, needed, wanted, enough)
        if self._of_replicas:
            for name in work.needs:
                if name in places:
                    continue
                one, factor = signals.operators[name], self._crowds.factor(name)
                wanted, enough = (
                    min(max(plan.wanted_replicas(one, factor), one.least_replicas), one.most_replicas)
                    for plan in (expected, work)
                )
                needed = min(work.needed(one), one.most_replicas)
                sizes[name] = Size(one.replicas, needed, wanted, enough, name in crowded)
        settled = self._sizes.settled(sizes, signals.time, may_lower=signals.offered_rate is not None)
        if self._of_replicas:
            settled |= {name: count for name, count in places.items() if count > signals.operators[name].replicas}
        return [self._change(signals, work, name, count) for name, count in settled.items()]

    def accept(self, changes: Sequence[Change], signals: Signals) -> None:
        for change in changes:
            self._sizes.ask(change.operator, int(change.before), int(change.after), signals.time)

    def _offered(self, signals: Signals, rate: float) -> float | None:
        return None if signals.offered_rate is None else rate

    def _change(self, signals: Signals, work: WorkPlan, name: str, after: int) -> Change:
        before = signals.operators[name].replicas if name else signals.threads
        if signals.offered_rate is None:
            why = f"{signals.cores} cores can take {work.rate:,.0f} tuples/s"
        else:
            behind = f" and {work.late:,.0f} wait" if work.late > work.rate * signals.seconds else ""
            why = f"{self._rate.now:,.0f} tuples/s come{behind}"
        if not name:
            return SetThreads(before=before, after=after, reason=f"{why}, which is work for {work.threads:.1f} threads")
        cost = self._learnt.costs[name].seconds
        reason = f"{why}, for which it has {work.needs[name]:.2f} replicas' work ({cost * 1e6:,.0f} µs each)"
        return SetReplicas(name, before=before, after=after, reason=reason)


@dataclass(frozen=True)
class Size:
    """One number: what it is, how much of it is needed, and what it should be so that there is something to spare."""

    now: int
    needed: float
    wanted: int
    """For the most that has come lately."""
    enough: int
    """For what comes now."""
    is_urgent: bool = False
    """Whether the number is to go up although it is more than is needed."""

    @property
    def is_short(self) -> bool:
        return self.wanted > self.now and (self.is_urgent or self.needed > _FULL * self.now)


class _Sizes:
    """More at once, all together; fewer when they were enough for a while, and not by a hair."""

    def __init__(self, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._recent: deque[tuple[float, Mapping[str, Size]]] = deque()
        self._asked: dict[str, tuple[float, int, int]] = {}
        """When a number was to change, from what and to what."""

    def settled(self, sizes: Mapping[str, Size], time: float, may_lower: bool) -> dict[str, int]:
        """The numbers that are to change now."""
        sizes = {name: self._with_what_was_asked(name, size, time) for name, size in sizes.items()}
        self._recent.append((time, sizes))
        while self._recent[0][0] <= time - self._hold_seconds:
            self._recent.popleft()
        return self._changed(sizes, time, may_lower)

    def ask(self, name: str, before: int, after: int, time: float) -> None:
        """A number is to change from now on: its operator may have to finish something first."""
        self._asked[name] = (time, before, after)

    def _with_what_was_asked(self, name: str, size: Size, time: float) -> Size:
        since, before, after = self._asked.get(name, (-math.inf, 0, 0))
        is_on_its_way = size.now == before and time < since + _PATIENCE_SECONDS
        return replace(size, now=after) if is_on_its_way else size

    def _changed(self, sizes: Mapping[str, Size], time: float, may_lower: bool) -> dict[str, int]:
        if any(one.is_short for one in sizes.values()):
            return {name: one.wanted for name, one in sizes.items() if one.wanted > one.now}
        if not may_lower or len(self._recent) < 2 or time < min(1.0, self._hold_seconds):
            return {}
        wanted = self._most(sizes, time - self._hold_seconds, lambda size: size.wanted)
        soon = self._most(sizes, time - _BIG_FALL_SECONDS, lambda size: size.enough)
        if sum(soon.values()) <= _BIG_FALL * sum(one.now for one in sizes.values()) and not self._is_falling():
            wanted = soon
        return {name: count for name, count in wanted.items() if count <= _WORTH_LOWERING * sizes[name].now}

    def _is_falling(self) -> bool:
        """Whether even less is enough than at the last look: then all is lowered at once, when that is over."""
        before, now = (sum(one.enough for one in seen.values()) for _, seen in list(self._recent)[-2:])
        return now < _STILL * before

    def _most(self, names: Iterable[str], since: float, count: Callable[[Size], int]) -> dict[str, int]:
        """By name, the most that was needed since then."""
        recent = [seen for time, seen in self._recent if time > since]
        return {name: max(count(seen[name]) for seen in recent if name in seen) for name in names}


class _OfferedRate:
    """Tuples a second that come: now, and at most lately."""

    def __init__(self) -> None:
        self._periods: deque[tuple[float, float, float]] = deque()
        """When it ended, how long it was, and how many tuples have come in it."""
        self._rates: deque[tuple[float, float]] = deque()

    def add(self, signals: Signals) -> None:
        if signals.offered_rate is None:
            return
        time = signals.time
        self._periods.append((time, signals.seconds, signals.offered_rate * signals.seconds))
        while self._periods[0][0] <= time - max(_RATE_SECONDS, signals.seconds):
            self._periods.popleft()
        self._rates.append((time, self._of_last_periods()))
        while self._rates[0][0] <= time - _NOISE_SECONDS:
            self._rates.popleft()

    def _of_last_periods(self) -> float:
        seconds = tuples = 0.0
        for _, length, count in reversed(self._periods):
            seconds, tuples = seconds + length, tuples + count
            if tuples >= _LEAST_TUPLES:
                break
        return tuples / seconds

    @property
    def now(self) -> float:
        return self._rates[-1][1] if self._rates else 0.0

    @property
    def peak(self) -> float:
        """What is expected at most: what varies by a little is noise, and will be back."""
        return max((rate for _, rate in self._rates if rate <= _NOISE * self.now), default=0.0)


class WorkPlan:
    """What every operator has to do a second, no more than the machine and the slowest operator can."""

    def __init__(
        self,
        signals: Signals,
        learnt: Learnt,
        offered: float | None,
        places: Mapping[str, int],
        drain_seconds: float,
    ) -> None:
        self._signals = signals
        self._learnt = learnt
        self._cores = 1 if signals.is_gil_bound else signals.cores
        if not signals.has_thread_each:
            self._cores = min(self._cores, signals.most_threads)
        known = [name for name, one in signals.operators.items() if name in learnt.costs and one.name]
        self.late = max((learnt.waiting(signals, name) for name in known), default=0.0)
        cpu = learnt.cpu_seconds_a_tuple()
        self.rate = offered if offered is not None else self._cores / cpu if cpu else 0.0
        self._cpu: dict[str, float] = {}
        self._waits: dict[str, float] = {}
        for name in known:
            cost, tuples = learnt.costs[name], self.rate * learnt.shares[name]
            if offered is not None:
                tuples += learnt.waiting(signals, name) / drain_seconds
            self._cpu[name] = tuples * cost.cpu_seconds
            self._waits[name] = tuples * cost.waiting_seconds
        wanted_cores = sum(self._cpu.values())
        for names in _connected(signals):
            self._scale(names, self._slowest(names, places))
        cores = sum(self._cpu.values())
        if cores > self._cores:
            self._scale(self._cpu, self._cores / cores)
        self.is_saturated = offered is None
        self.is_limited = wanted_cores >= _LIMIT * self._cores and sum(self._cpu.values()) >= _LIMIT * self._cores
        """Whether all cores have work, and some waits."""

    def _slowest(self, names: Sequence[str], places: Mapping[str, int]) -> float:
        """How much of its work the slowest of operators that hold each other up can do."""
        shares = [1.0]
        for name in names:
            need = self._cpu.get(name, 0.0) + self._waits.get(name, 0.0)
            one = self._signals.operators[name]
            if not one.is_source and need > (most := _most_workers(one, places)):
                shares.append(most / need)
        return min(shares)

    def _scale(self, names: Sequence[str] | Mapping[str, float], share: float) -> None:
        if share < 1:
            for name in names:
                if name in self._cpu:
                    self._cpu[name] *= share
                    self._waits[name] *= share

    @property
    def needs(self) -> dict[str, float]:
        """Workers that are in an operator at once, on average."""
        operators = self._signals.operators
        return {name: cpu + self._waits[name] for name, cpu in self._cpu.items() if not operators[name].is_source}

    @property
    def threads(self) -> float:
        """Workers that are in any operator at once, on average."""
        return sum(self._cpu.values()) + sum(self._waits.values())

    def wanted_threads(self) -> int:
        """All cores where they have work; and those that wait need none."""
        waiting = _with_spare(sum(self._waits.values())) if sum(self._waits.values()) >= _ONE_IS_ENOUGH else 0
        if self.is_limited:
            return self._cores + waiting
        return min(_with_spare(self.threads), self._cores + waiting)

    def needed(self, one: OperatorSignals) -> float:
        """Workers that are in an operator at once.

        One worker runs a fused loop: where that is too little, the dearest operator that can have replicas is to leave.
        """
        needs, operators = self.needs, self._signals.operators
        loop = [name for name in needs if one.loop and operators[name].loop == one.loop]
        together = sum(needs[name] for name in loop)
        dearest = max((name for name in loop if operators[name].most_replicas > 1), key=needs.__getitem__, default="")
        return together if together > _FULL and one.name == dearest else needs[one.name]

    def wanted_replicas(self, one: OperatorSignals, factor: float) -> int:
        """As many as can be of use, where the machine is the limit."""
        if one.name not in self._cpu:
            return one.replicas
        need = self.needs[one.name]
        wanted = _with_spare(need)
        if self.needed(one) > need:
            wanted = max(wanted, 2)
        if self.is_limited and (need >= _ONE_IS_ENOUGH or one.queue_share > _CROWDED):
            wanted = max(wanted, math.ceil(_AT_THE_LIMIT * need + 0.5))
        if self._waits[one.name] <= self._cpu[one.name]:
            wanted = min(math.ceil(wanted * factor), self._cores)
        elif not self._signals.has_thread_each:
            wanted = min(wanted, self._signals.most_threads)
        return min(wanted, _most_workers(one, {}, factor))


def _with_spare(need: float) -> int:
    """So many that hardly ever all are busy.

    >>> [_with_spare(need) for need in (0.0, 0.6, 0.9, 2.0, 9.0)]
    [1, 1, 2, 3, 11]
    """
    return 1 if need < _ONE_IS_ENOUGH else math.ceil(need + max(_SPARE * math.sqrt(need), _NOISE_SHARE * need) - 1e-9)


def _most_workers(one: OperatorSignals, places: Mapping[str, int], factor: float = 1.0) -> int:
    """No more than can do anything where one key has a good part of the tuples; a few more where they take turns."""
    hot = math.floor(min(factor, 2.0) / one.hottest_share) + 1 if one.hottest_share > 0 else one.most_replicas
    return max(1, min(one.most_replicas, hot, places.get(one.name, one.most_replicas)))


def _connected(signals: Signals) -> list[list[str]]:
    """Operators that hold each other up: those that are on ways that meet.

    >>> one, other = OperatorSignals("a", inputs={"in": 1}), OperatorSignals("in")
    >>> _connected(Signals(1.0, 1.0, {"in": other, "a": one, "b": OperatorSignals("b")}))
    [['in', 'a'], ['b']]
    """
    groups: dict[str, list[str]] = {name: [name] for name in signals.operators}
    for name, one in signals.operators.items():
        for before in one.inputs:
            if before in groups and groups[before] is not groups[name]:
                joined = groups[before]
                joined += groups[name]
                for member in groups[name]:
                    groups[member] = joined
    return list({id(group): group for group in groups.values()}.values())


class _Crowds:
    """Operators whose queues stay full while threads have time: twice as many replicas, until one of the two ends.

    Replicas can stand in each other's way: they take turns at keys, and wait for what comes before theirs.
    """

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}
        self._since = 0.0

    def factor(self, name: str) -> float:
        return self._factors.get(name, 1.0)

    def found(self, signals: Signals) -> Set[str]:
        """The operators that it is now twice as much for."""
        if signals.utilisation > _LEAST_THREADS_BUSY or signals.time < self._since + 2 * signals.seconds:
            return frozenset()
        crowded = {name for name, one in signals.operators.items() if self._is_crowded(signals, one)}
        for name in crowded:
            self._factors[name] = min(2 * self.factor(name), _MOST_CROWDING)
            self._since = signals.time
        return crowded

    @staticmethod
    def _is_crowded(signals: Signals, one: OperatorSignals) -> bool:
        is_full = one.queue_share > _CROWDED and signals.output_full_share(one.name) < _CROWDED
        return is_full and 1 < one.replicas < min(signals.cores, one.most_replicas)


@dataclass
class _Trial:
    """How many may wait in an operator, and what that has brought."""

    places: int
    since: float
    """When that was changed."""
    received: int = 0
    seconds: float = 0.0
    """What came, and for how long, since it has settled."""
    before: float = 0.0
    """Tuples a second with half as many."""
    cost: float | None = None
    """What a tuple cost when more did not pay; `None` as long as they do."""


class _Tries:
    """Where operators wait and the offered rate is not known: twice as many, as long as that pays."""

    def __init__(self) -> None:
        self._tries: dict[str, _Trial] = {}

    def places(self, signals: Signals, learnt: Learnt) -> dict[str, int]:
        """By operator: how many are to wait in it."""
        if signals.offered_rate is not None:
            self._tries.clear()
            return {}
        for name, one in signals.operators.items():
            if one.is_source or name not in learnt.costs:
                continue
            if not learnt.costs[name].waits:
                self._tries.pop(name, None)
                continue
            tried = self._tries.setdefault(name, _Trial(one.replicas, since=signals.time - signals.seconds))
            self._look(signals, one, tried, learnt.costs[name].seconds)
        return {name: tried.places for name, tried in self._tries.items()}

    def _look(self, signals: Signals, one: OperatorSignals, tried: _Trial, cost: float) -> None:
        if signals.time - signals.seconds < tried.since + cost or one.replicas < tried.places:
            return  # what was changed is not to be seen yet
        if tried.cost is not None:
            is_other = not 0.7 < cost / tried.cost < 1.4
            if not is_other and signals.time < tried.since + _TRY_AGAIN_SECONDS:
                return
            tried.cost, tried.before, tried.received, tried.seconds = None, 0.0, 0, 0.0
        tried.received, tried.seconds = tried.received + one.received, tried.seconds + signals.seconds
        if tried.seconds < 2 * cost or tried.received < _LEAST_TUPLES:
            return
        rate = tried.received / tried.seconds
        if rate < _PAYS * tried.before:
            tried.cost, tried.since = cost, signals.time
            return
        most = min(_most_workers(one, {}), signals.most_threads)
        if rate * cost >= _ONE_IS_ENOUGH * tried.places and tried.places < most:
            tried.places = min(most, max(2 * tried.places, signals.cores))
            tried.before, tried.since = rate, signals.time
        tried.received, tried.seconds = 0, 0.0
