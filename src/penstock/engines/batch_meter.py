"""Signals of an engine that works in batches, stage by stage: Spark's, and its simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import Batches, OperatorSignals, Signals
from penstock.observe.report import OperatorReport
from penstock.plan.groups import Group, Plan, Spread

_MOST_TASKS = 1024
_REMEMBERED = 20
SOURCES = "sources"


@dataclass(frozen=True)
class BatchEnd:
    """What is known when a batch is over."""

    time: float
    """Seconds since the run began."""
    seconds: float
    """That the batch took."""
    counts: Mapping[str, OperatorReport]
    """Of all batches."""
    tasks: Mapping[int, int]
    """By group."""
    slots: int
    least_slots: int
    most_slots: int
    slots_awaited: int
    """Asked for and not there yet."""
    slots_each: int
    interval_seconds: float
    most_rows: int
    offered: float | None


class BatchMeter:
    """Looks at the end of each batch."""

    def __init__(self, plan: Plan, elastic: Elastic) -> None:
        self._plan = plan
        self._elastic = elastic
        self._before: Mapping[str, OperatorReport] = {}
        self._time = 0.0
        self._offered = 0.0
        self._read = 0
        self._fixed: deque[float] = deque(maxlen=_REMEMBERED)

    def group(self, name: str) -> Group:
        return next(group for group in self._plan.groups if self._name(group) == name)

    def read(self, end: BatchEnd) -> Signals:
        """What has happened since the batch before."""
        elapsed = max(1e-9, end.time - self._time)
        counts = end.counts
        rows = sum(self._since(node.name, counts).emitted for node in self._plan.graph.sources)
        operators = {SOURCES: OperatorSignals(SOURCES, received=rows, emitted=rows, is_source=True)}
        for group in self._plan.groups:
            if (name := self._name(group)) is not None:
                operators[name] = self._of_group(name, group, end, rows)
        shared = sum(one.busy_seconds / max(1, min(one.replicas, end.slots)) for one in operators.values())
        self._fixed.append(max(0.0, end.seconds - shared))
        self._read += rows
        rate = None if end.offered is None else max(0.0, end.offered - self._offered) / elapsed
        backlog = 0 if end.offered is None else max(0, int(end.offered - self._read))
        self._before, self._time, self._offered = dict(counts), end.time, end.offered or 0.0
        elastic = self._elastic
        return Signals(
            time=end.time,
            seconds=elapsed,
            operators=operators,
            threads=end.slots,
            least_threads=max(elastic.least_threads, end.least_slots),
            most_threads=max(end.least_slots, min(elastic.most_threads or end.most_slots, end.most_slots)),
            stuck_threads=end.slots_awaited,
            cores=max(end.slots, end.most_slots),
            offered_rate=rate,
            backlog=backlog,
            batches=Batches(
                end.interval_seconds, min(self._fixed), rows, slots_each=end.slots_each, most_rows=end.most_rows
            ),
        )

    def _since(self, name: str, counts: Mapping[str, OperatorReport]) -> OperatorReport:
        now, before = counts.get(name, OperatorReport()), self._before.get(name, OperatorReport())
        return OperatorReport(
            now.received - before.received,
            now.emitted - before.emitted,
            max(0.0, now.busy_seconds - before.busy_seconds),
        )

    def _of_group(self, name: str, group: Group, end: BatchEnd, rows: int) -> OperatorSignals:
        done = {node.name: self._since(node.name, end.counts) for node in group.nodes}
        first, last = group.nodes[0], group.nodes[-1]
        has_source = any(node in self._plan.graph.sources for node in group.nodes)
        received = rows if has_source else done[first.name].received
        before = [self._name(self._plan.groups[edge.start]) for edge in self._plan.into(group)]
        inputs = {SOURCES: rows} if has_source else {one: received for one in before[:1] if one is not None}
        busy = sum(one.busy_seconds for one in done.values())
        least, most = self._bounds(group)
        return OperatorSignals(
            name,
            received=received,
            emitted=done[last.name].emitted,
            inputs=inputs or {SOURCES: rows},
            busy_seconds=busy,
            cpu_seconds=busy,
            replicas=end.tasks[group.number],
            least_replicas=least,
            most_replicas=most,
        )

    def _bounds(self, group: Group) -> tuple[int, int]:
        fixed = [node.replicas for node in group.nodes if node.replicas]
        if group.spread is Spread.ONE:
            return 1, 1
        if fixed:
            return max(fixed), max(fixed)
        return self._elastic.least_replicas, min(self._elastic.most_replicas or _MOST_TASKS, _MOST_TASKS)

    def _name(self, group: Group) -> str | None:
        """Its first operator that is no source; `None` for a group that only reads or puts in order."""
        sources = self._plan.graph.sources
        return next((node.name for node in group.nodes if node not in sources), None)
