"""Figure 8: which heuristic for the next operator gives how much throughput and latency on the five queries."""

from __future__ import annotations

from functools import partial
from typing import Any

from figures.figure import Claim, Figure, Found, Measure, Panel
from figures.ordered.measuring import POLICIES, defaults, measure
from figures.ordered.queries import QUERIES, Query
from figures.ordered.words import Points, beyond, listed, milliseconds, share
from penstock.engines.simulated.machine import Machine

_WORK_SECONDS = 6.0
"""Of all workers together: a run has as many tuples on any number of cores."""
_PEAK_WORK_SECONDS = 24.0
"""There policies are compared, and QST lets tuples out in bursts."""
_HELD_WORK_SECONDS = 12.0
_CORES = (1, 4, 8, 12, 16)
_ALMOST_LINEAR = 0.85
_AS_GOOD = 0.98
_DEEP, _DEEP_TUPLES = ("Q2", "Q4"), 8192
_HELD_BY_TUPLE = Machine(worklist_seconds=50e-6, port_seconds=50e-6)
_OPTIONS: dict[str, Any] = {"fuse": False, "queue_size": 1024, "buckets": 100}


def _cores(query: Query) -> list[int]:
    return [cores for cores in _CORES if cores <= query.peak_cores]


def _measures() -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for query in QUERIES:
        for label, policy in POLICIES.items():
            run = partial(measure, query.steps, policy=policy, **_OPTIONS)
            at_peak = partial(run, query.peak_cores, cores=query.peak_cores)
            for cores in _cores(query):
                found[f"{query.name} {label} {cores}"] = partial(run, cores, _WORK_SECONDS / cores, cores=cores)
            peak = query.peak_cores
            found[f"{query.name} {label} {peak}"] = partial(at_peak, _PEAK_WORK_SECONDS / peak)
            found[f"{query.name} {label} held"] = partial(at_peak, _HELD_WORK_SECONDS / peak, machine=_HELD_BY_TUPLE)
            if label in ("CT", "ET") and query.name in _DEEP:
                found[f"{query.name} {label} deep"] = partial(
                    at_peak, _PEAK_WORK_SECONDS / peak, queue_size=_DEEP_TUPLES
                )
        found[f"{query.name} defaults"] = partial(defaults, query.steps, query.peak_cores)
    return found


