"""Threads and throughput over time, as the algorithm of figure 7 looks for the best number."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from figures.figure import Claim, Figure, Found, Panel
from figures.ibm.graphs import HOSTS, SETTING, elastic

_PERIODS = 40
_RUNS: dict[str, tuple[str, str, int, float]] = {
    "Xeon, pipeline, 1": ("Xeon", "pipeline", 1, 0.003),
    "Power8, pipeline, 1": ("Power8", "pipeline", 1, 0.003),
    "Xeon, split, 10,000": ("Xeon", "split", 10_000, 0.005),
    "Power8, split, 100,000": ("Power8", "split", 100_000, 0.02),
    "Xeon, 10 x 100, 1,000": ("Xeon", "10 x 100", 1_000, 0.004),
    "Power8, 10 x 100, 1,000": ("Power8", "10 x 100", 1_000, 0.004),
}
_LAST = 10
"""Periods at the end that count as settled."""


def _read(results: Mapping[str, Any]) -> Found:
    panels = []
    for name, one in results.items():
        most = max(one["processed"])
        scaled = [(at, 100 * count / most) for at, count in zip(one["times"], one["processed"], strict=True)]
        threads = list(zip(one["times"], one["threads"], strict=True))
        lines = {"threads": threads, f"throughput, % of {most / 1e6:,.2f} million/s": scaled}
        panels.append(Panel(name, "time (s)", "threads, % of throughput", lines, style="step"))
    settled = {name: (min(one["threads"][-_LAST:]), max(one["threads"][-_LAST:])) for name, one in results.items()}
    peak = {name: max(one["threads"]) for name, one in results.items()}
    kept = {name: statistics.fmean(one["processed"][-_LAST:]) / max(one["processed"]) for name, one in results.items()}

    def within(name: str, words: str, least: int, most: int) -> Claim:
        """Settled in the paper's range, half or twice of that."""
        low, high = settled[name]
        allowed = min(2 * most, HOSTS[name.split(",")[0]].cores)
        return Claim(
            f"{name}: {words} (between half and twice of that)",
            f"{least} to {most} threads" if least < most else f"{most} threads",
            f"{low} to {high} threads, after {peak[name]}; {kept[name]:.0%} of the most that was seen",
            least / 2 <= low and high <= allowed,
            reason=""
            if least / 2 <= low and high <= allowed
            else f"throughput with these is {kept[name]:.0%} of the most that was seen on the way: the algorithm stops "
            "where a level more brings less than 5%, and in the model that is there. Figures 8 and 9 have the same "
            "graph with fixed numbers of threads.",
        )

    return Found(
        panels,
        [
            Claim(
                "pipeline: threads go up fast, and then down to a lower level",
                "all runs",
                ", ".join(f"{name}: {peak[name]}, then {settled[name][1]}" for name in results if "pipeline" in name),
                all(settled[name][1] < peak[name] for name in results if "pipeline" in name),
            ),
            within("Xeon, pipeline, 1", "settles well below all threads", 72, 132),
            within("Power8, pipeline, 1", "settles well below all threads", 128, 160),
            within("Xeon, split, 10,000", "goes up, gets worse, and goes back to few", 8, 10),
            within("Power8, split, 100,000", "wants many threads", 130, 184),
            within("Xeon, 10 x 100, 1,000", "settles at half of the threads", 80, 80),
            within("Power8, 10 x 100, 1,000", "wants all threads", 184, 184),
            Claim(
                "what it settles at gives nearly the most that was seen (0.9)",
                "-",
                ", ".join(f"{name}: {share:.2f}" for name, share in kept.items()),
                all(share >= 0.9 for share in kept.values()),
                is_beyond=True,
            ),
        ],
    )


FIGURE = Figure(
    "figure-10",
    "individual elasticity runs: throughput and active threads",
    SETTING
    + " Levels are each half as much again; periods are 3 to 20 ms instead of 10 s. Throughput is of all operators.",
    {name: partial(elastic, *run, _PERIODS) for name, run in _RUNS.items()},
    _read,
)
