"""Figure 14: the five queries with the two reorder buffers."""

from __future__ import annotations

from functools import partial

from figures.figure import Claim, Figure, Found, Measure, Panel
from figures.ordered.figure_12 import BUFFERS
from figures.ordered.measuring import CORES, defaults, measure
from figures.ordered.queries import QUERIES
from figures.ordered.words import Points, beyond, listed, share

_WORK_SECONDS = 2.0


def _measures() -> dict[str, Measure]:
    found: dict[str, Measure] = {
        f"{query.name} {name}": partial(
            measure,
            query.steps,
            CORES,
            _WORK_SECONDS / CORES,
            policy="current-throughput",
            fuse=False,
            queue_size=512,
            buckets=100,
            reorder=buffer,
            slice_seconds=1e-6,
        )
        for query in QUERIES
        for name, buffer in BUFFERS.items()
    }
    return found | {f"{query.name} defaults": partial(defaults, query.steps) for query in QUERIES}


def _read(points: Points) -> Found:
    throughput = {
        name: {query.name: float(points[f"{query.name} {name}"]["throughput"]) for query in QUERIES} for name in BUFFERS
    }
    ring, lock = throughput.values()
    lines = {
        name: [(place, by[query.name] * 1e-3) for place, query in enumerate(QUERIES, 1)]
        for name, by in throughput.items()
    }
    panel = Panel("peak throughput", "1 to 4: Q1 to Q4; 5: Q15", "1,000 tuples/s", lines, style="bar")
    claims = [
        Claim(
            "The non-blocking buffer has the better throughput in all queries (by more than 0.2%)",
            "consistently better",
            listed({name: share(ring[name], lock[name]) for name in ring}),
            all(ring[name] > 1.002 * lock[name] for name in ring),
        ),
        beyond(
            {query.name: points[f"{query.name} defaults"]["throughput"] for query in QUERIES},
            {name: max(ring[name], lock[name]) for name in ring},
            "of the two buffers, tuple by tuple",
        ),
    ]
    return Found([panel], claims)


FIGURE = Figure(
    "figure-14",
    "Peak throughput comparison of the reordering schemes on TPCx-BB queries",
    "The queries of figure 8 under CT with 16 workers on 16 simulated cores, tuple by tuple, as in the paper.",
    _measures(),
    _read,
)
