"""Figure 12: against Storm, which has a thread for each operator."""

from __future__ import annotations

from functools import partial

from figures.c_stream.running import CORES, Points, beyond, by_default, fixed, run, setting
from figures.c_stream.topologies import TOPOLOGIES
from figures.figure import Claim, Figure, Found, Measure, Panel

_SECONDS = {"chain": 2.0, "data-parallel": 0.5, "tree": 0.8, "reverse tree": 1.6}
_SHAPES = {"data-parallel": {"busy": 8}}


def _read(points: Points) -> Found:
    systems = {"C-Stream": "pool", "Storm": "thread each", "Penstock": "default"}
    rates = {
        system: [(float(place + 1), points[f"{topology}, {how}"]["out"]) for place, topology in enumerate(TOPOLOGIES)]
        for system, how in systems.items()
    }
    ratios = {
        topology: rates["C-Stream"][place][1] / rates["Storm"][place][1] for place, topology in enumerate(TOPOLOGIES)
    }
    claims = [
        Claim(
            "Without adaptation, C-Stream's throughput is comparable to Storm's",
            "comparable in all four topologies",
            ", ".join(f"{topology} {ratio:.2f}" for topology, ratio in ratios.items()) + " of Storm's",
            all(ratio >= 0.8 for ratio in ratios.values()),
        )
    ]
    for place, topology in enumerate(TOPOLOGIES):
        best = max(("C-Stream", "Storm"), key=lambda system: rates[system][place][1])
        claims.append(beyond(f" ({topology})", rates["Penstock"][place][1], rates[best][place][1], best))
    title = "1 " + ", ".join(f"{place + 1} {topology}" for place, topology in enumerate(TOPOLOGIES))[2:]
    return Found([Panel(title, "topology", "tuples/s", rates, style="bar")], claims)


def _measures() -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for topology, seconds in _SECONDS.items():
        shape = _SHAPES.get(topology, {})
        found[f"{topology}, pool"] = fixed(topology, "Random", CORES, seconds, shape=shape)
        found[f"{topology}, thread each"] = partial(run, topology, seconds, shape, threading="dedicated")
        found[f"{topology}, default"] = by_default(topology, 1.2, **shape)
    return found


FIGURE = Figure(
    "figure-12",
    "against Storm, without adaptation",
    f"Chain of 12, data-parallel of 8, trees of 63; C-Stream is a pool of {CORES} threads with Random, and Storm, "
    f'which has an executor for each operator, `threading="dedicated"`. {setting()}',
    _measures(),
    _read,
)
