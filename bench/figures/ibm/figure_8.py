"""A pipeline of 1,000 operators, and a split of 1,000: each threading model, by what a tuple costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from figures.figure import Claim, Figure, Found
from figures.ibm.graphs import POWER8, SETTING, XEON, points
from figures.ibm.models import Models

_PIPELINE, _SPLIT = (1, 100, 1_000), (1, 10_000, 100_000)
_LEVELS = {"Xeon": (8, 32, 88, 176), "Power8": (32, 92, 184)}
_SPLIT_LEVELS = {"Xeon": (2, 4, 8, 12, 16, 24, 44, 88, 176), "Power8": (2, 4, 8, 16, 24, 46, 92, 184)}
_SECONDS = {1: 0.03, 100: 0.06, 1_000: 0.08, 10_000: 0.03, 100_000: 0.1}
_PERIODS = {1: 0.003, 100: 0.003, 1_000: 0.005, 10_000: 0.005, 100_000: 0.02}
_DEFAULT_SECONDS = {1: 0.008, 100: 0.024, 1_000: 0.08, 10_000: 0.03, 100_000: 0.1}
_SPLIT_SECONDS, _SPLIT_PERIOD, _SPLIT_DEFAULT_SECONDS = 0.01, 0.001, 0.02
"""Of tuples that cost nothing."""
_OURS_AGAIN = 0.9
"""What is found by itself is as good as the best number of threads if it gives so much of it."""


def _measured() -> dict[str, Any]:
    found: dict[str, Any] = {}
    # Both machines show the same trends; on the second one a pipeline of one cost has to do.
    for host, costs in (XEON, _PIPELINE), (POWER8, (100,)):
        for flops in costs:
            times = _SECONDS[flops], _PERIODS[flops], _DEFAULT_SECONDS[flops]
            found |= points(host.name, "pipeline", flops, _LEVELS[host.name], *times)
    for host in XEON, POWER8:
        for flops in _SPLIT:
            times = _SECONDS[flops], _PERIODS[flops], _DEFAULT_SECONDS[flops]
            if flops == 1:
                times = _SPLIT_SECONDS, _SPLIT_PERIOD, _SPLIT_DEFAULT_SECONDS
            found |= points(host.name, "split", flops, _SPLIT_LEVELS[host.name], *times)
    return found


def _read(results: Mapping[str, Any]) -> Found:
    graphs = Models.of(results)
    pipelines = [one for one in graphs if one.graph == "pipeline"]
    splits = [one for one in graphs if one.graph == "split"]
    return Found(
        [one.panel for one in graphs if one.host == "Xeon" or one.graph == "split"],
        [*_of_pipelines(pipelines), *_of_splits(splits), *_beyond(graphs)],
    )


def _of_pipelines(graphs: Sequence[Models]) -> list[Claim]:
    shares = {one.name: one.dynamic / one.dedicated for one in graphs}
    first, last = (next(one for one in graphs if one.flops == flops) for flops in (_PIPELINE[0], _PIPELINE[-1]))
    return [
        Claim(
            "pipeline: manual is worst",
            "always",
            _told({one.name: one.manual / one.dynamic for one in graphs}, " of dynamic"),
            all(one.manual < min(one.dynamic, one.dedicated) for one in graphs),
        ),
        Claim(
            "pipeline: dedicated is best",
            "always",
            _told(shares, ": what dynamic gives of it"),
            all(share < 1 for share in shares.values()),
            reason=""
            if all(share < 1 for share in shares.values())
            else "its advantage is that its threads share no list of ready operators; where tuples cost more, that "
            "list holds nobody up any more, and its 1,000 threads have to take turns on the cores.",
        ),
        Claim(
            "pipeline: dynamic gives 40 to 60% of dedicated at cost 1 (30 to 70%), and more where tuples are dearer",
            "40 to 60%, then 75%",
            f"{shares[first.name]:.0%}, then {shares[last.name]:.0%}",
            0.3 <= shares[first.name] <= 0.7 and shares[first.name] < shares[last.name],
        ),
        Claim(
            "pipeline: elastic finds about the best number of threads (0.9 of the throughput)",
            "seen in the plots",
            _told({one.name: one.elastic / one.dynamic for one in graphs}),
            all(one.elastic >= _OURS_AGAIN * one.dynamic for one in graphs),
        ),
    ]


def _of_splits(graphs: Sequence[Models]) -> list[Claim]:
    cheap = [one for one in graphs if one.flops == 1]
    dear = [one for one in graphs if one.flops > 1]
    knees = {one.name: one.knee for one in graphs if one.flops == 10_000}
    xeon, power8 = knees["Xeon split, 10,000"], knees["Power8 split, 10,000"]
    return [
        Claim(
            "split, cost 1: manual is best, and elastic uses very few threads (16 at most)",
            "manual best",
            "; ".join(
                f"{one.name}: {one.manual / max(one.dynamic, one.dedicated):.1f} times the best other; "
                f"{one.elastic_threads} threads"
                for one in cheap
            ),
            all(one.manual > max(one.dynamic, one.dedicated) and one.elastic_threads <= 16 for one in cheap),
        ),
        Claim(
            "split, dearer: dynamic is better than manual, and better than dedicated",
            "far better",
            _told({one.name: one.dedicated / one.dynamic for one in dear}, ": dedicated against dynamic"),
            all(one.dynamic > one.dedicated and one.dynamic > one.manual for one in dear),
        ),
        Claim(
            "split, cost 10,000: few threads are best, more on Power8 (half to twice the paper's number)",
            "8 to 10 (Xeon), 16 to 24 (Power8)",
            f"fewest that give 95% of the best: {xeon} (Xeon), {power8} (Power8)",
            4 <= xeon <= 20 and 8 <= power8 <= 48 and xeon < power8,
        ),
        Claim(
            "split: elastic finds about the best number of threads (0.9 of the throughput)",
            "seen in the plots",
            _told({one.name: one.elastic / one.dynamic for one in graphs}),
            all(one.elastic >= _OURS_AGAIN * one.dynamic for one in graphs),
        ),
        Claim(
            "split, cost 10,000: more threads than that are worse",
            "seen in the plots",
            _told(
                {one.name: one.most_threads / one.dynamic for one in dear if one.flops == 10_000}, " with all threads"
            ),
            all(one.most_threads < 0.95 * one.dynamic for one in dear if one.flops == 10_000),
            reason=""
            if all(one.most_threads < 0.95 * one.dynamic for one in dear if one.flops == 10_000)
            else "they are no better, and no worse: who waits for the lock of the simulated sink sleeps, where theirs "
            "spin in the kernel and slow down the one that has it. With 44 and 88 threads, which are measured too, it "
            "is the same; and so it is with 1,000 (dedicated), but for the cores that these have to share.",
        ),
    ]


def _beyond(graphs: Sequence[Models]) -> list[Claim]:
    return [
        Claim(
            f"{graph}: Penstock's defaults give at least as much as the best of all models (0.99)",
            "-",
            _told({one.name: one.defaults / one.best for one in graphs if one.graph == graph}, " times the best"),
            all(one.defaults >= 0.99 * one.best for one in graphs if one.graph == graph),
            is_beyond=True,
        )
        for graph in ("pipeline", "split")
    ]


def _told(figures: Mapping[str, float], after: str = "") -> str:
    return ", ".join(f"{name}: {figure:.2f}" for name, figure in figures.items()) + after


FIGURE = Figure(
    "figure-8",
    "1,000 operators in pure pipelines and data-parallel graphs",
    SETTING,
    _measured(),
    _read,
)