def _read(points: Points) -> Found:
    def at_peak(what: str, run: str = "") -> dict[str, dict[str, float]]:
        return {
            query.name: {label: points[f"{query.name} {label} {run or query.peak_cores}"][what] for label in POLICIES}
            for query in QUERIES
        }

    def deep(name: str, label: str) -> str:
        return milliseconds(points[f"{name} {label} deep"]["latency_seconds"])

    throughput, latency = at_peak("throughput"), at_peak("latency_seconds")
    held = at_peak("throughput", "held")
    cost = at_peak("cost_seconds")
    speed_ups = {
        query.name: throughput[query.name]["CT"] / points[f"{query.name} CT 1"]["throughput"] for query in QUERIES
    }
    panels = [
        Panel(
            f"{query.name}: {title}",
            "cores",
            axis,
            {
                label: [(cores, points[f"{query.name} {label} {cores}"][what] * scale) for cores in _cores(query)]
                for label in POLICIES
            }
            | {"defaults": [(query.peak_cores, points[f"{query.name} defaults"][what] * scale)]},
            log_y=what != "throughput",
        )
        for title, axis, what, scale in (
            ("throughput", "1,000 tuples/s", "throughput", 1e-3),
            ("latency", "ms", "latency_seconds", 1e3),
        )
        for query in QUERIES
    ]
    best = {name: max(by.values()) for name, by in throughput.items()}
    ct_of_best = {name: by["CT"] / best[name] for name, by in throughput.items()}
    lp_of_ct = {name: by["LP"] / by["CT"] for name, by in throughput.items()}
    others = {name: max(by["ET"], by["QST"]) / max(by["CT"], by["LP"]) for name, by in throughput.items()}
    why = (
        "All four keep all workers busy where the input never ends, and what a tuple costs hardly depends on which "
        f"operators they are in: the dearest policy's is {_spread(cost)} above the cheapest's. The paper's reason is "
        "that many workers in one operator make its tuples dearer. Where a queue is held for 50 µs instead of 1 to "
        f"1.5 µs (tuples go in and out one by one), LP is at {listed(_of(held, 'LP', 'CT'))} of CT, ET at "
        f"{listed(_of(held, 'ET', 'CT'))}, QST at {listed(_of(held, 'QST', 'CT'))}"
    )
    claims = [
        Claim(
            f"CT scales almost linearly (at least {_ALMOST_LINEAR} for each core) up to the paper's peak",
            "up to 16 cores (Q1), 12 (Q15), 8 (Q2 to Q4)",
            listed({query.name: f"{speed_ups[query.name]:.1f} on {query.peak_cores}" for query in QUERIES}),
            all(speed_ups[query.name] >= _ALMOST_LINEAR * query.peak_cores for query in QUERIES),
        ),
        _claim(
            f"CT has the best throughput of the four (at least {_AS_GOOD} of it) at the peak",
            "in all queries",
            listed({name: f"{ratio:.3f}" for name, ratio in ct_of_best.items()}) + " of the best",
            all(ratio >= _AS_GOOD for ratio in ct_of_best.values()),
            why,
        ),
        _claim(
            "LP has CT's throughput on Q1 and Q15 (at least 0.97)",
            "as well as CT",
            listed({name: f"{lp_of_ct[name]:.3f}" for name in ("Q1", "Q15")}) + " of CT",
            all(lp_of_ct[name] >= 0.97 for name in ("Q1", "Q15")),
            why,
        ),
        _claim(
            "LP has less than CT on Q2, Q3 and Q4 (at most 0.98)",
            "suboptimal",
            listed({name: f"{lp_of_ct[name]:.3f}" for name in ("Q2", "Q3", "Q4")}) + " of CT",
            all(lp_of_ct[name] <= 0.98 for name in ("Q2", "Q3", "Q4")),
            why,
        ),
        _claim(
            "ET and QST have less throughput than CT and LP (the better one at most 0.98 of the better one)",
            "in all queries",
            listed({name: f"{ratio:.3f}" for name, ratio in others.items()}),
            all(ratio <= 0.98 for ratio in others.values()),
            why,
        ),
        Claim(
            "LP has the lowest latency",
            "a few ms",
            listed({name: milliseconds(by["LP"]) for name, by in latency.items()}),
            all(by["LP"] == min(by.values()) for by in latency.values()),
        ),
        Claim(
            "CT has the second lowest",
            "closely behind in many cases, far more in some",
            "times LP's: " + listed({name: f"{by['CT'] / by['LP']:.1f}" for name, by in latency.items()}),
            all(by["CT"] <= min(by["ET"], by["QST"]) for by in latency.values()),
            ""
            if all(by["CT"] <= min(by["ET"], by["QST"]) for by in latency.values())
            else "Queues of 1,024 tuples bound what can wait under ET, and the paper names no bound. With queues of "
            f"{_DEEP_TUPLES:,}, CT and ET have "
            + listed({name: " and ".join(deep(name, label) for label in ("CT", "ET")) for name in _DEEP}),
        ),
        Claim(
            "ET and QST have higher latencies than LP (at least twice as high)",
            "quite high",
            "ET and QST, times LP's: "
            + listed(
                {name: f"{by['ET'] / by['LP']:.1f} and {by['QST'] / by['LP']:.1f}" for name, by in latency.items()}
            ),
            all(min(by["ET"], by["QST"]) >= 2 * by["LP"] for by in latency.values()),
        ),
        beyond(
            {query.name: points[f"{query.name} defaults"]["throughput"] for query in QUERIES},
            best,
            "of the four policies",
            "On Q4 the controller gives the first operator six replicas on eight cores. While the keyed operator's "
            "partitions are taken, a worker finds nothing free: with six there (and else as the contestants) "
            "workers are busy for 97% of the time, with eight always.",
        ),
    ]
    return Found(panels, claims)


def _claim(told: str, paper: str, ours: str, holds: bool, why: str) -> Claim:
    return Claim(told, paper, ours, holds, "" if holds else why)


def _of(found: dict[str, dict[str, float]], one: str, other: str) -> dict[str, str]:
    return {name: f"{by[one] / by[other]:.2f}" for name, by in found.items()}


def _spread(cost: dict[str, dict[str, float]]) -> str:
    return share(
        *max(((max(by.values()), min(by.values())) for by in cost.values()), key=lambda pair: pair[0] / pair[1])
    )


FIGURE = Figure(
    "figure-8",
    "Performance of the runtime when using different scheduling heuristics over TPCx-BB queries",
    "The five queries as chains of table 1's operators, simulated on 1 to 16 cores with as many workers and a "
    "source that always has more. The paper does not say what operators cost: costs, selectivities and the skew of "
    "keys are those of the examples on generated data, costs times 40 for fewer tuples a second. Queues hold 1,024 "
    "tuples. Latency is the paper's: from the moment the first operator begins with a tuple to its exit, tuples "
    "between 20% and 80% of those that came out.",
    _measures(),
    _read,
)
