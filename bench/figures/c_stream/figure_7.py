"""Figure 7: how many data-parallel operators there are."""

from __future__ import annotations

from collections.abc import Sequence

import penstock as ps
from figures.c_stream.running import PLUGINS, Points, beyond, by_default, fixed, line, linearity, setting
from figures.figure import Claim, Figure, Found, Measure, Panel

_COUNTS = (4, 8, 12, 16, 24, 32)
_THREADS = 4
_HELD_SECONDS = 50e-6
_COSTLY_COUNTS = (4, 12, 32)
_COSTLY_PLUGINS = ("MaxQueue", "MaxRunningTime")


def _name(plugin: str, count: int) -> str:
    return f"{plugin} {count}"


def _costly_name(plugin: str, count: int) -> str:
    return f"costly {_name(plugin, count)}"


def _over_counts(found: Sequence[Points], what: str, scale: float, unit: str) -> str:
    told = (f"{one[what] * scale:,.0f}{unit} with {count}" for count, one in zip(_COSTLY_COUNTS, found, strict=True))
    return ", ".join(told)


def _read(points: Points) -> Found:
    names = {plugin: {float(count): _name(plugin, count) for count in _COUNTS} for plugin in PLUGINS}
    rates = {plugin: line(points, one) for plugin, one in names.items()}
    delays = {plugin: line(points, one, "latency", 1000) for plugin, one in names.items()}
    last = {plugin: one[-1][1] / one[0][1] for plugin, one in rates.items()}
    others = [plugin for plugin in PLUGINS if plugin != "MaxQueue"]
    grown = {plugin: one[-1][1] / one[0][1] for plugin, one in delays.items()}
    stable = ("Random", "MaxTupleWait", "LeastRecently")
    costly = {plugin: [points[_costly_name(plugin, count)] for count in _COSTLY_COUNTS] for plugin in _COSTLY_PLUGINS}
    scheduler = f"With a list of ready operators that each pick holds for {_HELD_SECONDS * 1e6:.0f} µs instead of 0.5,"
    claims = [
        Claim(
            "With more operators throughput stays, or falls slightly, but for MaxQueue",
            "slightly less from 4 to 32",
            ", ".join(f"{plugin} {last[plugin] - 1:+.0%}" for plugin in others),
            all(0.8 <= last[plugin] <= 1.05 for plugin in others),
        ),
        Claim(
            "MaxQueue's throughput rises with their number",
            "rises",
            f"{last['MaxQueue'] - 1:+.1%}",
            last["MaxQueue"] > 1.01,
            ""
            if last["MaxQueue"] > 1.01
            else f"MaxQueue does {rates['MaxQueue'][0][1]:,.0f} of the 35,088 tuples/s that 4 threads can do at most. "
            f"{scheduler} it rises: " + _over_counts(costly["MaxQueue"], "out", 1, " tuples/s") + ".",
        ),
        *(
            Claim(
                f"{plugin}'s latency grows linearly with their number",
                "linear",
                f"{grown[plugin]:.1f} times as much with 32 as with 4, correlation {linearity(delays[plugin]):.2f}",
                grown[plugin] > 2 and linearity(delays[plugin]) > 0.9,
                ""
                if grown[plugin] > 2 and linearity(delays[plugin]) > 0.9
                else f"{scheduler} it does: " + _over_counts(costly[plugin], "latency", 1000, " ms") + ".",
            )
            for plugin in _COSTLY_PLUGINS
        ),
        Claim(
            "The other plug-ins' latencies are more stable",
            "more stable",
            ", ".join(f"{plugin} {grown[plugin]:.1f} times" for plugin in stable),
            all(grown[plugin] < 0.7 * grown["MaxQueue"] for plugin in stable),
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


def _measures() -> dict[str, Measure]:
    machine = ps.engines.Machine(ready_list_seconds=_HELD_SECONDS, pick_seconds=_HELD_SECONDS)
    found = {
        _name(plugin, count): fixed("data-parallel", plugin, _THREADS, 0.6, shape={"busy": count})
        for plugin in PLUGINS
        for count in _COUNTS
    }
    for plugin in _COSTLY_PLUGINS:
        for count in _COSTLY_COUNTS:
            options = {"shape": {"busy": count}, "machine": machine}
            found[_costly_name(plugin, count)] = fixed("data-parallel", plugin, _THREADS, 0.8, **options)
    found["default"] = by_default("data-parallel", 1.5, threads=_THREADS)
    return found


FIGURE = Figure(
    "figure-7",
    "application size, data-parallel",
    f"Data-parallel topology of 4 to 32, {_THREADS} threads. {setting()}",
    _measures(),
    _read,
)
