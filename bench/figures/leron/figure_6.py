"""How many tuples more `compute` processes than `exclaim1`: those that were helped with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from typing import Any

from figures.figure import Claim, Figure, Found, Panel
from figures.leron.words import SETTING, run, seen_of

_SECONDS = 300.0


def _read(results: Mapping[str, Any]) -> Found:
    lines, tails = {}, {}
    for name, result in results.items():
        seen = seen_of(result)
        past = accumulate(one.helped for one in seen)
        lines[name] = list(zip((one.time for one in seen), past, strict=True))
        tails[name] = [one.helped / max(1, one.compute) for one in seen if one.time > _SECONDS / 2]
    helped = {name: points[-1][1] for name, points in lines.items()}
    shares = {name: sum(own) / len(own) for name, own in tails.items()}
    return Found(
        [Panel("past exclaim1", "time (s)", "tuples of compute that exclaim1 had not to process", lines)],
        [
            Claim(
                "compute processes more tuples than exclaim1: the difference goes past it to exclaim2",
                "seen in the plot",
                f"{helped['Leron']:,.0f} tuples, {shares['Leron']:.0%} once settled",
                helped["Leron"] > 0,
            ),
            Claim(
                "none do so in Heron",
                "seen in the plot",
                f"{helped['Heron']:,.0f} tuples",
                helped["Heron"] == 0,
            ),
            Claim(
                "Penstock's helpers take what is too much for exclaim1, and hardly more (28 to 36%)",
                "-",
                f"{shares['Penstock']:.0%}",
                0.28 <= shares["Penstock"] <= 0.36,
                is_beyond=True,
            ),
        ],
    )


FIGURE = Figure(
    "figure-6",
    "difference between what compute and exclaim1 have processed in Leron",
    SETTING,
    {name: partial(run, name, _SECONDS) for name in ("Heron", "Leron", "Penstock")},
    _read,
)
