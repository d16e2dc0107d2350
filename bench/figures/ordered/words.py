"""How figures are told: numbers as words, and the claim that all modules here make beyond the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from figures.figure import Claim

_AS_GOOD = 0.99

Points = Mapping[str, Any]


def listed(parts: Mapping[str, str] | Iterable[str]) -> str:
    """Q1 1.02, Q2 0.98, …"""
    return (
        ", ".join(f"{name} {value}" for name, value in parts.items())
        if isinstance(parts, Mapping)
        else ", ".join(parts)
    )


def share(one: float, other: float) -> str:
    """By how much one is more than the other."""
    return f"{100 * (one / other - 1):+.1f}%"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def beyond(ours: Mapping[str, float], best: Mapping[str, float], where: str, reason: str = "") -> Claim:
    """Penstock's defaults against the best contestant: tuples a second, by what was run."""
    ratios = {name: ours[name] / best[name] for name in ours}
    holds = all(ratio >= _AS_GOOD for ratio in ratios.values())
    return Claim(
        f"Penstock's defaults, threads and replicas found, have at least {_AS_GOOD} of the best throughput {where}",
        f"at least {_AS_GOOD}",
        listed({name: f"{ratio:.2f}" for name, ratio in ratios.items()}),
        holds,
        "" if holds else reason,
        is_beyond=True,
    )
