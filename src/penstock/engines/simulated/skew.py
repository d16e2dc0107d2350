"""Keys that are not equally many: which share of a keyed stage's work each of its tasks would have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.engines.batch_shares import BucketShares
from penstock.errors import FlowError
from penstock.flow.nodes import Graph, Key, Kind, Loops, Node, Remembers, Waits
from penstock.ordering.keys import key_hash
from penstock.plan.groups import Plan, Spread

_BUCKETS = 128
"""As many as the Spark engine has by default."""


class Skew:
    """Counts the tuples of each bucket of keys while they are worked on; told apart by the stage that they come to."""

    def __init__(self, plan: Plan) -> None:
        keyed = [group for group in plan.groups if group.spread is Spread.KEYS]
        self._group_of = {group.nodes[0].name: group.number for group in keyed}
        self._counts = {group.number: [0] * _BUCKETS for group in keyed}
        self._shares = {group.number: BucketShares(_BUCKETS) for group in keyed}

    def counted(self, graph: Graph) -> Graph:
        """The same graph, whose keys are counted when they are asked for."""
        return replace(graph, nodes=tuple(map(self._node, graph.nodes)))

    def take(self, group: int, tasks: int) -> list[float] | None:
        """The share of each task in what has come since the last time; `None` where keys make no difference."""
        counts = self._counts.get(group)
        if counts is None or not (total := sum(counts)):
            return None
        work = [0.0] * tasks
        for owner, count in zip(self._shares[group].owners(tasks), counts, strict=True):
            work[owner] += count / total
        self._shares[group].add(counts)
        self._counts[group][:] = [0] * _BUCKETS
        return work

    def hottest(self) -> dict[int, float]:
        """By keyed group, the share of its tuples that only one task can work on."""
        return {group: shares.hottest for group, shares in self._shares.items()}

    def _node(self, node: Node) -> Node:
        if node.name not in self._group_of:
            return node
        counts = self._counts[self._group_of[node.name]]
        kind: Kind = node.kind
        match kind:
            case Remembers(key=Key() as key):
                kind = replace(kind, key=_counting(key, counts))
            case Waits(keys=keys) | Loops(keys=keys):
                kind = replace(kind, keys=tuple(_counting(key, counts) for key in keys))
        return replace(node, kind=kind)


def _counting(key: Key, counts: list[int]) -> Key:
    return replace(key, fn=_counted(key.fn, counts))


def _counted(fn: Callable[[Any], Any], counts: list[int]) -> Callable[[Any], Any]:
    def counted(value: Any) -> Any:
        key = fn(value)
        with suppress(FlowError):  # what is no key is its operator's failure
            counts[key_hash(key) % _BUCKETS] += 1
        return key

    return counted
