"""Flows and loads that nobody has tuned for, drawn from a seed: the defaults against the best fixed setting.

Each case runs once with what Elastic finds by itself, once with every fixed setting of a search, and is compared with a
clairvoyant plan that knows the load and has, every half second, just as many threads and replicas as have work.
"""

from __future__ import annotations

import math
import os
import random
import statistics
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import penstock as ps
from elasticity.shown import shown
from penstock.observe.report import Report

SECONDS = 60.0
_CORES = (2, 3, 4, 6, 8, 12, 16, 24, 48, 96, 200)
_TUPLES_A_SECOND = (150, 1_200)
"""What the machine can do of a drawn flow: enough to be steady, few enough to be simulated."""
_SLOT_SECONDS = 0.5
LOADS = ("saturated", "steps", "spikes", "season", "drift", "pauses", "noise")


Work = Callable[[Any], Any]


def _nothing(n: Any) -> Any:
    return n


@dataclass
class Case:
    """A flow, what its operators cost, and what comes."""

    seed: int
    cores: int
    topology: str
    load: str
    has_gil: bool
    costs: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    """Seconds of a core that each operator takes for a tuple that is read."""
    most: dict[str, float] = field(default_factory=dict)
    """Workers that can be of use in an operator that can't have any number of them."""
    sinks: dict[str, float] = field(default_factory=dict)
    """Tuples that a sink gets for each that is read."""
    rates: list[tuple[float, float]] = field(default_factory=list)
    """Seconds, and tuples a second from then on; empty where they can be read at any speed."""
    build: Callable[[ps.Flow, Any], None] = lambda flow, source: None
    seconds: float = SECONDS
    """How long a run is."""
    work: Mapping[str, Work] = field(default_factory=dict)
    """What operators do with a tuple where that is no simulation."""

    def does(self, name: str) -> Work:
        return self.work.get(name, _nothing)

    def flow(self) -> ps.Flow:
        flow = ps.Flow(f"storm-{self.seed}")
        rate = ps.rates.steps(*self.rates) if self.rates else None
        self.build(flow, ps.sources.generate(lambda n: n, rate=rate))
        return flow

    def run(self, **options: Any) -> Report:
        engine = ps.engines.Simulated(
            cores=self.cores,
            costs=self.costs,
            gil=self.has_gil,
            seconds=self.seconds,
            queue_size=64,
            fuse=False,
            **options,
        )
        return self.flow().run(engine)

    def done(self, report: Report) -> float:
        """The share of what could be offered that has come out, at the slowest of its sinks."""
        return min(report.operators[name].received / share for name, share in self.sinks.items() if share > 0)

    @property
    def capacity(self) -> float:
        """Tuples a second that all cores can take."""
        cores = 1 if self.has_gil else self.cores
        bounds = [most / self.cpu[name] for name, most in self.most.items() if self.cpu[name] > 0]
        return min([cores / sum(self.cpu.values()), *bounds])

    @property
    def changes_of_load(self) -> int:
        """How often what comes has become a quarter more or less than it was at the change before."""
        count, level = 1, self.rates[0][1] if self.rates else 0.0
        for _, rate in self.rates:
            if abs(rate - level) > 0.25 * max(rate, level):
                count, level = count + 1, rate
        return count

    def rate_at(self, seconds: float) -> float:
        place = bisect_right([begin for begin, _ in self.rates], seconds) - 1
        return self.rates[place][1]

    def clairvoyant(self) -> tuple[float, float]:
        """Thread- and replica-seconds of a plan that knows what comes, and does what is late as soon as it can."""
        threads = replicas = late = 0.0
        for slot in range(int(self.seconds / _SLOT_SECONDS)):
            offered = self.rate_at(slot * _SLOT_SECONDS) if self.rates else math.inf
            wanted = offered + late / _SLOT_SECONDS
            rate = min(wanted, self.capacity)
            late = max(0.0, (wanted - rate) * _SLOT_SECONDS) if self.rates else 0.0
            needs = [rate * wall for wall in self.cpu.values()]
            threads += max(1, math.ceil(sum(needs) - 1e-6)) * _SLOT_SECONDS
            replicas += sum(max(1, math.ceil(need - 1e-6)) for need in needs) * _SLOT_SECONDS
        return threads, replicas


