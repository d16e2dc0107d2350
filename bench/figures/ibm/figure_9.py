"""A width of 10 and a depth of 100: each threading model, by what a tuple costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.figure import Claim, Figure, Found
from figures.ibm.graphs import SETTING, points
from figures.ibm.models import Models

_SECONDS = {1: 0.02, 100: 0.03, 1_000: 0.05}
_PERIODS = {1: 0.002, 100: 0.002, 1_000: 0.004}
_DEFAULT_SECONDS = {1: 0.01, 100: 0.03, 1_000: 0.1}
_LEVELS = {"Xeon": (8, 44, 176), "Power8": (46, 184)}


def _measured() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for host, costs in ("Xeon", (1, 100, 1_000)), ("Power8", (1_000,)):
        for flops in costs:
            times = _SECONDS[flops], _PERIODS[flops], _DEFAULT_SECONDS[flops]
            found |= points(host, "10 x 100", flops, _LEVELS[host], *times)
    return found


def _read(results: Mapping[str, Any]) -> Found:
    graphs = Models.of(results)
    shares = {one.name: one.dedicated / one.dynamic for one in graphs}
    is_best = all(share <= 1 for share in shares.values())
    return Found(
        [one.panel for one in graphs],
        [
            Claim(
                "dynamic is always best",
                "always",
                _told(shares) + " (dedicated against dynamic)",
                is_best,
                reason=""
                if is_best
                else "where a tuple costs next to nothing, all threads meet at the one list of ready operators, and "
                "the dedicated model has none; in a simulation its 1,000 threads share cores fairly, and cost a "
                "context switch each time, but don't spin.",
            ),
            Claim(
                "dedicated is second",
                "always",
                _told({one.name: one.dedicated / one.manual for one in graphs}) + " (dedicated against manual)",
                all(one.dedicated > one.manual for one in graphs),
            ),
            Claim(
                "manual is last",
                "always",
                _told({one.name: one.dynamic / one.manual for one in graphs}) + " (dynamic against manual)",
                all(one.manual < min(one.dynamic, one.dedicated) for one in graphs),
            ),
            Claim(
                "elastic finds about the best number of threads (0.9 of the throughput)",
                "seen in the plots",
                _told({one.name: one.elastic / one.dynamic for one in graphs}),
                all(one.elastic >= 0.9 * one.dynamic for one in graphs),
            ),
            Claim(
                "Penstock's defaults give at least as much as the best of all models (0.99)",
                "-",
                _told({one.name: one.defaults / one.best for one in graphs}) + " (defaults against the best)",
                all(one.defaults >= 0.99 * one.best for one in graphs),
                is_beyond=True,
            ),
        ],
    )


def _told(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {figure:.2f}" for name, figure in figures.items())


FIGURE = Figure("figure-9", "1,000 operators in a mix of pipelines and data parallelism", SETTING, _measured(), _read)
