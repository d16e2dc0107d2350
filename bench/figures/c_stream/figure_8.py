"""Figure 8: how many of its tuples each operator of a chain forwards."""

from __future__ import annotations

from itertools import pairwise

from figures.c_stream.running import PLUGINS, Points, beyond, by_default, fixed, line, setting
from figures.figure import Claim, Figure, Found, Panel

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_THREADS = 4


def _name(plugin: str, share: float) -> str:
    return f"{plugin} {share}"


def _read(points: Points) -> Found:
    names = {plugin: {share: _name(plugin, share) for share in _SHARES} for plugin in PLUGINS}
    rates = {plugin: line(points, one, "in") for plugin, one in names.items()}
    delays = {plugin: line(points, one, "latency", 1000) for plugin, one in names.items()}
    falls = {plugin: _rises([-y for _, y in one]) for plugin, one in rates.items()}
    rises = {plugin: _rises([y for _, y in one]) for plugin, one in delays.items()}
    claims = [
        Claim(
            "Throughput falls as selectivity rises",
            "falls, with all plug-ins",
            ", ".join(f"{plugin} {one[0][1]:,.0f} to {one[-1][1]:,.0f}" for plugin, one in rates.items()),
            all(falls.values()),
        ),
        Claim(
            "Latency rises with selectivity",
            "rises, with all plug-ins",
            ", ".join(f"{plugin} {one[0][1]:.1f} to {one[-1][1]:.1f} ms" for plugin, one in delays.items()),
            all(rises.values()),
        ),
    ]
    best = max(PLUGINS, key=lambda plugin: rates[plugin][-1][1])
    claims.append(beyond(" at selectivity 1, with four threads", points["default"]["in"], rates[best][-1][1], best))
    axes = "selectivity"
    return Found(
        [
            Panel("(a) throughput", axes, "tuples/s read", rates),
            Panel("(b) latency", axes, "mean latency (ms)", delays),
        ],
        claims,
    )


def _rises(values: list[float]) -> bool:
    """Each is more than the one before; or no more than 5% less, where two are close."""
    return values[-1] > values[0] and all(after > before - 0.05 * abs(before) for before, after in pairwise(values))


FIGURE = Figure(
    "figure-8",
    "selectivity, chain",
    f"Chain of 12, {_THREADS} threads. Throughput is what the source reads, and the way of a tuple ends where it is "
    f"filtered out. {setting()}",
    {
        **{
            _name(plugin, share): fixed(
                "chain", plugin, _THREADS, 16.0 if share == 1 else 4.0, shape={"selectivity": share}
            )
            for plugin in PLUGINS
            for share in _SHARES
        },
        "default": by_default("chain", 16.0, threads=_THREADS),
    },
    _read,
)
