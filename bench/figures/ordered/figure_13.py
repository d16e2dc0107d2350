"""Figure 13: an operator with a high selectivity before a keyed one, with the two reorder buffers."""

from __future__ import annotations

from functools import partial

from figures.figure import Claim, Figure, Found, Measure, Panel
from figures.ordered.figure_12 import BUFFERS
from figures.ordered.measuring import CORES, defaults, measure
from figures.ordered.queries import Pipeline, Step
from figures.ordered.words import Points, beyond, share
from penstock.engines.simulated.machine import Machine

_WORKERS = (1, 4, 8, 16)
_WORK_SECONDS = 2.0
_PIPELINE: Pipeline = (Step("SL", 100e-6, 50), Step("PS", 100e-6))
_TUPLE_BY_TUPLE = Machine(give_tuple_seconds=1e-6)


def _measures() -> dict[str, Measure]:
    run = partial(measure, _PIPELINE, policy="current-throughput", fuse=False, queue_size=1024, slice_seconds=1e-6)
    found: dict[str, Measure] = {}
    for name, buffer in BUFFERS.items():
        for workers in _WORKERS:
            one = partial(run, workers, _WORK_SECONDS / workers, reorder=buffer)
            found[f"{name} {workers}"] = partial(one, machine=_TUPLE_BY_TUPLE)
        found[f"{name} {CORES} whole"] = partial(run, CORES, _WORK_SECONDS / CORES, reorder=buffer)
    return found | {"defaults": partial(defaults, _PIPELINE)}


def _read(points: Points) -> Found:
    def speed_up(name: str, workers: int) -> float:
        return float(points[f"{name} {workers}"]["throughput"]) / float(points[f"{name} 1"]["throughput"])

    def cost(name: str, workers: int) -> float:
        return float(points[f"{name} {workers}"]["first_cost_seconds"]) * 1e6

    ring, lock = BUFFERS
    panels = [
        Panel(
            title,
            "workers",
            axis,
            {name: [(workers, of(name, workers)) for workers in _WORKERS] for name in BUFFERS},
        )
        for title, axis, of in (
            ("speed-up of the pipeline", "speed-up", speed_up),
            ("cost of a tuple in the first operator", "µs, with waiting", cost),
        )
    ]
    whole = {name: points[f"{name} {CORES} whole"]["throughput"] for name in BUFFERS}
    claims = [
        Claim(
            "The non-blocking buffer is better (by at least 1% with 16 workers)",
            "better, even for larger computations",
            f"speed-up {speed_up(ring, CORES):.2f} against {speed_up(lock, CORES):.2f}; where chunks are handed on "
            f"whole, as Penstock does, {share(whole[ring], whole[lock])}",
            speed_up(ring, CORES) >= 1.01 * speed_up(lock, CORES),
        ),
        Claim(
            "With the lock the first operator's tuples become dearer (by more than 5%, 16 workers against one), and "
            "not so much without",
            "workers are blocked",
            f"{share(cost(lock, CORES), cost(lock, 1))} with the lock, "
            f"{share(cost(ring, CORES), cost(ring, 1))} without",
            cost(lock, CORES) > 1.05 * cost(lock, 1) and cost(lock, CORES) > 1.02 * cost(ring, CORES),
        ),
        beyond(
            {"16 cores": points["defaults"]["throughput"]},
            {"16 cores": max(*whole.values(), *(points[f"{name} {CORES}"]["throughput"] for name in BUFFERS))},
            "of the two buffers, tuple by tuple",
        ),
    ]
    return Found(panels, claims)


FIGURE = Figure(
    "figure-13",
    "Speed-up of a pipeline with high selectivity, and average processing cost of its first operator",
    "An operator without state (100 µs, 50 tuples for each) and one with partitioned state (100 µs) on 16 simulated "
    "cores under CT, tuple by tuple. In the paper each of the 50 tuples is put into a queue of its own while none else "
    "may send: a microsecond for each is assumed (`Machine(give_tuple_seconds=1e-6)`). It costs Penstock nothing, for "
    "whole chunks are handed on there.",
    _measures(),
    _read,
)
