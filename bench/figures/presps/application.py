"""The paper's application of four operators, on a spiky trace, under each system that is compared."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from elasticity.shown import changes

import penstock as ps
from figures.presps.systems import Dabs, Gate, Presps
from penstock.clock import Clock
from penstock.engines.simulated.platforms import VirtualCores
from penstock.observe.report import Report

COSTS = {"filter": 0.02, "analyse": 0.1, "classify": 0.2, "store": 0.04}
CORES = 56
"""Seven machines of eight."""
DECISION_SECONDS = 1.0
INTERVAL_SECONDS = 5.0
"""In which what comes is compared with what goes."""
SETTING = (
    "Simulated on 56 cores, as many as the paper's seven machines have. It does not tell its trace, its intervals, "
    "what a tuple costs, or how long DABS-Storm restarts; ours: 30 to 50 tweets a second, 170 to 190 in spikes of 30 s "
    "every two minutes; 20, 100, 200 and 40 ms for filter (which lets 70% through), analyse, classify and store, which "
    "is work for 51 replicas at the peak; decisions every second, as in appendix A; degradation over 5 s. PRESPS is "
    "equations 1 to 6 and algorithm 1 as printed. DABS-Storm sizes an operator anew that is expected to be busy for "
    "more than 80% or less than 20% of the next interval, loses what waits inside at each change, and stands still for "
    "3 s; what comes meanwhile waits outside."
)

_SHARES = {"filter": 1.0, "analyse": 0.7, "classify": 0.7, "store": 0.7}
_LEAVING_SECONDS = 30.0
"""After the trace, for what is under way."""
_RESTART_SECONDS = 3.0


def _trace(seconds: float) -> list[tuple[float, float]]:
    drawn = random.Random(7)
    steps = range(int(seconds / 10))
    return [(step * 10.0, drawn.uniform(30, 50) + (140 if step % 12 in (5, 6, 7) else 0)) for step in steps]


def _steered(controller: ps.Controller) -> ps.Elastic:
    return ps.Elastic(threads="fixed", replicas=controller, helping=False, period=DECISION_SECONDS)


_SYSTEMS: dict[str, Callable[[Gate], ps.Elastic]] = {
    "PRESPS": lambda gate: _steered(Presps(COSTS)),
    "DABS-Storm": lambda gate: _steered(Dabs(COSTS, gate)),
    "DABS-Storm, 1 s": lambda gate: _steered(Dabs(COSTS, gate)),
    "Penstock": lambda gate: ps.Elastic(),
    "Penstock, 60 s": lambda gate: ps.Elastic(drain_seconds=60),
    "Penstock, predictive": lambda gate: ps.Elastic(threads="fixed", replicas="predictive", helping=False),
}


class Clocked(ps.engines.Simulated):
    """The simulated engine, with a clock that functions can read."""

    clock: Clock

    def platform(self) -> VirtualCores:
        found = super().platform()
        self.clock = found.clock
        return found

    def now(self) -> float:
        return self.clock.now()


def points(systems: Sequence[str], seconds: float) -> dict[str, Callable[[], dict[str, Any]]]:
    return {system: partial(run, system, seconds) for system in systems}


def run(system: str, seconds: float) -> dict[str, Any]:
    """What table 3 and figures 3 and 4 tell of a system."""
    trace = _trace(seconds)
    rate = ps.rates.trace([*trace, (seconds, 0.0)])
    gate = Gate(rate, 1.0 if system == "DABS-Storm, 1 s" else _RESTART_SECONDS)
    engine = Clocked(
        cores=CORES,
        costs={name: gate.cost(cost) for name, cost in COSTS.items()},
        seconds=seconds + _LEAVING_SECONDS,
        queue_size=1_000_000,
        elastic=_SYSTEMS[system](gate),
    )
    gate.now = engine.now
    went: list[tuple[int, float]] = []

    def leave(tweet: int) -> None:
        if not gate.has_lost(tweet):
            went.append((tweet, engine.now()))

    report = _flow(rate, leave).run(engine)
    came = list(filter(_is_original, range(math.ceil(rate.count_by(seconds)))))
    tweets = [tweet for tweet, _ in went]
    assert all(one < other for one, other in pairwise(tweets)), "tweets overtook each other"
    assert gate.restarts or tweets == came, "tweets were lost without a restart"
    steps = _replicas(report)
    used = sum((after - at) * count for (at, count), (after, _) in pairwise([*steps, (seconds, 0)]) if at < seconds)
    peak = max(one for _, one in trace)
    over = sum(math.ceil(peak * _SHARES[name] * cost) for name, cost in COSTS.items())
    offered = _by_interval([rate.time_of(tweet) for tweet in came], seconds)
    throughput = _by_interval([at for _, at in went], seconds)
    return {
        "saved": 1 - used / (over * seconds),
        "degradation": statistics.fmean(abs(one - other) / one for one, other in zip(offered, throughput, strict=True)),
        "processed": len(tweets) / len(came),
        "latency_ms": 1000 * statistics.fmean(at - rate.time_of(tweet) for tweet, at in went),
        "replicas": _sampled(steps, seconds),
        "throughput": throughput,
        "offered": offered,
    }


def timed(values: Sequence[float]) -> list[tuple[float, float]]:
    """With the ends of the intervals that they are of."""
    return [((number + 1) * INTERVAL_SECONDS, value) for number, value in enumerate(values)]


def _flow(rate: ps.rates.Rate, leave: Callable[[int], None]) -> ps.Flow:
    flow = ps.Flow("tweets")
    stream = flow.read(ps.sources.generate(_itself, rate=rate), name="in")
    stream = stream.filter(_is_original, name="filter").map(_itself, name="analyse")
    stream = stream.key_by(lambda tweet: tweet * 7919 % 1000).stateful_map(_counted, init=int, name="classify")
    stream.map(_itself, name="store").write(ps.sinks.call(leave), name="out")
    return flow


def _is_original(tweet: int) -> bool:
    return tweet % 10 < 7


def _itself(tweet: int) -> int:
    return tweet


def _counted(state: int, tweet: int) -> tuple[int, int]:
    return state + 1, tweet


def _by_interval(moments: Sequence[float], seconds: float) -> list[float]:
    """How many a second."""
    counts = [0] * int(seconds / INTERVAL_SECONDS)
    for moment in moments:
        if moment < seconds:
            counts[int(moment / INTERVAL_SECONDS)] += 1
    return [count / INTERVAL_SECONDS for count in counts]


def _replicas(report: Report) -> list[tuple[float, int]]:
    """From when on there were so many of all operators together."""
    now = dict.fromkeys(COSTS, 1)
    found = {0.0: sum(now.values())}
    for one in changes(report, "replicas"):
        now[one.operator] = int(one.after)
        found[one.time] = sum(now.values())
    return list(found.items())


def _sampled(steps: Sequence[tuple[float, int]], seconds: float) -> list[int]:
    """At the end of each interval."""
    ends = [(number + 1) * INTERVAL_SECONDS for number in range(int(seconds / INTERVAL_SECONDS))]
    return [next(count for at, count in reversed(steps) if at <= end) for end in ends]
