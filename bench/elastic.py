"""Numbers that find themselves, against the best fixed ones, which are found by trying them all in the same run.

penstock bench elastic [--only <part>] [--quick]

What is simulated says so, with its cores; what is real runs on the cores that there are. Topologies are those of
C-Stream, section 5.1; the word count is the one of Dhalion and DS2; the application in four operators is PRESPS's; the
words that are helped are Leron's.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.elasticity.signals import Signals
from penstock.elasticity.threads import Figure7, Trend
from penstock.observe.journal import Decision
from penstock.observe.report import Report

sys.path.insert(0, str(Path(__file__).parent))

from neighbours import Contest

COST = 0.001
"""Seconds that a busy operator of a topology takes for a tuple."""


def shown(what: str, *figures: str) -> None:
    print(f"  {what:<44} " + "  ".join(f"{figure:>16}" for figure in figures), flush=True)


def changes(report: Report, what: str, operator: str | None = None) -> list[Decision]:
    return [
        one
        for one in report.decisions
        if one.signals.get("what") == what and (operator is None or one.operator == operator)
    ]


# Topologies


Work = Callable[[Any], Any]
SETTINGS: dict[str, dict[str, Any]] = {
    name: {"fuse": False, "queue_size": 32} for name in ("chain", "data-parallel", "tree", "reverse tree")
}
SETTINGS["cheap tuples"] = {"gil": True}


def chain(flow: ps.Flow, work: Work) -> None:
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    for number in range(12):
        stream = stream.map(work, name=f"busy{number}")
    stream.write(ps.sinks.null(), name="out")


def data_parallel(flow: ps.Flow, work: Work) -> None:
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    ways = [
        stream.filter(lambda n, way=way: n % 12 == way, name=f"way{way}").map(work, name=f"busy{way}")
        for way in range(12)
    ]
    ways[0].merge(*ways[1:], name="merge").write(ps.sinks.null(), name="out")


def tree(flow: ps.Flow, work: Work, depth: int = 6) -> None:
    level = [flow.read(ps.sources.generate(lambda n: n), name="in").map(work, name="busy0_0")]
    for height in range(1, depth):
        below = []
        for place, stream in enumerate(level):
            sides = stream.branch(lambda n, height=height: n >> (height - 1) & 1, name=f"split{height}_{place}")
            below += [side.map(work, name=f"busy{height}_{2 * place + which}") for which, side in enumerate(sides)]
        level = below
    for place, stream in enumerate(level):
        stream.write(ps.sinks.null(), name=f"out{place}")


def reverse_tree(flow: ps.Flow, work: Work, depth: int = 6) -> None:
    level = [
        flow.read(ps.sources.generate(lambda n: n), name=f"in{place}").map(work, name=f"busy{depth}_{place}")
        for place in range(2 ** (depth - 1))
    ]
    for height in range(depth - 1, 0, -1):
        level = [
            one.merge(other, name=f"merge{height}_{place}").map(work, name=f"busy{height}_{place}")
            for place, (one, other) in enumerate(zip(level[::2], level[1::2], strict=True))
        ]
    level[0].write(ps.sinks.null(), name="out")


def cheap(flow: ps.Flow, work: Work) -> None:
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    for number in range(3):
        stream = stream.map(lambda n: n + 1, name=f"cheap{number}")
    stream.write(ps.sinks.null(), name="out")


TOPOLOGIES: dict[str, Callable[[ps.Flow, Work], None]] = {
    "chain": chain,
    "data-parallel": data_parallel,
    "tree": tree,
    "reverse tree": reverse_tree,
    "cheap tuples": cheap,
}


def made(topology: str, work: Work = lambda n: n) -> tuple[ps.Flow, dict[str, float]]:
    """A flow, and what its operators cost."""
    flow = ps.Flow(topology.replace(" ", "-"))
    TOPOLOGIES[topology](flow, work)
    names = [node.name for node in flow.validate().nodes]
    costs = {name: COST for name in names if name.startswith("busy")}
    return flow, costs or {name: 1e-6 for name in names if name.startswith("cheap")}


# Threads


class Seen(ps.Controller):
    """Decides as another one, and keeps what it was shown."""

    name = "seen"

    def __init__(self, other: ps.Controller) -> None:
        self.other = other
        self.periods: list[Signals] = []

    def __deepcopy__(self, memo: Any) -> Seen:
        return self

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        self.periods.append(signals)
        return self.other.decide(signals)


def levels(cores: int) -> list[int]:
    """Every number of threads up to 16, then in steps of a quarter."""
    found = list(range(1, min(16, cores) + 1))
    while found[-1] < cores:
        found.append(min(cores, math.ceil(found[-1] * 1.25)))
    return found


def settled_rate(run: Callable[[float], Any], seconds: float) -> float:
    """Tuples a second in the second half of a run: the same run, to its middle and to its end."""
    half, whole = (
        sum(one.received for name, one in run(until).items() if name.startswith("out"))
        for until in (seconds / 2, seconds)
    )
    return (whole - half) / (seconds / 2)


def simulated_threads(cores_list: Sequence[int], seconds: float) -> None:
    print("\nThreads, simulated: throughput settled against the best fixed number; changes, periods until the last one")
    shown("", "against best", "threads (best)", "changes", "periods", "figure 7's")
    for cores in cores_list:
        for topology in TOPOLOGIES:
            flow, costs = made(topology)

            def fixed(threads: int, seconds: float, flow=flow, costs=costs, cores=cores, topology=topology) -> Any:
                engine = ps.engines.Simulated(
                    cores=cores, threads=threads, costs=costs, seconds=seconds, **SETTINGS[topology]
                )
                return flow.run(engine).operators

            # Merges fill queues in bursts: there it takes longer to see what a level gives.
            long = seconds * (4 if topology == "reverse tree" else 1)
            by_level = {level: settled_rate(partial(fixed, level), long) for level in levels(cores)}
            best = max(by_level, key=lambda level: by_level[level])
            settled, periods, count = settled_with(Trend(), topology, cores, cores, 20, 0.5)
            plain = settled_with(Figure7(), topology, cores, 1, 60, 0.5)
            reached = settled_rate(partial(fixed, settled), long)
            shown(
                f"{topology}, {cores} cores",
                f"{reached / by_level[best]:.3f}",
                f"{settled} ({best})",
                str(count),
                f"{periods}",
                f"{plain[1]}",
            )


def settled_with(
    controller: ps.Controller, topology: str, cores: int, start: int, most_periods: int, period: float
) -> tuple[int, int, int]:
    """The number of threads in the end, the periods looked at until the last change, and how many changes."""
    flow, costs = made(topology)
    seen = Seen(controller)
    elastic = ps.Elastic(threads=seen, replicas="fixed", helping=False, period=period)
    engine = ps.engines.Simulated(
        cores=cores,
        threads=start,
        costs=costs,
        seconds=most_periods * period,
        elastic=elastic,
        **SETTINGS[topology],
    )
    report = flow.run(engine)
    made_changes = changes(report, "threads")
    after = int(made_changes[-1].after) if made_changes else start
    periods = sum(one.time <= made_changes[-1].time for one in seen.periods) if made_changes else 0
    return after, periods, len(made_changes)


def checksum(microseconds: float) -> Work:
    """A function that takes so long outside the GIL."""
    data, size = bytes(1 << 20), 1 << 14
    began = time.perf_counter()
    for _ in range(200):
        zlib.crc32(memoryview(data)[:size])
    size = int(size * microseconds * 1e-6 / ((time.perf_counter() - began) / 200))
    view = memoryview(data)[: min(size, len(data))]

    def work(x: Any) -> Any:
        zlib.crc32(view)
        return x

    return work


def real_threads(seconds: float) -> None:
    cores = os.cpu_count() or 1
    print(f"\nThreads for real, {cores} cores: once settled, against the best fixed number; most changes in any round")
    shown("", "against best", "threads (best)", "changes", "quiet rounds")
    for topology in TOPOLOGIES:
        work = (lambda x: x) if topology == "cheap tuples" else checksum(200)

        def tuple_seconds(
            engine: ps.engines.Local, settled: float, topology=topology, work=work
        ) -> tuple[float, Report]:
            flow, _ = made(topology, work)
            job = flow.start(engine)
            time.sleep(settled)
            before, since = job.metrics(), time.perf_counter()
            time.sleep(seconds / 4)
            after, elapsed = job.metrics(), time.perf_counter() - since
            job.stop(drain=False)
            names = [name for name in after if name.startswith("out")]
            return elapsed / sum(after[name].received - before[name].received for name in names), job.wait()

        def fixed(level: int, tuple_seconds=tuple_seconds) -> float:
            return tuple_seconds(ps.engines.Local(threads=level, fuse=False), seconds / 12)[0]

        reports: list[Report] = []

        def elastic(tuple_seconds=tuple_seconds, reports=reports) -> float:
            watched = ps.Elastic(replicas="fixed", helping=False, period=0.5)
            found, report = tuple_seconds(ps.engines.Local(fuse=False, elastic=watched), seconds / 2)
            reports.append(report)
            return found

        contestants: dict[str, Callable[[], float]] = {"elastic": elastic}
        contestants |= {str(level): partial(fixed, level) for level in range(1, cores + 1)}
        contest = Contest(contestants, rounds=7)
        best = min(contestants.keys() - {"elastic"}, key=lambda name: statistics.median(contest.seconds[name]))
        ratio = contest.ratio(best, "elastic")
        most = max((changes(report, "threads") for report in reports), key=len)
        after = statistics.mode(threads_in_the_end(report, cores) for report in reports)
        shown(
            topology, f"{ratio:.3f}", f"{after} ({best})", str(len(most)), f"{contest.quiet} of {contest.played} quiet"
        )


def threads_in_the_end(report: Report, before: int) -> int:
    made_changes = changes(report, "threads")
    return int(made_changes[-1].after) if made_changes else before


# Replicas


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


# Helping


def leron(seconds: float) -> None:
    print("\nLeron's words, a thread for each operator, for real: throughput with helping against without")
    shown("", "ratio", "helping")
    cases = {
        "exclaim is the bottleneck (10, 100, 5 µs)": (10.0, 100.0, 5.0),
        "nobody is (100, 20, 5 µs)": (100.0, 20.0, 5.0),
    }
    for name, costs in cases.items():
        compute, first, second = (checksum(cost) for cost in costs)

        def rate(elastic: ps.Elastic | None, works: Any = (compute, first, second)) -> tuple[float, Report]:
            flow = ps.Flow("words")
            stream = flow.read(ps.sources.generate(lambda n: n), name="word")
            stream = stream.map(works[0], name="compute", replicas=2).map(works[1], name="exclaim1")
            stream.map(works[2], name="exclaim2").write(ps.sinks.null(), name="out")
            job = flow.start(
                ps.engines.Local(threading="dedicated", queue_size=512, reorder_size=8, elastic=elastic or False)
            )
            time.sleep(seconds / 2)
            before, since = job.metrics()["out"].received, time.perf_counter()
            time.sleep(seconds / 2)
            after, elapsed = job.metrics()["out"].received, time.perf_counter() - since
            job.stop(drain=False)
            return (after - before) / elapsed, job.wait()

        found: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(5):
            found["without"].append(rate(None)[0])
            helped, report = rate(ps.Elastic(threads="fixed", replicas="fixed", period=0.25))
            found["with"].append(helped)
        shares = {one.operator: one.after for one in changes(report, "helping")}
        ratio = statistics.median(ours / bare for ours, bare in zip(found["with"], found["without"], strict=True))
        shown(name, f"{ratio:.2f}", str(shares))


def overhead(seconds: float) -> None:
    """Four cheap functions and a keyed state on one thread, watched every quarter of a second, and not."""
    print("\nWhat measuring and deciding costs: throughput, watched against not watched")
    count = int(1_500_000 * seconds / 10)

    def run(elastic: Any) -> float:
        flow = ps.Flow("watched")
        stream = flow.read(ps.sources.items(range(count)))
        for _ in range(4):
            stream = stream.map(lambda n: n + 1)
        stream.key_by(lambda n: n % 100).count().write(ps.sinks.null())
        began = time.perf_counter()
        flow.run(ps.engines.Local(threads=1, elastic=elastic))
        return time.perf_counter() - began

    watching = ps.Elastic(period=0.25, apply=False)
    found: dict[str, list[float]] = {"watched": [], "not": []}
    for _ in range(15):
        found["watched"].append(run(watching))
        found["not"].append(run(False))
    pairs = zip(found["not"], found["watched"], strict=True)
    shown("local engine", f"{statistics.median(bare / watched for bare, watched in pairs):.3f}")


def spark_overhead() -> None:
    """Batches of 20,000 rows through two exchanges; the time from a batch's end to what was decided."""
    from penstock.engines.spark.steering import SparkSteering

    print("\nWhat measuring and deciding costs on Spark: share of a batch")
    spent: list[float] = []
    measured = SparkSteering.after_batch

    def timed(self: Any, seconds: float, interval_seconds: float) -> None:
        began = time.perf_counter()
        measured(self, seconds, interval_seconds)
        spent.append((time.perf_counter() - began) / seconds)

    SparkSteering.after_batch = timed  # type: ignore[method-assign]
    flow = ps.Flow("batches")
    numbers = flow.read(ps.sources.generate(lambda n: n, count=600_000))
    numbers.key_by(lambda n: n % 1000).count().write(ps.sinks.null())
    flow.run(ps.engines.Spark(rows_per_batch=20_000, elastic=ps.Elastic(apply=False)))
    shown(
        "spark engine, local[2]", f"{statistics.median(spent):.2%}", f"most {max(spent):.2%}", f"{len(spent)} batches"
    )


