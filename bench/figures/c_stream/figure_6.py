"""Figure 6: what the busy operators cost."""

from __future__ import annotations

from figures.c_stream.running import PLUGINS, Points, beyond, by_default, fixed, line, linearity, setting
from figures.figure import Claim, Figure, Found, Panel

_COSTS = (50, 100, 150, 200, 300, 400)
_THREADS = 4


def _name(plugin: str, cost: int) -> str:
    return f"{plugin} {cost} µs"


def _read(points: Points) -> Found:
    names = {plugin: {float(cost): _name(plugin, cost) for cost in _COSTS} for plugin in PLUGINS}
    rates = {plugin: line(points, one) for plugin, one in names.items()}
    delays = {plugin: line(points, one, "latency", 1000) for plugin, one in names.items()}
    straight = {plugin: linearity([(cost, 1 / rate) for cost, rate in one]) for plugin, one in rates.items()}
    grown = {plugin: one[-1][1] - one[0][1] for plugin, one in delays.items()}
    bends = {plugin: linearity(delays[plugin]) for plugin in PLUGINS}
    steepest = max(grown, key=lambda plugin: grown[plugin])
    claims = [
        Claim(
            "Throughput falls as the cost rises: the time for a tuple is linear in the cost",
            "linear",
            f"correlations of {min(straight.values()):.3f} and more; with Random {rates['Random'][0][1]:,.0f} tuples/s "
            f"at {_COSTS[0]} µs, {rates['Random'][-1][1]:,.0f} at {_COSTS[-1]} µs",
            all(one >= 0.99 for one in straight.values()),
        ),
        Claim(
            "Latency rises with the cost, about linearly",
            "mostly linear",
            "correlations: " + ", ".join(f"{plugin} {one:.2f}" for plugin, one in bends.items()),
            all(one >= 0.9 for one in bends.values()),
            ""
            if all(one >= 0.9 for one in bends.values())
            else "LeastRecently's depends on how many tuples it comes to carry at once: at 100 µs it was 5, 10 and "
            "20 ms with queues of 64, 128 and 256.",
        ),
        Claim(
            "MaxQueue's latency rises most steeply",
            "MaxQueue",
            f"{steepest}: {grown[steepest]:.0f} ms, Random {grown['Random']:.0f} ms",
            steepest == "MaxQueue",
        ),
    ]
    best = max(PLUGINS, key=lambda plugin: dict(rates[plugin])[100.0])
    ours = points["default"]["out"]
    claims.append(beyond(" at 100 µs, with four threads", ours, dict(rates[best])[100.0], best))
    axes = "operator cost (µs)"
    return Found(
        [
            Panel("(a) throughput", axes, "tuples/s", rates),
            Panel("(b) latency", axes, "mean latency (ms)", delays),
        ],
        claims,
    )


FIGURE = Figure(
    "figure-6",
    "operator cost, data-parallel",
    f"Data-parallel topology of 12, {_THREADS} threads. {setting()}",
    {
        **{
            _name(plugin, cost): fixed("data-parallel", plugin, _THREADS, 0.005 * cost, shape={"cost": cost * 1e-6})
            for plugin in PLUGINS
            for cost in _COSTS
        },
        "default": by_default("data-parallel", 1.5, threads=_THREADS),
    },
    _read,
)
