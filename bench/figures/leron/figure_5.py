"""Tuples over time, and back-pressure, of Heron and Leron."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from figures.figure import Claim, Figure, Found, Panel
from figures.leron.words import SETTING, Seen, run, seen_of

_SECONDS, _BALANCED_SECONDS = 600.0, 120.0
_FIGURES = 10
_NO_BACKPRESSURE = 3.0
"""Where compute takes so many times as long, exclaim1 keeps up."""
_SETTLED_SECONDS = 300.0
_SHOWN_SECONDS = 200.0


def _read(results: Mapping[str, Any]) -> Found:
    seen = {name: seen_of(result) for name, result in results.items()}
    systems = ("Heron", "Leron", "Penstock")
    total = {name: sum(one.out for one in own) for name, own in seen.items()}
    settled = {name: [one for one in seen[name] if one.time > _SETTLED_SECONDS] for name in systems}
    still = {name: statistics.fmean(one.still_share for one in own) for name, own in settled.items()}
    rate = {name: statistics.fmean(one.out for one in own) for name, own in settled.items()}
    times = total["Leron"] / total["Heron"]
    balanced = total["balanced, Leron"] / total["balanced, Heron"]
    ours_balanced = total["balanced, Penstock"] / total["balanced, Heron"]
    penstock = max((time for time, _ in results["Penstock"]["ratios"]), default=0.0)
    return Found(
        [
            Panel("(a) tuples so far", "time (s)", "tuples", {name: _cumulative(seen[name]) for name in systems}),
            Panel(
                "(b) back-pressure",
                "time (s)",
                "share of a second in which word stands still",
                {
                    name: [(one.time, one.still_share) for one in seen[name] if one.time <= _SHOWN_SECONDS]
                    for name in systems
                },
                style="step",
            ),
        ],
        [
            Claim("Leron is 1.4 times as fast as Heron (1.3 to 1.5)", "1.4", f"{times:.2f}", 1.3 <= times <= 1.5),
            Claim(
                "Heron is in back-pressure for 30% of the time (20 to 40%)",
                "30%",
                f"{still['Heron']:.0%}",
                0.2 <= still["Heron"] <= 0.4,
            ),
            Claim(
                "with Leron no back-pressure is triggered (once its ratio has settled: below 1%)",
                "0%",
                f"{still['Leron']:.1%}",
                still["Leron"] < 0.01,
            ),
            Claim(
                "where nothing triggers back-pressure, Leron is as fast as Heron (1%)",
                "1.0",
                f"{balanced:.3f}",
                abs(balanced - 1) <= 0.01,
            ),
            Claim(
                "Penstock's computed ratio gives as much as Leron's learnt one, from the beginning to the end",
                "1.4 times Heron",
                f"{total['Penstock'] / total['Leron']:.3f} times Leron, {total['Penstock'] / total['Heron']:.2f} times "
                f"Heron; once settled {rate['Penstock'] / rate['Leron']:.3f} times Leron",
                total["Penstock"] >= 0.99 * total["Leron"] and rate["Penstock"] >= 0.99 * rate["Leron"],
                is_beyond=True,
            ),
            Claim(
                "it settles in less than two minutes, without back-pressure, and costs nothing where no help is needed",
                "-",
                f"last change after {penstock:.0f} s, {still['Penstock']:.1%}, {ours_balanced:.3f} times Heron",
                penstock < 120 and still["Penstock"] < 0.01 and ours_balanced >= 0.99,
                is_beyond=True,
            ),
        ],
    )


def _cumulative(seen: Sequence[Seen]) -> Sequence[tuple[float, float]]:
    counts = list(zip((one.time for one in seen), accumulate(one.out for one in seen), strict=True))
    return counts[len(counts) // _FIGURES - 1 :: len(counts) // _FIGURES]


FIGURE = Figure(
    "figure-5",
    "throughput and back-pressure of Heron and Leron",
    SETTING + " Back-pressure is when the spout stands still. Balanced: compute takes three times as long.",
    {name: partial(run, name, _SECONDS) for name in ("Heron", "Leron", "Penstock")}
    | {
        f"balanced, {name}": partial(run, name, _BALANCED_SECONDS, slower=_NO_BACKPRESSURE)
        for name in ("Heron", "Leron", "Penstock")
    },
    _read,
)
