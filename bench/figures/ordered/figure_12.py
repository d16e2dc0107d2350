"""Figure 12: a light-weight operator, with the reorder buffer that blocks nobody and the one with a lock."""

from __future__ import annotations

from functools import partial

from figures.figure import Claim, Figure, Found, Measure, Panel
from figures.ordered.measuring import CORES, defaults, measure
from figures.ordered.queries import Pipeline, Step
from figures.ordered.words import Points, beyond, share

_WORKERS = (1, 4, 8, 12, 16)
_WORK_SECONDS = 0.6
_PIPELINE: Pipeline = (Step("SL", 30e-6),)
BUFFERS = {"non-blocking": "ring", "lock-based": "lock"}


def _measures() -> dict[str, Measure]:
    run = partial(measure, _PIPELINE, policy="current-throughput", queue_size=1024)
    found: dict[str, Measure] = {
        f"{name} {workers}{way}": partial(
            run, workers, _WORK_SECONDS / workers, reorder=buffer, slice_seconds=slice_seconds
        )
        for name, buffer in BUFFERS.items()
        for workers in _WORKERS
        for way, slice_seconds in (("", 1e-6), (" in chunks", 1e-3))
    }
    return found | {"defaults": partial(defaults, _PIPELINE, seconds=0.8)}


def _read(points: Points) -> Found:
    def speed_up(name: str, workers: int, way: str = "") -> float:
        alone: float = points[f"{name} 1{way}"]["throughput"]
        return float(points[f"{name} {workers}{way}"]["throughput"]) / alone

    def cost(name: str, workers: int) -> float:
        return float(points[f"{name} {workers}"]["cost_seconds"]) * 1e6

    ring, lock = BUFFERS
    panels = [
        Panel(
            "speed-up, tuple by tuple",
            "workers",
            "speed-up",
            {name: [(w, speed_up(name, w)) for w in _WORKERS] for name in BUFFERS},
        ),
        Panel(
            "cost of a tuple",
            "workers",
            "µs, with waiting",
            {name: [(w, cost(name, w)) for w in _WORKERS] for name in BUFFERS},
        ),
        Panel(
            "speed-up, in chunks of a millisecond",
            "workers",
            "speed-up",
            {name: [(w, speed_up(name, w, " in chunks")) for w in _WORKERS] for name in BUFFERS},
        ),
    ]
    growth = {name: cost(name, CORES) / cost(name, 1) for name in BUFFERS}
    chunks = {name: points[f"{name} {CORES} in chunks"]["throughput"] for name in BUFFERS}
    claims = [
        Claim(
            "The non-blocking buffer scales better (by at least 5% with 16 workers)",
            "scales better",
            f"speed-up {speed_up(ring, CORES):.1f} against {speed_up(lock, CORES):.1f}",
            speed_up(ring, CORES) >= 1.05 * speed_up(lock, CORES),
        ),
        Claim(
            "At no number of workers is it worse",
            "better throughout",
            ", ".join(f"{w}: {share(speed_up(ring, w), speed_up(lock, w))}" for w in _WORKERS),
            all(speed_up(ring, w) >= 0.999 * speed_up(lock, w) for w in _WORKERS),
        ),
        Claim(
            "What a tuple costs, with waiting, grows more steeply with the lock",
            "more steeply",
            f"1 to 16 workers: {growth[ring]:.2f} times, {growth[lock]:.2f} with the lock",
            growth[lock] > 1.05 * growth[ring],
        ),
        Claim(
            "In Penstock's chunks of a millisecond of work either buffer costs next to nothing (within 1%)",
            "not measured: units are tuples there",
            share(chunks[ring], chunks[lock]),
            abs(chunks[ring] / chunks[lock] - 1) <= 0.01,
            is_beyond=True,
        ),
        beyond(
            {"16 cores": points["defaults"]["throughput"]},
            {"16 cores": max(points[f"{name} {CORES}"]["throughput"] for name in BUFFERS)},
            "of the two buffers, tuple by tuple",
        ),
    ]
    return Found(panels, claims)


FIGURE = Figure(
    "figure-12",
    "Speed-up and average processing cost for a light-weight operator",
    "An operator without state of 30 µs a tuple, on 16 simulated cores. Tuple by tuple, as in the paper, whose workers "
    "send single tuples (`slice_seconds=1e-6`), and in Penstock's chunks.",
    _measures(),
    _read,
)