def drawn(seed: int, cores: int | None = None, seconds: float = SECONDS) -> Case:
    """One case; the same for the same seed."""
    draw = random.Random(seed)
    drawn_cores = draw.choice(_CORES)
    case = Case(
        seed,
        cores or drawn_cores,
        draw.choice(["chain", "diamond", "fan", "tree", "keyed", "selective"]),
        draw.choice(LOADS),
        has_gil=draw.random() < 0.12 and cores is None,
        seconds=seconds,
    )
    TOPOLOGIES[case.topology](case, draw)
    # Scaled so that what the machine can do is drawn too.
    capacity = math.exp(draw.uniform(*map(math.log, _TUPLES_A_SECOND)))
    scale = case.capacity / capacity
    case.cpu = {name: seconds * scale for name, seconds in case.cpu.items()}
    case.costs = {name: seconds * scale for name, seconds in case.costs.items()}
    case.rates = [(at * seconds / SECONDS, rate) for at, rate in _load(case.load, case.capacity, draw)]
    return case


def _costly(case: Case, draw: random.Random, name: str, share: float = 1.0, dear: float | None = None) -> None:
    """An operator whose cost is drawn, that gets so many tuples for each that is read."""
    seconds = math.exp(draw.uniform(math.log(0.1), math.log(3.0))) if dear is None else dear
    case.costs[name] = seconds
    case.cpu[name] = seconds * share


def _chain(case: Case, draw: random.Random) -> None:
    names = [f"op{number}" for number in range(draw.randint(2, 9))]
    for name in names:
        _costly(case, draw, name)
    case.sinks = {"out": 1.0}

    def build(flow: ps.Flow, source: Any) -> None:
        stream = flow.read(source, name="in")
        for name in names:
            stream = stream.map(case.does(name), name=name)
        stream.write(ps.sinks.null(), name="out")

    case.build = build


def _diamond(case: Case, draw: random.Random) -> None:
    ways = draw.randint(2, 6)
    for way in range(ways):
        _costly(case, draw, f"way{way}", 1 / ways)
    _costly(case, draw, "last")
    case.sinks = {"out": 1.0}

    def build(flow: ps.Flow, source: Any) -> None:
        stream = flow.read(source, name="in")
        parts = [
            stream.filter(lambda n, way=way: n % ways == way, name=f"take{way}").map(
                case.does(f"way{way}"), name=f"way{way}"
            )
            for way in range(ways)
        ]
        merged = parts[0].merge(*parts[1:], name="merge")
        merged.map(case.does("last"), name="last").write(ps.sinks.null(), name="out")

    case.build = build


def _fan(case: Case, draw: random.Random) -> None:
    ways = draw.randint(2, 5)
    for way in range(ways):
        _costly(case, draw, f"way{way}")
    case.sinks = {f"out{way}": 1.0 for way in range(ways)}

    def build(flow: ps.Flow, source: Any) -> None:
        stream = flow.read(source, name="in")
        for way in range(ways):
            stream.map(case.does(f"way{way}"), name=f"way{way}").write(ps.sinks.null(), name=f"out{way}")

    case.build = build


def _tree(case: Case, draw: random.Random) -> None:
    depth = draw.randint(2, 4)
    for height in range(depth):
        for place in range(2**height):
            _costly(case, draw, f"node{height}_{place}", 1 / 2**height)
    case.sinks = {f"out{place}": 1 / 2 ** (depth - 1) for place in range(2 ** (depth - 1))}

    def build(flow: ps.Flow, source: Any) -> None:
        level = [flow.read(source, name="in").map(case.does("node0_0"), name="node0_0")]
        for height in range(1, depth):
            below = []
            for place, stream in enumerate(level):
                sides = stream.branch(lambda n, height=height: n >> (height - 1) & 1, name=f"split{height}_{place}")
                below += [
                    side.map(case.does(name := f"node{height}_{2 * place + which}"), name=name)
                    for which, side in enumerate(sides)
                ]
            level = below
        for place, stream in enumerate(level):
            stream.write(ps.sinks.null(), name=f"out{place}")

    case.build = build


