"""Figure 4: throughput over the number of threads; and what becomes of it with a scheduler that costs more."""

from __future__ import annotations

from collections.abc import Mapping

import penstock as ps
from figures.c_stream.running import PLUGINS, Points, beyond, by_default, fixed, line, setting
from figures.c_stream.topologies import TOPOLOGIES
from figures.figure import Claim, Figure, Found, Measure, Panel

THREADS = (1, 2, 4, 6, 9, 10, 11, 12)
_SECONDS = {"chain": 8.0, "data-parallel": 2.4, "tree": 6.0, "reverse tree": 8.0}
"""Divided by the number of threads; four times as long for MaxQueue with few threads on trees: it works in bursts."""
_HELD_SECONDS = 50e-6
_COSTLY_QUEUE_SIZE = 16
_COSTLY_THREADS = (2, 4, 6, 12)
_COSTLY_TOPOLOGIES = ("data-parallel", "tree", "reverse tree")
_COSTLY_PLUGINS = ("Random", "MaxQueue")

Rates = Mapping[str, Mapping[int, float]]


def name_of(topology: str, plugin: str, threads: int) -> str:
    return f"{topology}, {plugin}, {threads}"


def lines(points: Points, topology: str, what: str, scale: float = 1.0) -> dict[str, list[tuple[float, float]]]:
    """A line for each plug-in, over threads."""
    return {
        plugin: line(points, {float(threads): name_of(topology, plugin, threads) for threads in THREADS}, what, scale)
        for plugin in PLUGINS
    }


def _rates(points: Points, topology: str) -> Rates:
    return {plugin: {int(x): y for x, y in one} for plugin, one in lines(points, topology, "out").items()}


def _costly_rates(points: Points, topology: str) -> Rates:
    return {
        plugin: {threads: points[f"costly {name_of(topology, plugin, threads)}"]["out"] for threads in _COSTLY_THREADS}
        for plugin in _COSTLY_PLUGINS
    }


def _read(points: Points) -> Found:
    rates = {topology: _rates(points, topology) for topology in TOPOLOGIES}
    costly = {topology: _costly_rates(points, topology) for topology in _COSTLY_TOPOLOGIES}
    claims = [
        *_chain_claims(rates["chain"]),
        _falls("Data-parallel", rates["data-parallel"], costly["data-parallel"], "falls after 9 to 11 threads"),
        _max_queue_is_ahead(rates["data-parallel"]),
        _falls("Tree", rates["tree"], costly["tree"], "peaks, then falls less steeply"),
        *_tree_claims(rates["tree"], costly["tree"]),
        _falls("Reverse tree", rates["reverse tree"], costly["reverse tree"], "peaks, then falls"),
        *_reverse_tree_claims(rates["reverse tree"], costly["reverse tree"]),
    ]
    for topology, one in rates.items():
        best, plugin, threads = max((rate, plugin, n) for plugin, at in one.items() for n, rate in at.items())
        claims.append(
            beyond(
                f" at any number of threads ({topology})",
                points[f"default {topology}"]["out"],
                best,
                f"{plugin}, {threads}",
            )
        )
    panels = [Panel(topology, "threads", "tuples/s", lines(points, topology, "out")) for topology in TOPOLOGIES] + [
        Panel(
            f"{topology}, costly scheduler, queues of {_COSTLY_QUEUE_SIZE}",
            "threads",
            "tuples/s",
            {plugin: [(float(n), rate) for n, rate in at.items()] for plugin, at in costly[topology].items()},
        )
        for topology in _COSTLY_TOPOLOGIES
    ]
    return Found(panels, claims)


def _chain_claims(rates: Rates) -> list[Claim]:
    linear = {plugin: at[12] / at[1] for plugin, at in rates.items()}
    widest = max(max(at[n] for at in rates.values()) / min(at[n] for at in rates.values()) for n in THREADS)
    return [
        Claim(
            "Chain: throughput rises linearly with threads",
            "linear up to 12",
            f"{min(linear.values()):.1f} to {max(linear.values()):.1f} times as much with 12 threads as with one",
            all(10 <= one <= 13 for one in linear.values()),
        ),
        Claim(
            "Chain: the plug-ins' throughput is nearly the same",
            "nearly the same",
            f"the best has up to {widest - 1:.0%} more than the worst",
            widest <= 1.1,
        ),
    ]


def _fall(at: Mapping[int, float]) -> float:
    """How much less there is with 12 threads than at the peak."""
    return 1 - at[12] / max(at.values())


def _falls(topology: str, rates: Rates, costly: Rates, paper: str) -> Claim:
    falls = {plugin: _fall(at) for plugin, at in rates.items()}
    holds = all(one >= 0.03 for one in falls.values())
    at = costly["Random"]
    peak = max(at, key=lambda n: at[n])
    falls_then = _fall(at) >= 0.01
    reason = (
        "Penstock's picks are cheap: workers hold the list of ready operators for 0.5 µs. "
        f"{'Where' if falls_then else 'But not even where'} they hold it for {_HELD_SECONDS * 1e6:.0f} µs, with "
        f"queues of {_COSTLY_QUEUE_SIZE}, {'it falls' if falls_then else 'does it fall'}: Random has {at[peak]:,.0f} "
        f"tuples/s with {peak} threads and {at[12]:,.0f} with 12."
    )
    return Claim(
        f"{topology}: throughput {paper}",
        "falls",
        ", ".join(f"{plugin} {-fall:.0%}" for plugin, fall in falls.items()) + " from the peak to 12 threads",
        holds,
        "" if holds else reason,
    )


