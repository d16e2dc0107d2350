"""Operators that help each other, for real."""

from __future__ import annotations

from tools.neighbours import Contest

import penstock as ps
from elasticity.settled import settled_tuple_seconds
from elasticity.shown import changes, shown
from elasticity.topologies import Work, checksum
from penstock.observe.report import Report


class Words:
    """Leron's words, a thread for each operator, with and without help."""

    def __init__(self, works: tuple[Work, Work, Work], seconds: float) -> None:
        self._works = works
        self._seconds = seconds
        self._helped: Report

    def ratio(self) -> float:
        return Contest({"without": self._without, "with": self._with}, rounds=5).ratio("without", "with")

    def shares(self) -> dict[str, float]:
        """How much of its output each helper processed in the end."""
        return {one.operator: one.after for one in changes(self._helped, "helping")}

    def _without(self) -> float:
        return self._tuple_seconds(elastic=False)[0]

    def _with(self) -> float:
        elastic = ps.Elastic(threads="fixed", replicas="fixed", period=0.25)
        seconds, self._helped = self._tuple_seconds(elastic)
        return seconds

    def _tuple_seconds(self, elastic: ps.Elastic | bool) -> tuple[float, Report]:
        flow = ps.Flow("words")
        compute, first, second = self._works
        stream = flow.read(ps.sources.generate(lambda n: n), name="word")
        stream = stream.map(compute, name="compute", replicas=2).map(first, name="exclaim1")
        stream.map(second, name="exclaim2").write(ps.sinks.null(), name="out")
        engine = ps.engines.Local(threading="dedicated", queue_size=512, reorder_size=8, elastic=elastic)
        return settled_tuple_seconds(flow, engine, ["out"], self._seconds)


def leron(seconds: float) -> None:
    print("\nLeron's words, a thread for each operator, for real: throughput with helping against without")
    shown("", "ratio", "helping")
    cases = {
        "exclaim is the bottleneck (10, 100, 5 µs)": (10.0, 100.0, 5.0),
        "nobody is (100, 20, 5 µs)": (100.0, 20.0, 5.0),
    }
    for name, (compute, first, second) in cases.items():
        words = Words((checksum(compute), checksum(first), checksum(second)), seconds)
        shown(name, f"{words.ratio():.2f}", str(words.shares()))
