"""Figure 13: adaptation against Storm."""

from __future__ import annotations

from figures.c_stream.adapting import SETTING, adapting, by_itself, per_operator, source_waits
from figures.c_stream.running import Points, beyond
from figures.figure import Claim, Figure, Found, Panel

_SCENARIOS = {"1 x 100 µs": (1, 100, 6.2), "2 x 140 µs": (2, 140, 3.8)}
_COUNTS_FROM = 0.8


def _read(points: Points) -> Found:
    systems = {"C-Stream": "adapting", "Storm": "thread each", "Penstock": "default"}
    rates = {
        system: [(float(place + 1), points[f"{name}, {how}"]["out"]) for place, name in enumerate(_SCENARIOS)]
        for system, how in systems.items()
    }
    claims = []
    for place, (name, (_, _, paper)) in enumerate(_SCENARIOS.items()):
        pool, storm, ours = (rates[system][place][1] for system in systems)
        claims += [
            Claim(
                f"With adaptation, C-Stream outperforms Storm ({name})",
                f"{paper} times as fast (here {_COUNTS_FROM} of that counts)",
                f"{pool / storm:.1f} times as fast",
                pool / storm >= _COUNTS_FROM * paper,
            ),
            beyond(
                f" ({name})",
                ours,
                max(pool, storm),
                "C-Stream's adaptation",
                source_waits(points, f"{name}, default", f"{name}, default, sources first"),
            ),
        ]
    title = ", ".join(f"{place + 1}: {name}" for place, name in enumerate(_SCENARIOS))
    return Found([Panel(title, "scenario", "tuples/s", rates, style="bar")], claims)


FIGURE = Figure(
    "figure-13",
    "against Storm, with adaptation",
    f'One busy operator of 100 µs and two of 140 µs; Storm is `threading="dedicated"` with one replica. {SETTING}',
    {
        f"{name}, {how}": measure
        for name, (busy, cost, _) in _SCENARIOS.items()
        for how, measure in {
            "adapting": adapting(busy, cost, seconds=6.0),
            "thread each": per_operator(busy, cost),
            "default": by_itself(busy, cost),
            "default, sources first": by_itself(busy, cost, policy="max-queue"),
        }.items()
    },
    _read,
)
