"""How many threads: simulated on many cores, and for real on those that there are."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tools.neighbours import Contest

import penstock as ps
from elasticity.settled import settled_tuple_seconds
from elasticity.shown import changes, shown
from elasticity.topologies import SETTINGS, TOPOLOGIES, checksum, is_cheap, made
from penstock.elasticity.signals import Signals
from penstock.elasticity.threads import Figure7, Trend
from penstock.observe.report import Report


class Seen(ps.Controller):
    """Decides as another one, and keeps what it was shown."""

    name = "seen"

    def __init__(self, other: ps.Controller) -> None:
        self.other = other
        self.periods: list[Signals] = []

    def __deepcopy__(self, memo: Any) -> Seen:
        return self

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        self.periods.append(signals)
        return self.other.decide(signals)


def levels(cores: int) -> list[int]:
    """Every number of threads up to 16, then in steps of a quarter."""
    found = list(range(1, min(16, cores) + 1))
    while found[-1] < cores:
        found.append(min(cores, math.ceil(found[-1] * 1.25)))
    return found


def settled_rate(run: Callable[[float], Any], seconds: float) -> float:
    """Tuples a second in the second half of a run: the same run, to its middle and to its end."""
    half, whole = (
        sum(one.received for name, one in run(until).items() if name.startswith("out"))
        for until in (seconds / 2, seconds)
    )
    return (whole - half) / (seconds / 2)


def simulated_threads(cores_list: Sequence[int], seconds: float) -> None:
    print("\nThreads, simulated: throughput settled against the best fixed number; changes, periods until the last one")
    shown("", "against best", "threads (best)", "changes", "periods", "figure 7's")
    for cores in cores_list:
        for topology in TOPOLOGIES:
            flow, costs = made(topology)

            def fixed(threads: int, seconds: float, flow=flow, costs=costs, cores=cores, topology=topology) -> Any:
                engine = ps.engines.Simulated(
                    cores=cores,
                    threads=threads,
                    costs=costs,
                    seconds=seconds,
                    gil=is_cheap(topology),
                    **SETTINGS[topology],
                )
                return flow.run(engine).operators

            # Merges fill queues in bursts: there it takes longer to see what a level gives.
            long = seconds * (4 if topology == "reverse tree" else 1)
            by_level = {level: settled_rate(partial(fixed, level), long) for level in levels(cores)}
            best = max(by_level, key=lambda level: by_level[level])
            settled, periods, count = settled_with(Trend(), topology, cores, cores, 20, 0.5)
            plain = settled_with(Figure7(), topology, cores, 1, 60, 0.5)
            reached = settled_rate(partial(fixed, settled), long)
            shown(
                f"{topology}, {cores} cores",
                f"{reached / by_level[best]:.3f}",
                f"{settled} ({best})",
                str(count),
                f"{periods}",
                f"{plain[1]}",
            )


def settled_with(
    controller: ps.Controller, topology: str, cores: int, start: int, most_periods: int, period: float
) -> tuple[int, int, int]:
    """The number of threads in the end, the periods looked at until the last change, and how many changes."""
    flow, costs = made(topology)
    seen = Seen(controller)
    elastic = ps.Elastic(threads=seen, replicas="fixed", helping=False, period=period)
    engine = ps.engines.Simulated(
        cores=cores,
        threads=start,
        costs=costs,
        seconds=most_periods * period,
        elastic=elastic,
        gil=is_cheap(topology),
        **SETTINGS[topology],
    )
    report = flow.run(engine)
    made_changes = changes(report, "threads")
    after = int(made_changes[-1].after) if made_changes else start
    periods = sum(one.time <= made_changes[-1].time for one in seen.periods) if made_changes else 0
    return after, periods, len(made_changes)


class RealThreads:
    """One topology on the cores that there are: the same flow with each number of threads, and with one that it finds.

    What counts is how many tuples the operators that do the work have processed: at the sinks tuples come in bursts,
    which may take longer than one looks.
    """

    def __init__(self, topology: str, seconds: float) -> None:
        self._topology = topology
        self._seconds = seconds
        self._work = (lambda x: x) if is_cheap(topology) else checksum(200)
        self._cores = os.cpu_count() or 1
        self._reports: list[Report] = []

    def show(self) -> None:
        levels = {str(level): partial(self._fixed, level) for level in range(1, self._cores + 1)}
        contest = Contest({"elastic": self._elastic, **levels}, rounds=7)
        best = min(levels, key=lambda name: statistics.median(contest.seconds[name]))
        shown(
            self._topology,
            f"{contest.ratio(best, 'elastic'):.3f}",
            f"{statistics.mode(map(self._threads_in_the_end, self._reports))} ({best})",
            str(max(len(changes(report, "threads")) for report in self._reports)),
            f"{contest.quiet} of {contest.played} quiet",
        )

    def _fixed(self, level: int) -> float:
        return self._tuple_seconds(threads=level)[0]

    def _elastic(self) -> float:
        found, report = self._tuple_seconds(elastic=ps.Elastic(replicas="fixed", helping=False, period=0.5))
        self._reports.append(report)
        return found

    def _tuple_seconds(self, **options: Any) -> tuple[float, Report]:
        """Everyone has the same time to settle, for queues settle too."""
        flow, costs = made(self._topology, self._work)
        engine = ps.engines.Local(**SETTINGS[self._topology], **options)
        return settled_tuple_seconds(flow, engine, costs, self._seconds)

    def _threads_in_the_end(self, report: Report) -> int:
        made_changes = changes(report, "threads")
        return int(made_changes[-1].after) if made_changes else self._cores


def real_threads(seconds: float) -> None:
    print(f"\nThreads for real, {os.cpu_count()} cores: once settled, against the best fixed number; most changes made")
    shown("", "against best", "threads (best)", "changes", "quiet rounds")
    for topology in TOPOLOGIES:
        RealThreads(topology, seconds).show()