def _max_queue_is_ahead(rates: Rates) -> Claim:
    others = [at for plugin, at in rates.items() if plugin != "MaxQueue"]
    ahead = {n: rates["MaxQueue"][n] / max(at[n] for at in others) for n in THREADS}
    count = sum(one >= 1 for one in ahead.values())
    return Claim(
        "Data-parallel: MaxQueue has slightly more throughput than the others",
        "slightly more",
        f"{max(ahead.values()) - 1:+.1%} at most; ahead of all others at {count} of {len(THREADS)} numbers of threads",
        count >= 0.7 * len(THREADS) and max(ahead.values()) < 1.2,
    )


def _tree_claims(rates: Rates, costly: Rates) -> list[Claim]:
    few = [n for n in THREADS if n <= 4]
    ahead = {n: rates["MaxQueue"][n] / rates["Random"][n] for n in few}
    most, by_cost = max(ahead.values()), max(costly["MaxQueue"][n] / costly["Random"][n] for n in (2, 4))
    return [
        Claim(
            "Tree: up to 4 threads MaxQueue has more throughput than Random",
            "more",
            ", ".join(f"{n} threads {one - 1:+.0%}" for n, one in ahead.items()),
            all(one >= 1 for one in ahead.values()),
            ""
            if all(one >= 1 for one in ahead.values())
            else "Up to 4 threads all work all the time whatever they pick: a tuple is 600 µs of work.",
        ),
        Claim(
            "Tree: that is up to 3 times as much",
            "up to 3 times",
            f"up to {most:.2f} times",
            most >= 2,
            ""
            if most >= 2
            else f"A tuple is 600 µs of work, so 4 threads can't do more than 6,667 tuples/s, and Random has "
            f"{rates['Random'][4]:,.0f}. MaxQueue is ahead by what it saves in picks: with a list held for "
            f"{_HELD_SECONDS * 1e6:.0f} µs and queues of {_COSTLY_QUEUE_SIZE}, it has {by_cost:.2f} times as much.",
        ),
    ]


def _reverse_tree_claims(rates: Rates, costly: Rates) -> list[Claim]:
    most = {plugin: max(at.values()) for plugin, at in rates.items()}
    other = max(rate for plugin, rate in most.items() if plugin != "Random")
    random_ahead, behind = most["Random"] / other - 1, 1 - most["MaxQueue"] / most["Random"]
    by_cost = max(costly["MaxQueue"].values()) / max(costly["Random"].values()) - 1
    reason = (
        f"The last operator sees all tuples: 10,000 tuples/s at most, and each plug-in keeps it busy ({other:,.0f}). "
        f"With a list held for {_HELD_SECONDS * 1e6:.0f} µs and queues of {_COSTLY_QUEUE_SIZE}, Random has "
        f"{max(costly['Random'].values()):,.0f} tuples/s, and MaxQueue {by_cost:+.0%}."
    )
    return [
        Claim(
            "Reverse tree: Random has the most throughput",
            "+10%",
            f"{random_ahead:+.1%}",
            random_ahead >= 0.05,
            "" if random_ahead >= 0.05 else reason,
        ),
        Claim(
            "Reverse tree: MaxQueue's most is less than Random's",
            "-40%",
            f"{-behind:+.1%}",
            behind >= 0.2,
            "" if behind >= 0.2 else reason,
        ),
    ]


def _measures() -> dict[str, Measure]:
    machine = ps.engines.Machine(ready_list_seconds=_HELD_SECONDS, pick_seconds=_HELD_SECONDS)
    found: dict[str, Measure] = {}
    for topology, seconds in _SECONDS.items():
        for plugin in PLUGINS:
            for threads in THREADS:
                longer = 4 if topology == "tree" and plugin == "MaxQueue" and threads <= 4 else 1
                measure = fixed(topology, plugin, threads, longer * seconds / threads)
                found[name_of(topology, plugin, threads)] = measure
        found[f"default {topology}"] = by_default(topology, 1.2)
    for topology in _COSTLY_TOPOLOGIES:
        for plugin in _COSTLY_PLUGINS:
            for threads in _COSTLY_THREADS:
                options = {"machine": machine, "queue_size": _COSTLY_QUEUE_SIZE}
                seconds = min(2.0, 0.5 * _SECONDS[topology] / threads)
                found[f"costly {name_of(topology, plugin, threads)}"] = fixed(
                    topology, plugin, threads, seconds, **options
                )
    return found


FIGURE = Figure(
    "figure-4",
    "number of threads and throughput",
    f"{setting()} Split and merge of the data-parallel topology cost 4 and 10 µs. The last panels are for what "
    f"C-Stream's scheduler may cost: each pick holds the list of ready operators for {_HELD_SECONDS * 1e6:.0f} µs.",
    _measures(),
    _read,
)
