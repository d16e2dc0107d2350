"""C-Stream's adaptation: a thread more above 95% utilisation, a replica more for an operator that is congested.

The paper's source and sink are not described. A source of 16 µs follows from its results: 80 µs are divided by 16 µs
into 5 replicas, twice 60 µs into 4 each, and 100 µs are 6.2 times as fast. The sink's 10 µs make that 7 and 10 threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import penstock as ps
from figures.c_stream.running import CORES, Points, beyond, line, run
from figures.figure import Claim, Figure, Found, Measure, Panel

PERIOD = 0.1
QUEUE_SIZE = 1024
SETTING = (
    f"Chain of a source of 16 µs, busy operators, and a sink of 10 µs, which the paper's results suggest; {CORES} "
    f"cores, Random, congested at 0.01, utilisation 0.90 to 0.95, from one thread and one replica. A look every "
    f"{PERIOD} s instead of every 10 s: virtual time has no noise to average out. Queues of {QUEUE_SIZE} tuples."
)


def adapting(
    busy: int, cost: int, high: float = 0.95, low: float = 0.90, seconds: float = 4.0, **options: Any
) -> Measure:
    """C-Stream's controllers find threads and replicas."""
    elastic = ps.Elastic(
        threads=ps.controllers.Utilisation(low=low, high=high),
        replicas=ps.controllers.Bottleneck(congested=0.01),
        helping=False,
        period=PERIOD,
        most_threads=CORES,
    )
    return _chain(busy, cost, seconds, threads=1, elastic=elastic, **options)


def alone(busy: int, cost: int, seconds: float = 0.6) -> Measure:
    """One thread and one replica."""
    return _chain(busy, cost, seconds, threads=1)


def by_itself(busy: int, cost: int, policy: str = "last-in-pipeline", seconds: float = 1.2) -> Measure:
    """Penstock's defaults, or another policy with them."""
    return _chain(busy, cost, seconds, elastic=ps.Elastic(), policy=policy)


def per_operator(busy: int, cost: int, seconds: float = 0.6) -> Measure:
    """A thread for each operator, as Storm has it."""
    return _chain(busy, cost, seconds, threading="dedicated")


def _chain(busy: int, cost: int, seconds: float, **options: Any) -> Measure:
    shape = {"busy": busy, "cost": cost * 1e-6, "has_functions": True, "has_costly_ends": True}
    settings = {"queue_size": QUEUE_SIZE, "fuse": False, "slice_seconds": 0.001, **options}
    return partial(run, "chain", seconds, shape, **settings)


def final(point: Mapping[str, Any], operator: str = "") -> int:
    """How many replicas there are of an operator in the end, or threads."""
    return next((after for _, name, after in reversed(point["decisions"]) if name == operator), 1)


def steps(point: Mapping[str, Any], operator: str = "") -> list[tuple[float, float]]:
    """The same over time, in periods of adaptation."""
    seen = [(0.0, 1.0)] + [
        (time / PERIOD, float(after)) for time, name, after in point["decisions"] if name == operator
    ]
    return [*seen, (max(time for time, _, _ in point["decisions"]) / PERIOD + 2, seen[-1][1])]


