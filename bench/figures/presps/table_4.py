"""Appendix A: the worked example."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import penstock as ps
from figures.figure import Claim, Figure, Found, Panel
from figures.presps.systems import Presps
from penstock.elasticity.signals import OperatorSignals, Signals

_COSTS = {"O1": 0.0166, "O2": 0.025, "O3": 0.1}
_PAPER = {"O1": 2, "O2": 3, "O3": 9}


def _replicas(as_printed: bool) -> dict[str, int]:
    """Table 4 (a) is what is seen; how many replicas are wanted after it."""

    def seen(name: str, processed: int, before: str, came: int, waits: int) -> OperatorSignals:
        busy = processed * _COSTS[name]
        return OperatorSignals(
            name,
            processed,
            processed,
            inputs={before: came},
            busy_seconds=busy,
            cpu_seconds=busy,
            queue_length=waits,
            most_replicas=100,
        )

    operators = [
        OperatorSignals("in", emitted=100, is_source=True),
        seen("O1", 140, before="in", came=100, waits=0),
        seen("O2", 120, before="O1", came=117, waits=7),
        seen("O3", 90, before="O2", came=90, waits=20),
    ]
    signals = Signals(1.0, 1.0, {one.name: one for one in operators}, cores=100, offered_rate=100.0)
    # What waits is to be done within a period, as there.
    controller = Presps(_COSTS) if as_printed else ps.controllers.Predictive(drain_seconds=1.0)
    found = dict.fromkeys(_COSTS, 1) | {one.operator: int(one.after) for one in controller.decide(signals)}
    return {name: found[name] for name in _COSTS}


def _read(results: Mapping[str, Any]) -> Found:
    lines = {"the paper": _PAPER, **results}
    return Found(
        [
            Panel(
                "replicas of O1, O2, O3",
                "operator",
                "replicas",
                {name: list(enumerate(one.values(), 1)) for name, one in lines.items()},
                style="bar",
            )
        ],
        [
            Claim(f"replicas that {words} asks for", "2, 3, 9", ", ".join(map(str, results[name].values())), holds)
            for name, words in (("equations 1 to 6", "PRESPS"), ("predictive", 'Penstock\'s `"predictive"`'))
            for holds in [results[name] == _PAPER]
        ],
    )


FIGURE = Figure(
    "table-4",
    "the worked example of appendix A",
    "The controllers see what table 4 (a) shows of an interval of a second, and decide once.",
    {"equations 1 to 6": partial(_replicas, True), "predictive": partial(_replicas, False)},
    _read,
)
