"""Figure 11: how many threads adaptation finds, against every fixed number."""

from __future__ import annotations

from functools import partial

import penstock as ps
from figures.c_stream.adapting import final
from figures.c_stream.running import CORES, Points, beyond, by_default, fixed, line, run, setting
from figures.figure import Claim, Figure, Found, Measure, Panel

_SECONDS = 6.0
_PERIOD = 0.1
_QUEUE_SIZE = 256
_BOUNDS = {"U high 0.95": (0.90, 0.95), "U high 0.90": (0.85, 0.90)}


def _adapted(low: float, high: float) -> Measure:
    threads = ps.controllers.Utilisation(low=low, high=high)
    elastic = ps.Elastic(threads=threads, replicas="fixed", helping=False, period=_PERIOD, most_threads=CORES)
    return partial(run, "data-parallel", _SECONDS, threads=1, elastic=elastic, queue_size=_QUEUE_SIZE)


def _read(points: Points) -> Found:
    rates = line(points, {float(threads): f"{threads} threads" for threads in range(1, CORES + 1)})
    best = max(rates, key=lambda one: one[1])
    reached = {name: (final(points[name]), points[name]["out"]) for name in _BOUNDS}
    patient, eager = reached["U high 0.95"], reached["U high 0.90"]
    claims = [
        Claim(
            "A high threshold of 0.90 goes to more threads than one of 0.95",
            "more threads",
            f"{eager[0]} threads, and {patient[0]} with 0.95",
            eager[0] > patient[0],
        ),
        Claim(
            "With 0.90 it reaches the most that the system can",
            "the maximum",
            f"{eager[1]:,.0f} tuples/s; the most is {best[1]:,.0f}, with {best[0]:.0f} threads",
            eager[1] >= 0.97 * best[1],
        ),
        beyond("", points["default"]["out"], best[1], f"{best[0]:.0f} threads"),
    ]
    found = {name: [(float(threads), rate)] for name, (threads, rate) in reached.items()}
    panel = Panel("throughput, fixed and found", "threads", "tuples/s", {"fixed": rates, **found})
    return Found([panel], claims)


FIGURE = Figure(
    "figure-11",
    "adaptation, data-parallel",
    f"Data-parallel topology of 12, Random; low thresholds are 0.05 less than the high ones. A look every {_PERIOD} s "
    "instead of 10. One thread is busy for less than 0.95 of the time, for picks are no work; with queues of 1,024 "
    f"picks are fewer, and both thresholds lead to 12. {setting(_QUEUE_SIZE)}",
    {
        **{
            f"{threads} threads": fixed("data-parallel", "Random", threads, 1.2 + 2.0 / threads, queue_size=_QUEUE_SIZE)
            for threads in range(1, CORES + 1)
        },
        **{name: _adapted(low, high) for name, (low, high) in _BOUNDS.items()},
        "default": by_default("data-parallel", 1.5),
    },
    _read,
)
