"""The base of engines whose flows run on the runtime: what their users have decided, and how they explain it."""

from __future__ import annotations

from penstock.engines.base import Engine
from penstock.engines.options import RuntimeOptions
from penstock.flow.draw import explain
from penstock.flow.nodes import Graph
from penstock.runtime.build import fused_groups


class LiveEngine(Engine):
    """Workers, real or virtual, that run operators as coroutines and generated loops."""

    def __init__(self, options: RuntimeOptions, has_gil: bool, is_elastic: bool) -> None:
        """`is_elastic`: whether it finds numbers by itself where the user says nothing about that."""
        self.threading = options.threading
        self.threads = options.most_threads
        self.elastic = options.elasticity(is_elastic)
        self.policy = options.resolved_policy()
        self.settings = options.settings(has_gil)

    def explain(self, graph: Graph) -> str:
        groups = fused_groups(graph, self.settings)
        lines = [f"  {' + '.join(node.name for node in group)}" for group in groups]
        threads = "a thread for each line" if self.threading == "dedicated" else f"{self.threads} threads"
        return "\n".join([explain(graph), f"runs on {threads}; operators on one line are one loop:", *lines])
