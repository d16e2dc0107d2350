"""How many replicas, simulated: a word count whose best numbers are known, and loads that change."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import penstock as ps
from elasticity.shown import changes, shown
from penstock.elasticity.signals import Signals
from penstock.observe.report import Report


def word_count(rate: ps.rates.Rate, key: Callable[[int], int], words: int = 20) -> ps.Flow:
    flow = ps.Flow("word-count")
    sentences = flow.read(ps.sources.generate(lambda n: n, rate=rate), name="in")
    split = sentences.flat_map(lambda n: range(n * words, n * words + words), name="split")
    split.key_by(key).count(name="count").write(ps.sinks.null(), name="out")
    return flow


def even_key(word: int) -> int:
    return word * 7919 % 5000


def hot_key(word: int) -> int:
    return 0 if word % 10 < 7 else word * 7919 % 5000


def words(seconds: float) -> None:
    """A splitter takes 10 sentences a second, a counter 100 words; 91 sentences of 20 words come in a second."""
    print("\nRate-limited word count (Dhalion, DS2), simulated on 100 cores: decisions, replicas (fewest that keep up)")
    shown("", "decisions", "split (best)", "count (best)", "most of each")
    cases: list[tuple[str, float, Callable[[int], int], float, dict[str, float]]] = [
        ("linear", 0.0, even_key, 91.0, {"split": 1 / 10, "count": 1 / 100}),
        ("each dearer beside others (30%)", 0.3, even_key, 91.0, {"split": 1 / 10, "count": 1 / 100}),
        ("70% of words on one key", 0.0, hot_key, 6.5, {"split": 1 / 1, "count": 1 / 100}),
    ]
    for name, crowding, key, rate, costs in cases:
        machine = ps.engines.Machine(crowding_share=crowding)

        def run(replicas: dict[str, int] | None, name=name, key=key, rate=rate, costs=costs, machine=machine) -> Report:
            flow = word_count(ps.rates.constant(rate), key)
            elastic = ps.Elastic(threads="fixed", helping=False) if replicas is None else None
            options: dict[str, Any] = {"elastic": elastic} if elastic else {}
            # As many sentences at least that those under way in the end don't matter.
            until = max(seconds, 1500 / rate)
            engine = ps.engines.Simulated(
                cores=100, costs=costs, seconds=until, machine=machine, queue_size=1_000_000, **options
            )
            if replicas is None:
                return flow.run(engine)
            job = flow.start(engine)
            for operator, count in replicas.items():
                job.rescale(operator, count)
            return job.wait()

        report = run(None)
        decided = {operator: changes(report, "replicas", operator) for operator in ("split", "count")}
        last = {operator: int(own[-1].after) if own else 1 for operator, own in decided.items()}
        most = {operator: max([1, *(int(one.after) for one in own)]) for operator, own in decided.items()}
        best = fewest(run, last)
        moments = len({one.time for own in decided.values() for one in own})
        shown(
            name,
            str(moments),
            *(f"{last[operator]} ({best[operator]})" for operator in ("split", "count")),
            f"{most['split']}, {most['count']}",
        )


def fewest(run: Callable[[dict[str, int]], Report], near: dict[str, int]) -> dict[str, int]:
    """The fewest replicas of each that keep up, the other having more than enough: what is offered comes out."""
    best = {}
    for operator, count in near.items():
        enough = {name: 90 for name in near if name != operator}

        def keeps_up(count: int, operator=operator, enough=enough) -> bool:
            report = run({**enough, operator: count})
            received, read = report.operators[operator].received, report.operators["in"].emitted
            return received >= 0.99 * read * (20 if operator == "count" else 1)

        while count > 1 and keeps_up(count - 1):
            count -= 1
        while not keeps_up(count) and count < 90:
            count += 1
        best[operator] = count
    return best


# Load that changes


@dataclass(frozen=True)
class Use:
    """What a run has used, and what came of it."""

    replica_seconds: float
    processed_share: float
    p99: float
    mean_degradation: float


def replica_seconds(report: Report, operator: str, start: int = 1) -> float:
    """Replicas, times how long each number of them was there."""
    total, since, count = 0.0, 0.0, start
    for one in changes(report, "replicas", operator):
        total += count * (one.time - since)
        since, count = one.time, int(one.after)
    return total + count * (report.elapsed_seconds - since)


def one_operator(rate: ps.rates.Rate, cost: float, seconds: float, elastic: ps.Elastic | None, replicas: int) -> Report:
    flow = ps.Flow("load")
    stream = flow.read(ps.sources.generate(lambda n: n, rate=rate), name="in")
    own = replicas if elastic is None else None
    stream.map(lambda n: n, name="op", replicas=own).write(ps.sinks.null(), name="out")
    options: dict[str, Any] = {"elastic": elastic} if elastic else {}
    return flow.run(
        ps.engines.Simulated(
            cores=64, costs={"op": cost}, seconds=seconds, compute=False, queue_size=1_000_000, **options
        )
    )


def clairvoyant(rate: ps.rates.Rate, cost: float, seconds: float, period: float = 1.0) -> float:
    """The replica seconds of one who knows what comes: in each period as many as its tuples need."""
    total = 0.0
    for number in range(int(seconds / period)):
        came = rate.count_by((number + 1) * period) - rate.count_by(number * period)
        total += period * max(1, math.ceil(came * cost / period))
    return total


class Reactive(ps.Controller):
    """For comparison: as many replicas as the last period has needed."""

    name = "reactive"

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        found = []
        for one in signals.operators.values():
            if not one.is_source and one.received and one.most_replicas > 1:
                cost = one.busy_seconds / one.received
                came = (signals.offered_rate or 0.0) + (signals.backlog + one.queue_length) / 30
                after = max(1, math.ceil(came * cost - 0.05))
                found.append(ps.Change("replicas", one.name, one.replicas, after, "what has just come"))
        return found


def spiky_trace(seconds: float) -> ps.rates.Rate:
    return ps.rates.spikes(27, 143, every=120, lasting=30)


def unpredictable_trace(seconds: float) -> ps.rates.Rate:
    drawn = random.Random(4)
    points, now = [], 0.0
    while now < seconds:
        points.append((now, float(drawn.choice([18, 37, 76, 151]))))
        now += drawn.uniform(10, 60)
    return ps.rates.trace(points)


def noisy_trace(seconds: float) -> ps.rates.Rate:
    drawn = random.Random(5)
    return ps.rates.trace([(float(second), 85 + drawn.uniform(-6, 6)) for second in range(int(seconds))])


def load(seconds: float) -> None:
    print("\nReplicas under a load that changes, simulated: replica seconds, share processed, p99 latency")
    shown("", "replica seconds", "against", "processed", "p99")
    cost = 0.1

    def told(name: str, report: Report, rate: ps.rates.Rate, against: float, what: str) -> float:
        used = replica_seconds(report, "op")
        processed = report.operators["out"].received / rate.count_by(seconds)
        shown(name, f"{used:,.0f}", f"{used / against:.3f} {what}", f"{processed:.4f}", f"{report.latency.p99:.2f} s")
        return used

    def elastic(controller: Any) -> ps.Elastic:
        return ps.Elastic(threads="fixed", replicas=controller, helping=False, period=1.0)

    for name, make in ("spikes every two minutes", spiky_trace), ("unpredictable", unpredictable_trace):
        rate = make(seconds)
        plan = clairvoyant(rate, cost, seconds)
        reactive = told(
            f"{name}: reactive", one_operator(rate, cost, seconds, elastic(Reactive()), 1), make(seconds), plan, "plan"
        )
        report = one_operator(make(seconds), cost, seconds, elastic("predictive"), 1)
        used = told(f"{name}: predictive", report, make(seconds), plan, "plan")
        shown("", "", f"{used / reactive:.3f} reactive")
    rate = noisy_trace(600)
    report = one_operator(rate, cost, 600, elastic("predictive"), 1)
    shown(
        "ten minutes of steady noise",
        f"{len(changes(report, 'replicas'))} decisions",
        "the last after",
        f"{last_change(report):.0f} s",
    )
    gone = ps.rates.steps((0, 86), (100, 8), (200, 86), (300, 8), (400, 86))
    report = one_operator(gone, cost, 500, elastic("predictive"), 1)
    moments = [round(one.time) for one in changes(report, "replicas")]
    shown("a load that goes and comes back", "decisions at", str(moments))


def last_change(report: Report) -> float:
    return max((one.time for one in changes(report, "replicas")), default=0.0)


def twitter(seconds: float) -> None:
    """PRESPS, figure 2: four operators; what a tuple costs them is not told there, so these are ours."""
    print("\nThe application of PRESPS, simulated on a spiky trace: saved resources, degradation, processed, latency")
    shown("", "saved", "degradation", "processed", "median latency")
    costs = {"filter": 0.01, "analyse": 0.05, "classify": 0.1, "store": 0.02}
    drawn = random.Random(7)
    points: list[tuple[float, float]] = []
    for minute in range(int(seconds // 10)):
        points.append((minute * 10.0, drawn.uniform(30, 50) + (120 if minute % 12 in (5, 6, 7) else 0)))
    peak, mean = max(rate for _, rate in points), statistics.mean(rate for _, rate in points)
    points.append((seconds - 10, 0.0))  # what is under way in the end would count as lost
    shares = {"filter": 1.0, "analyse": 0.7, "classify": 0.7, "store": 0.7}

    def run(elastic: ps.Elastic | None, sized_for: float | None = None) -> Report:
        flow = ps.Flow("tweets")
        own = {
            name: max(1, math.ceil(sized_for * shares[name] * cost)) if sized_for else None
            for name, cost in costs.items()
        }
        stream = flow.read(ps.sources.generate(lambda n: n, rate=ps.rates.trace(points)), name="in")
        stream = stream.filter(lambda n: n % 10 < 7, name="filter", replicas=own["filter"])
        stream = stream.map(lambda n: n, name="analyse", replicas=own["analyse"])
        stream = stream.key_by(lambda n: n * 7919 % 1000).stateful_map(
            lambda state, n: (state + 1, n), init=int, name="classify", replicas=own["classify"]
        )
        stream.map(lambda n: n, name="store", replicas=own["store"]).write(ps.sinks.null(), name="out")
        options: dict[str, Any] = {"elastic": elastic} if elastic else {}
        return flow.run(ps.engines.Simulated(cores=64, costs=costs, seconds=seconds, queue_size=1_000_000, **options))

    over = {name: max(1, math.ceil(peak * shares[name] * cost)) * seconds for name, cost in costs.items()}
    contestants: list[tuple[str, ps.Elastic | None, float | None]] = [
        ("predictive", ps.Elastic(threads="fixed", helping=False), None),
        ("reactive", ps.Elastic(threads="fixed", helping=False, replicas=Reactive()), None),
        ("fixed for the peak", None, peak),
        ("fixed for the mean", None, mean),
    ]
    for name, elastic, sized_for in contestants:
        report = run(elastic, sized_for)
        used = sum(
            replica_seconds(report, one, report.operators[one].replicas if elastic is None else 1) for one in costs
        )
        read = ps.rates.trace(points).count_by(seconds)
        came, went = sum(n % 10 < 7 for n in range(int(read))), report.operators["out"].received
        shown(
            name,
            f"{1 - used / sum(over.values()):.3f}",
            f"{abs(came - went) / came:.4f}",
            f"{went / came:.4f}",
            f"{report.latency.p50:.3f} s",
        )
