"""All threading models on one graph, as they were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from figures.figure import Panel

_AS_GOOD = 0.95


@dataclass(frozen=True)
class Models:
    host: str
    graph: str
    flops: int
    results: Mapping[str, Any]
    """By model; those with a fixed number of threads by that."""

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Sequence[Models]:
        """From points that are named by host, graph, operations and model."""
        found = []
        for (host, graph, flops), group in groupby(results.items(), key=lambda one: one[0].split(", ")[:3]):
            found.append(cls(host, graph, int(flops), {name.split(", ")[3]: result for name, result in group}))
        return found

    @property
    def name(self) -> str:
        return f"{self.host} {self.graph}, {self.flops:,}"

    @cached_property
    def levels(self) -> Mapping[int, float]:
        return {int(model): one["throughput"] for model, one in self.results.items() if model.isdigit()}

    @property
    def dynamic(self) -> float:
        """With the best number of threads."""
        return max(self.levels.values())

    @property
    def most_threads(self) -> float:
        """With as many threads as cores."""
        return self.levels[max(self.levels)]

    @property
    def knee(self) -> int:
        """The fewest threads that are as good as the best number of them."""
        return min(level for level, throughput in self.levels.items() if throughput >= _AS_GOOD * self.dynamic)

    @property
    def manual(self) -> float:
        return float(self.results["manual"]["throughput"])

    @property
    def dedicated(self) -> float:
        return float(self.results["dedicated"]["throughput"])

    @property
    def elastic(self) -> float:
        return float(self.results["elastic"]["throughput"])

    @property
    def elastic_threads(self) -> int:
        """Where it has settled."""
        return int(self.results["elastic"]["threads"][-1])

    @property
    def defaults(self) -> float:
        return float(self.results["defaults"]["throughput"])

    @property
    def best(self) -> float:
        return max(self.dynamic, self.manual, self.dedicated, self.elastic)

    @property
    def panel(self) -> Panel:
        """Throughput by threads, as in the paper: what has no level is a line across."""
        ends = min(self.levels), max(self.levels)
        across = {"manual": self.manual, "dedicated": self.dedicated, "Penstock's defaults": self.defaults}
        lines: dict[str, list[tuple[float, float]]] = {"dynamic static": list(self.levels.items())}
        lines["dynamic elastic"] = [(self.elastic_threads, self.elastic)]
        lines |= {name: [(end, throughput) for end in ends] for name, throughput in across.items()}
        return Panel(self.name, "threads", "tuples a second at the sink", lines, log_y=True)
