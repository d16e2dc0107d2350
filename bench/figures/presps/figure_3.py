"""The total number of replicas over time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from figures.figure import Claim, Figure, Found, Panel
from figures.presps.application import SETTING, points, timed


def _read(results: Mapping[str, Any]) -> Found:
    lines = {name: timed(one["replicas"]) for name, one in results.items()}
    offered = results["PRESPS"]["offered"]
    follows = {name: statistics.correlation(offered, one["replicas"]) for name, one in results.items()}
    papers = {name: follows[name] for name in ("PRESPS", "DABS-Storm")}
    means = {name: statistics.fmean(one["replicas"]) for name, one in results.items()}
    return Found(
        [
            Panel("total number of replicas", "time (s)", "replicas", lines, style="step"),
            Panel(
                "what comes through the filter", "time (s)", "tweets a second", {"input": timed(offered)}, style="step"
            ),
        ],
        [
            Claim(
                "both adapt the number of replicas to the input rate (correlation of at least 0.5)",
                "seen in the plot",
                _told(papers),
                all(one >= 0.5 for one in papers.values()),
            ),
            Claim(
                "PRESPS uses fewer replicas than DABS-Storm (mean)",
                "41.77% better saved resources",
                _told({name: means[name] for name in papers}, 1),
                means["PRESPS"] < means["DABS-Storm"],
            ),
            Claim(
                "the defaults follow the input rate as well (correlation of at least 0.95)",
                "seen in the plot",
                _told(follows),
                follows["Penstock"] >= 0.95,
                is_beyond=True,
            ),
        ],
    )


def _told(figures: Mapping[str, float], digits: int = 2) -> str:
    return ", ".join(f"{name} {figure:.{digits}f}" for name, figure in figures.items())


FIGURE = Figure(
    "figure-3",
    "total number of replicas of PRESPS and DABS-Storm",
    SETTING,
    points(["PRESPS", "DABS-Storm", "Penstock"], 240.0),
    _read,
)
