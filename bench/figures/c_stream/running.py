"""One point: a topology on so many threads, with a policy; and the same flow with Penstock's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import correlation
from typing import Any

import penstock as ps
from figures.c_stream.topologies import made
from figures.c_stream.watching import Watch
from figures.figure import Claim, Measure

CORES = 12
QUEUE_SIZE = 64
PLUGINS = {
    "Random": "random",
    "MaxQueue": "max-queue",
    "MaxTupleWait": "min-latency",
    "LeastRecently": "least-recently-run",
    "MaxRunningTime": "max-running-time",
}
"""The paper's scheduler plug-ins, by the names that its figures give them."""
DEFAULTS = "Penstock's defaults (threads and replicas find themselves, `last-in-pipeline`)"

Points = Mapping[str, Any]


def setting(queue_size: int = QUEUE_SIZE) -> str:
    """What all figures have in common."""
    return (
        f"{CORES} virtual cores, busy operators as driver loops of 100 µs, queues of {queue_size} tuples (the paper "
        "doesn't say), slices of 50 ms, which is the paper's quantum; counted in the second half of each run."
    )


def run(topology: str, seconds: float, shape: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """What goes in and comes out a second, the mean latency, and what was decided when."""
    watch = Watch(since=seconds / 2, until=seconds)
    flow, costs = made(topology, watch, **(shape or {}))
    settings = {"cores": CORES, "queue_size": QUEUE_SIZE, "policy": "random", "slice_seconds": 0.05, **options}
    report = flow.run(ps.engines.Simulated(costs=costs, seconds=seconds, **settings))
    return {**watch.seen(), "decisions": [(one.time, one.operator, one.after) for one in report.decisions]}


def fixed(topology: str, plugin: str, threads: int, seconds: float, **options: Any) -> Measure:
    """A point with a plug-in and a number of threads; nothing changes while it runs."""
    return partial(run, topology, seconds, policy=PLUGINS[plugin], threads=threads, **options)


def by_default(topology: str, seconds: float, threads: int = CORES, **shape: Any) -> Measure:
    """Penstock's defaults, with the busy operators as functions, which can have replicas."""
    defaults = {"elastic": ps.Elastic(most_threads=threads), "policy": "last-in-pipeline", "slice_seconds": 0.001}
    return partial(run, topology, seconds, shape={"has_functions": True, **shape}, threads=threads, **defaults)


def line(
    points: Points, names: Mapping[float, str], what: str = "out", scale: float = 1.0
) -> list[tuple[float, float]]:
    """One line of a panel: a point's name for each x."""
    return [(x, points[name][what] * scale) for x, name in names.items()]


def beyond(where: str, ours: float, best: float, contestant: str, reason: str = "") -> Claim:
    """Whether Penstock's defaults do as well; where they don't, `reason` says what shows why."""
    holds = ours >= 0.99 * best
    return Claim(
        f"{DEFAULTS} reach what the best contestant reaches{where}",
        f"{best:,.0f} tuples/s ({contestant}, simulated)",
        f"{ours:,.0f} tuples/s",
        holds,
        "" if holds else reason,
        is_beyond=True,
    )


def linearity(points: Sequence[tuple[float, float]]) -> float:
    """How well a straight line fits: the correlation of x and y."""
    return correlation(*map(list, zip(*points, strict=True)))