def adaptation_figure(
    name: str, title: str, busy: int, costs: Sequence[int], shown: int, paper: tuple[int, int]
) -> Figure:
    """Figures 9 and 10: over what an operator costs, and over time for one of these."""
    operators = [f"busy{number}" for number in range(busy)]
    first = costs[0]
    label = "replicas" if busy == 1 else "replicas of each"

    def read(points: Points) -> Found:
        elastic = {float(cost): f"adapting {cost} µs" for cost in costs}
        fixed = {float(cost): f"1 thread {cost} µs" for cost in costs}
        rates, bases = line(points, elastic), line(points, fixed)
        kept = min(rate for _, rate in rates) / max(rate for _, rate in rates)
        fallen = bases[-1][1] / bases[0][1]
        threads = [(cost, float(final(points[one]))) for cost, one in elastic.items()]
        replicas = {
            each: [(cost, float(final(points[one], each))) for cost, one in elastic.items()] for each in operators
        }
        point = points[elastic[float(shown)]]
        found = (*(final(point, each) for each in operators), final(point))
        wanted = (paper[0],) * busy + (paper[1],)
        told = f"{' + '.join(map(str, wanted[:-1]))} replicas, {wanted[-1]} threads"
        claims = [
            Claim(
                "Throughput stays about as it is while the cost rises, and falls with one thread and replica",
                "stable",
                f"{kept:.0%} of the most at any cost; {fallen:.0%} with one thread",
                kept >= 0.8 and fallen < 0.6,
            ),
            Claim(
                "Threads and replicas rise with the cost",
                "both rise",
                f"{threads[0][1]:.0f} to {threads[-1][1]:.0f} threads, "
                + ", ".join(f"{each[0][1]:.0f} to {each[-1][1]:.0f}" for each in replicas.values())
                + " replicas",
                _never_falls(threads) and all(map(_never_falls, replicas.values())),
            ),
            Claim(
                f"At {shown} µs it settles",
                told,
                f"{' + '.join(map(str, found[:-1]))} replicas, {found[-1]} threads",
                all(abs(one - other) <= 1 for one, other in zip(found, wanted, strict=True)),
            ),
        ]
        if busy > 1:
            turns = [(operator, after) for _, operator, after in point["decisions"] if operator]
            claims.append(
                Claim(
                    "A replica is added to one operator and then to the other, until none is congested",
                    "alternating",
                    f"{', '.join(f'{operator} to {after}' for operator, after in turns)}",
                    _most_apart(turns, operators) <= 1,
                )
            )
        worst = min(costs, key=lambda cost: points[f"default {cost} µs"]["out"] / points[f"adapting {cost} µs"]["out"])
        where = f" at every cost; least so at {worst} µs"
        claims.append(
            beyond(
                where,
                points[f"default {worst} µs"]["out"],
                points[f"adapting {worst} µs"]["out"],
                "C-Stream's adaptation",
                source_waits(points, f"default {first} µs", _sources_first(first)),
            )
        )
        axes = "operator cost (µs)"
        default = line(points, {float(cost): f"default {cost} µs" for cost in costs})
        return Found(
            [
                Panel(
                    "(a) throughput",
                    axes,
                    "tuples/s",
                    {"adapting": rates, "1 thread, 1 replica": bases, "Penstock": default},
                ),
                Panel("(a) threads and replicas", axes, "number", {"threads": threads, **replicas}),
                Panel(
                    f"(b) over time, {shown} µs",
                    "adaptation periods",
                    "number",
                    {"threads": steps(point), **{each: steps(point, each) for each in operators}},
                    style="step",
                ),
            ],
            claims,
        )

    measures: dict[str, Measure] = {}
    for cost in costs:
        measures[f"adapting {cost} µs"] = adapting(busy, cost, seconds=2.0 + 2.0 * busy)
        measures[f"1 thread {cost} µs"] = alone(busy, cost)
        measures[f"default {cost} µs"] = by_itself(busy, cost)
    measures[_sources_first(first)] = by_itself(busy, first, policy="max-queue")
    return Figure(name, title, f"{label.capitalize()} and threads by cost. {SETTING}", measures, read)


def _most_apart(turns: Sequence[tuple[str, int]], operators: Sequence[str]) -> int:
    """By how many replicas the operators ever differ."""
    now, most = dict.fromkeys(operators, 1), 0
    for operator, after in turns:
        now[operator] = after
        most = max(most, max(now.values()) - min(now.values()))
    return most


def _sources_first(cost: int) -> str:
    return f"default, sources first {cost} µs"


def source_waits(points: Points, default: str, sources_first: str) -> str:
    """Why the defaults may do less where the source is the bottleneck."""
    usual, first = points[default]["out"], points[sources_first]["out"]
    return (
        "The source is the bottleneck, and `last-in-pipeline` picks it last: who has read goes on with it, and the "
        f"source waits until another worker is awake ({default}: {usual:,.0f} tuples/s). With `max-queue`, which picks "
        f"sources first, it is {first:,.0f}."
    )


def _never_falls(line: Sequence[tuple[float, float]]) -> bool:
    values = [y for _, y in line]
    return values[-1] > values[0] and all(one <= other + 1 for one, other in pairwise(values))