def _keyed(case: Case, draw: random.Random) -> None:
    hot = draw.choice([0.0, 0.1, 0.3, 0.5])
    _costly(case, draw, "parse")
    _costly(case, draw, "score")
    if hot:
        case.most["score"] = 1 / hot
    case.sinks = {"out": 1.0}
    many = draw.randint(200, 2000)

    def key(n: int) -> int:
        # Spread over time evenly, so that every second has its share of the hot key.
        return 0 if (n * 0.6180339887498949) % 1.0 < hot else 1 + n * 7919 % many

    def build(flow: ps.Flow, source: Any) -> None:
        stream, score = flow.read(source, name="in").map(case.does("parse"), name="parse"), case.does("score")
        keyed = stream.key_by(key).stateful_map(lambda state, n: (state, score(n)), init=lambda: None, name="score")
        keyed.write(ps.sinks.null(), name="out")

    case.build = build


def _selective(case: Case, draw: random.Random) -> None:
    """More tuples here, fewer there."""
    fan_out, kept = draw.randint(2, 5), draw.choice([2, 3, 5])
    _costly(case, draw, "split")
    _costly(case, draw, "each", fan_out)
    _costly(case, draw, "some", fan_out / kept)
    case.sinks = {"out": fan_out / kept}

    def build(flow: ps.Flow, source: Any) -> None:
        split = case.does("split")
        stream = flow.read(source, name="in").flat_map(
            lambda n: range(first := split(n) * fan_out, first + fan_out), name="split"
        )
        stream = stream.map(case.does("each"), name="each").filter(lambda n: n % kept == 0, name="keep")
        stream.map(case.does("some"), name="some").write(ps.sinks.null(), name="out")

    case.build = build


TOPOLOGIES: Mapping[str, Callable[[Case, random.Random], None]] = {
    "chain": _chain,
    "diamond": _diamond,
    "fan": _fan,
    "tree": _tree,
    "keyed": _keyed,
    "selective": _selective,
}


def _load(kind: str, capacity: float, draw: random.Random) -> list[tuple[float, float]]:
    low, high = draw.uniform(0.05, 0.4) * capacity, draw.uniform(0.5, 1.1) * capacity
    every = draw.choice([8.0, 12.0, 20.0])
    times = [slot * _SLOT_SECONDS for slot in range(int(SECONDS / _SLOT_SECONDS))]
    match kind:
        case "saturated":
            return []
        case "steps":
            begins = sorted(draw.sample(range(5, 56, 5), draw.randint(1, 3)))
            levels = [draw.uniform(0.05, 1.1) * capacity for _ in range(len(begins) + 1)]
            return list(zip([0.0, *map(float, begins)], levels, strict=True))
        case "spikes":
            lasting = draw.uniform(2.0, every / 2)
            found = []
            for number in range(int(SECONDS / every)):
                found += [(number * every, low), ((number + 1) * every - lasting, high)]
            return found
        case "season":
            middle, width = (low + high) / 2, (high - low) / 2
            return [(at, middle + width * math.sin(2 * math.pi * at / every)) for at in times]
        case "drift":
            first, last = draw.choice([(low, high), (high, low)])
            return [(at, first * (last / first) ** (at / SECONDS)) for at in times]
        case "pauses":
            found = []
            for number in range(int(SECONDS / every)):
                found += [(number * every, high), ((number + draw.uniform(0.4, 0.8)) * every, 0.0)]
            return found
    middle = draw.uniform(0.3, 0.9) * capacity
    return [(at, middle * (1 + draw.uniform(-0.07, 0.07))) for at in times]


