"""How fast each operator is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from figures.figure import Claim, Figure, Found, Panel
from figures.leron.words import COMPUTE, EXCLAIM, HELPING, SETTING, run, seen_of

_SECONDS, _FULL_SECONDS = 60.0, 30.0


def _read(results: Mapping[str, Any]) -> Found:
    one, two = (
        [seen for seen in seen_of(results[name]) if seen.time > _FULL_SECONDS]
        for name in ("one compute", "two computes")
    )
    compute = statistics.fmean(seen.compute for seen in one)
    exclaim = statistics.fmean(seen.exclaim1 for seen in two)
    helper = 1 / (1 / compute + results["a helper"]["helper_seconds"])
    asked = statistics.fmean(seen.full_share for seen in two)
    shown = {"the paper": (COMPUTE, EXCLAIM, HELPING), "ours": (compute, exclaim, helper)}
    return Found(
        [
            Panel(
                "1 compute, 2 exclaim1, 3 compute (LB)",
                "operator",
                "tuples/ms",
                {name: list(enumerate(figures, 1)) for name, figures in shown.items()},
                style="bar",
            )
        ],
        [
            Claim(
                "compute is slower than exclaim1, and a compute that helps is slower still (5% from table 1)",
                f"{COMPUTE} < {EXCLAIM}, {HELPING} < {COMPUTE}",
                f"{compute:.2f} < {exclaim:.2f}, {helper:.2f} < {compute:.2f}",
                all(abs(ours / theirs - 1) < 0.05 for theirs, ours in zip(*shown.values(), strict=True)),
            ),
            Claim(
                "two computes are faster than exclaim1, whose queue fills up",
                "back-pressure is triggered",
                f"no room for {asked:.0%} of the time from {_FULL_SECONDS:.0f} s on",
                asked > 0 and not any(seen.full_share for seen in one),
            ),
        ],
    )


FIGURE = Figure(
    "table-1",
    "processing speed of each bolt logic",
    SETTING + " Speeds are put in and measured again: of compute where it is alone, of exclaim1 behind two of them.",
    {
        "one compute": partial(run, "Heron", _SECONDS, computes=1),
        "two computes": partial(run, "Heron", _SECONDS),
        "a helper": partial(run, "Penstock", _SECONDS),
    },
    _read,
)
