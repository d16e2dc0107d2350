"""Throughput over time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from figures.figure import Claim, Figure, Found, Panel
from figures.presps.application import SETTING, points, timed


def _read(results: Mapping[str, Any]) -> Found:
    offered = results["PRESPS"]["offered"]
    lines = {name: timed(one["throughput"]) for name, one in results.items()}
    unstable = {
        name: statistics.fmean(abs(one - other) for one, other in zip(result["throughput"], offered, strict=True))
        for name, result in results.items()
    }
    processed = {name: result["processed"] for name, result in results.items()}
    papers = ("PRESPS", "DABS-Storm")
    return Found(
        [Panel("throughput", "time (s)", "tweets a second", {"input": timed(offered), **lines}, style="step")],
        [
            Claim(
                "downtime makes DABS-Storm's throughput less stable (mean distance from the input, tweets a second)",
                "seen in the plot; 35.73% less degradation",
                _told(unstable, papers, 1),
                unstable["DABS-Storm"] > unstable["PRESPS"],
            ),
            Claim(
                "and fewer events are processed",
                "17.06% fewer",
                f"{1 - processed['DABS-Storm'] / processed['PRESPS']:.0%} fewer",
                processed["DABS-Storm"] < processed["PRESPS"],
            ),
            Claim(
                "the defaults are closer to the input than the better of both, and process everything",
                "seen in the plot",
                _told(unstable, ("Penstock", *papers), 1),
                unstable["Penstock"] <= min(unstable[name] for name in papers) and processed["Penstock"] == 1,
                is_beyond=True,
            ),
        ],
    )


def _told(figures: Mapping[str, float], names: tuple[str, ...], digits: int) -> str:
    return ", ".join(f"{name} {figures[name]:.{digits}f}" for name in names)


FIGURE = Figure(
    "figure-4",
    "throughput of PRESPS and DABS-Storm",
    SETTING,
    points(["PRESPS", "DABS-Storm", "Penstock"], 240.0),
    _read,
)