@dataclass(frozen=True)
class Outcome:
    """One case, judged."""

    told: str
    has_gil: bool
    changes_of_load: int
    best: float
    """Of what the best fixed setting has done, so much was done."""
    fixed: tuple[int, int]
    threads: float
    replicas: float
    late: float
    """Seconds by which the 99th percentile of latency is above that of always as many threads as cores."""
    moments: int
    """At which something was decided."""

    @property
    def moments_per_change(self) -> float:
        return self.moments / self.changes_of_load


def judged(seed: int, elastic: ps.Elastic) -> Outcome:
    case = drawn(seed)
    report = case.run(elastic=elastic)
    found = {setting: case.run(threads=setting[0], replicas=setting[1]) for setting in _settings(case)}
    best = max(found, key=lambda setting: case.done(found[setting]))
    widest = found[max(found)]
    threads, replicas = _spent(case, report)
    plan = case.clairvoyant()
    gil = ", GIL" if case.has_gil else ""
    return Outcome(
        f"{seed}: {case.topology}, {case.load}, {case.cores} cores{gil}",
        case.has_gil,
        case.changes_of_load,
        case.done(report) / max(1e-9, case.done(found[best])),
        best,
        threads / plan[0],
        replicas / plan[1],
        report.latency.p99 - widest.latency.p99,
        len({one.time for one in report.decisions}),
    )


def _settings(case: Case) -> list[tuple[int, int]]:
    """Threads and replicas: one, a half, all."""
    counts = sorted({1, max(1, case.cores // 2), case.cores})
    return [(threads, replicas) for threads in counts for replicas in sorted({1, threads})]


def _spent(case: Case, report: Report) -> tuple[float, float]:
    """Thread-seconds and replica-seconds, from the journal."""
    threads = _integral([one for one in report.decisions if one.signals["what"] == "threads"], case.cores)
    replicas = 0.0
    for name in case.cpu:
        own = [one for one in report.decisions if one.signals["what"] == "replicas" and one.operator == name]
        replicas += _integral(own, 1)
    return threads, replicas


def _integral(decisions: Sequence[Any], first: int) -> float:
    total, since, level = 0.0, 0.0, first
    for one in decisions:
        total, since, level = total + (one.time - since) * level, one.time, one.after
    return total + (SECONDS - since) * level


def storms(count: int, seed: int) -> None:
    print(f"\nStorms: {count} drawn cases from seed {seed}, {SECONDS:g} simulated seconds each")
    shown("case", "of best fixed", "threads", "replicas", "p99 later (s)", "moments", "per change")
    outcomes = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for one in pool.map(partial(judged, elastic=ps.Elastic()), range(seed, seed + count)):
            outcomes.append(one)
            shown(
                one.told,
                f"{one.best:.3f} {one.fixed}",
                f"{one.threads:.2f}",
                f"{one.replicas:.2f}",
                f"{one.late:+.2f}",
                f"{one.moments}",
                f"{one.moments_per_change:.1f}",
            )
    free = [one for one in outcomes if not one.has_gil]
    for name, cases in ("without a GIL", free), ("under a GIL", [one for one in outcomes if one.has_gil]):
        if cases:
            best = [one.best for one in cases]
            found = f"median {statistics.median(best):.3f}", f"worst {min(best):.3f}"
            shown(f"{name}: {len(cases)} cases, of best fixed", *found)
    figures: dict[str, list[float]] = {
        "thread-seconds of the clairvoyant": [one.threads for one in free],
        "replica-seconds of the clairvoyant": [one.replicas for one in free],
        "p99 later by, seconds": [one.late for one in outcomes],
        "moments per change of load": [one.moments_per_change for one in outcomes],
    }
    for name, values in figures.items():
        if values:
            shown(name, f"median {statistics.median(values):.2f}", f"worst {max(values):.2f}")