def cluster() -> None:
    """What the long test on a standalone cluster asserts, to be read: executors, and the output compared."""
    print("\nA step in load on a standalone cluster of two workers")
    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from tests.spark.cluster import standalone_cluster

    with tempfile.TemporaryDirectory() as folder, standalone_cluster(Path(folder)) as running:
        command = [sys.executable, "-m", "tests.spark.cluster_script", running.master, "step", folder]
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    for line in told.stdout.splitlines():
        print(f"  {line}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench elastic", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and less certain")
    scale = 0.3 if "--quick" in arguments else 1.0
    parts: dict[str, Callable[[], None]] = {
        "threads": lambda: simulated_threads([12, 64, 176], 3.0 * scale),
        "real-threads": lambda: real_threads(5.0 * scale),
        "words": lambda: words(60.0 * scale),
        "load": lambda: load(600.0 * scale),
        "twitter": lambda: twitter(600.0 * scale),
        "leron": lambda: leron(6.0 * scale),
        "overhead": lambda: overhead(10.0 * scale),
        "spark-overhead": spark_overhead,
        "cluster": cluster,
    }
    parser.add_argument("--only", choices=parts)
    options = parser.parse_args(arguments)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    for name, part in parts.items():
        if options.only in (None, name):
            part()


if __name__ == "__main__":
    main(sys.argv[1:])
