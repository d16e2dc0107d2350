"""Figure 7: how many data-parallel operators there are."""

from __future__ import annotations

from figures.c_stream.running import PLUGINS, SETTING, Points, beyond, by_default, fixed, line, power
from figures.figure import Claim, Figure, Found, Panel

_COUNTS = (4, 8, 12, 16, 24, 32)
_THREADS = 4


def _name(plugin: str, count: int) -> str:
    return f"{plugin} {count}"


def _read(points: Points) -> Found:
    names = {plugin: {float(count): _name(plugin, count) for count in _COUNTS} for plugin in PLUGINS}
    rates = {plugin: line(points, one) for plugin, one in names.items()}
    delays = {plugin: line(points, one, "latency", 1000) for plugin, one in names.items()}
    last = {plugin: one[-1][1] / one[0][1] for plugin, one in rates.items()}
    others = [plugin for plugin in PLUGINS if plugin != "MaxQueue"]
    powers = {plugin: power(one) for plugin, one in delays.items()}
    linear, stable = ("MaxQueue", "MaxRunningTime"), ("Random", "MaxTupleWait", "LeastRecently")
    claims = [
        Claim(
            "With more operators throughput stays, or falls slightly, but for MaxQueue",
            "slightly less from 4 to 32",
            ", ".join(f"{plugin} {last[plugin] - 1:+.0%}" for plugin in others),
            all(0.8 <= last[plugin] <= 1.05 for plugin in others),
            reason=""
            if all(0.8 <= last[plugin] <= 1.05 for plugin in others)
            else "Policies that prefer what waits longest carry few tuples at a time, and each pick costs a few µs.",
        ),
        Claim(
            "MaxQueue's throughput rises with their number",
            "rises",
            f"{last['MaxQueue'] - 1:+.1%}",
            last["MaxQueue"] > 1.01,
        ),
        Claim(
            "Latency grows in proportion with MaxQueue and MaxRunningTime",
            "n to the power of 1",
            ", ".join(f"{plugin} {powers[plugin]:.2f}" for plugin in linear),
            all(0.7 <= powers[plugin] <= 1.3 for plugin in linear),
        ),
        Claim(
            "The other plug-ins' latencies are more stable",
            "flatter than MaxQueue's",
            ", ".join(f"{plugin} {powers[plugin]:.2f}" for plugin in stable),
            all(powers[plugin] < 0.8 * powers["MaxQueue"] for plugin in stable),
        ),
    ]
    best = max(PLUGINS, key=lambda plugin: max(rate for _, rate in rates[plugin]))
    claims.append(
        beyond(" at any number", points["default"]["out"], max(rate for _, rate in rates[best]), best),
    )
    axes = "data-parallel operators"
    return Found(
        [
            Panel("(a) throughput", axes, "tuples/s", rates),
            Panel("(b) latency", axes, "mean latency (ms)", delays),
        ],
        claims,
    )


FIGURE = Figure(
    "figure-7",
    "application size, data-parallel",
    f"Data-parallel topology of 4 to 32, {_THREADS} threads. {SETTING}",
    {
        **{
            _name(plugin, count): fixed("data-parallel", plugin, _THREADS, 0.6, shape={"busy": count})
            for plugin in PLUGINS
            for count in _COUNTS
        },
        "default": by_default("data-parallel", 1.5, threads=_THREADS),
    },
    _read,
)
