"""Figure 5: latency over the number of threads, in the runs of figure 4."""

from __future__ import annotations

from collections.abc import Mapping

from figures.c_stream import figure_4
from figures.c_stream.figure_4 import THREADS, lines
from figures.c_stream.running import PLUGINS, Points, setting
from figures.c_stream.topologies import TOPOLOGIES
from figures.figure import Claim, Figure, Found, Panel

Delays = Mapping[str, Mapping[int, float]]


def _read(points: Points) -> Found:
    drawn = {topology: lines(points, topology, "latency", 1000) for topology in TOPOLOGIES}
    delays: dict[str, Delays] = {
        topology: {plugin: {int(x): y for x, y in one} for plugin, one in each.items()}
        for topology, each in drawn.items()
    }
    chain, parallel, tree, reverse = (delays[topology] for topology in TOPOLOGIES)
    panels = [Panel(name, "threads", "mean latency (ms)", each, log_y=True) for name, each in drawn.items()]
    return Found(panels, [*_chain(chain), *_data_parallel(parallel), *_tree(tree), _reverse(reverse, points)])


def _times_lowest(delays: Delays, plugin: str) -> int:
    return sum(min(PLUGINS, key=lambda one: delays[one][n]) == plugin for n in THREADS)


def _ranked(delays: Delays) -> list[str]:
    """By the mean over all numbers of threads of how much more than the lowest it is."""

    def excess(plugin: str) -> float:
        return sum(delays[plugin][n] / min(one[n] for one in delays.values()) for n in THREADS) / len(THREADS)

    return sorted(PLUGINS, key=excess)


def _chain(delays: Delays) -> list[Claim]:
    falls = {plugin: at[12] / at[1] for plugin, at in delays.items()}
    ranked = _ranked(delays)
    falling = [plugin for plugin, one in falls.items() if one < 0.9]
    return [
        Claim(
            "Chain: latency falls with more threads",
            "falls",
            ", ".join(f"{plugin} {delays[plugin][1]:.0f} to {delays[plugin][12]:.0f} ms" for plugin in PLUGINS),
            len(falling) == len(PLUGINS),
            ""
            if len(falling) == len(PLUGINS)
            else "MaxTupleWait and LeastRecently carry what has been read to the end before more is read, as long as "
            "threads are few: then hardly anything waits. With 12 threads all queues have something.",
        ),
        Claim(
            "Chain: LeastRecently has the lowest latency",
            "lowest",
            f"{', '.join(ranked)}, by the mean over all numbers of threads; lowest at "
            f"{_times_lowest(delays, 'LeastRecently')} of {len(THREADS)}",
            ranked[0] == "LeastRecently",
        ),
    ]


def _data_parallel(delays: Delays) -> list[Claim]:
    lowest = set(_ranked(delays)[:2])
    ratios = {n: delays["MaxQueue"][n] / delays["Random"][n] for n in THREADS}
    return [
        Claim(
            "Data-parallel: MaxQueue's latency is much higher, most of all with few threads",
            "significantly higher",
            f"{ratios[1]:.1f} times Random's with one thread, {ratios[4]:.1f} with 4, {ratios[12]:.1f} with 12",
            ratios[1] > 2 and ratios[1] > ratios[12],
        ),
        Claim(
            "Data-parallel: MaxTupleWait and LeastRecently have the lowest latencies",
            "lowest",
            ", ".join(_ranked(delays)) + ", in this order",
            lowest == {"MaxTupleWait", "LeastRecently"},
        ),
    ]


def _tree(delays: Delays) -> list[Claim]:
    most = max(delays["MaxQueue"][n] / delays["Random"][n] for n in THREADS)
    ranked = _ranked(delays)
    return [
        Claim(
            "Tree: MaxQueue's latency is higher",
            "up to 3.5 times Random's",
            f"up to {most:.1f} times Random's",
            most >= 2,
        ),
        Claim(
            "Tree: LeastRecently has the lowest latency",
            "lowest",
            ", ".join(ranked) + ", in this order",
            ranked[0] == "LeastRecently",
        ),
    ]


def _reverse(delays: Delays, points: Points) -> Claim:
    peak = {
        plugin: max(THREADS, key=lambda n: points[figure_4.name_of("reverse tree", plugin, n)]["out"])
        for plugin in PLUGINS
    }
    at_peak = {plugin: delays[plugin][n] for plugin, n in peak.items()}
    others = [one for plugin, one in at_peak.items() if plugin != "MaxTupleWait"]
    holds = max(others) <= 1.3 * min(others) and at_peak["MaxTupleWait"] > max(others)
    return Claim(
        "Reverse tree: at peak throughput latencies are close to each other, but for MaxTupleWait's, which is higher",
        "MaxTupleWait higher",
        ", ".join(f"{plugin} {one:.0f} ms" for plugin, one in at_peak.items()),
        holds,
        ""
        if holds
        else "At the peak all queues on the way to the last operator are full, whatever the policy, and latency is "
        "what they hold. MaxTupleWait takes the oldest first: with fewer threads, its latency is the lowest.",
    )


FIGURE = Figure(
    "figure-5",
    "number of threads and latency",
    f"The runs of figure 4: mean latency of all tuples, from when the source made them. {setting()}",
    figure_4.FIGURE.measures,
    _read,
    points_of="figure-4",
)
