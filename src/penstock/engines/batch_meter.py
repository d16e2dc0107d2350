"""Signals of an engine that works in batches: what was read and done since the last one. Reads, and changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import Batches, OperatorSignals, Signals
from penstock.engines.batch_tasks import MOST_TASKS, given_tasks
from penstock.observe.report import OperatorReport
from penstock.plan.groups import Group, Plan

_REMEMBERED = 20


@dataclass(frozen=True)
class SlotSupply:
    """How many tasks can run at once."""

    now: int
    least: int
    most: int
    awaited: int = 0
    """Asked for and not there yet, or not gone yet."""
    each: int = 1
    """Of one executor."""


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
    slots: SlotSupply
    interval_seconds: float
    most_rows: int
    offered: float | None
    hottest: Mapping[int, float] = field(default_factory=dict)
    """By keyed group."""


class BatchMeter:
    """Looks at the end of each batch.

    Operators of one group are one entry, by the name of the first that is no source. Sources are entries of their own:
    what they have read is what comes in, but reading is work of the group that they are in.
    """

    def __init__(self, plan: Plan, elastic: Elastic) -> None:
        self._plan = plan
        self._elastic = elastic
        self._before: Mapping[str, OperatorReport] = {}
        self._time = 0.0
        self._offered = 0.0
        self._read = 0
        self._fixed: deque[float] = deque(maxlen=_REMEMBERED)

    def read(self, end: BatchEnd) -> Signals:
        """What has happened since the batch before."""
        elapsed, elastic, slots = max(1e-9, end.time - self._time), self._elastic, end.slots
        operators = self._operators(end)
        rows = sum(one.emitted for one in operators.values() if one.is_source)
        shared = sum(one.busy_seconds / max(1, min(one.replicas, slots.now)) for one in operators.values())
        self._fixed.append(max(0.0, end.seconds - shared))
        self._read += rows
        rate = None if end.offered is None else max(0.0, end.offered - self._offered) / elapsed
        backlog = 0 if end.offered is None else max(0, int(end.offered - self._read))
        self._before, self._time, self._offered = dict(end.counts), end.time, end.offered or 0.0
        return Signals(
            time=end.time,
            seconds=elapsed,
            operators=operators,
            threads=slots.now,
            least_threads=max(elastic.least_threads, slots.least),
            most_threads=max(slots.least, min(elastic.most_threads or slots.most, slots.most)),
            stuck_threads=slots.awaited,
            cores=max(slots.now, slots.most),
            offered_rate=rate,
            backlog=backlog,
            batches=Batches(
                end.interval_seconds, min(self._fixed), rows, slots_each=slots.each, most_rows=end.most_rows
            ),
        )

    def _operators(self, end: BatchEnd) -> dict[str, OperatorSignals]:
        found = {}
        for node in self._plan.graph.sources:
            rows = self._since(node.name, end.counts).emitted
            found[node.name] = OperatorSignals(node.name, received=rows, emitted=rows, is_source=True)
        for group in self._plan.groups:
            name = self._name(group)
            if name and name not in found:
                found[name] = self._of_group(name, group, end)
        return found

    def _since(self, name: str, counts: Mapping[str, OperatorReport]) -> OperatorReport:
        now, before = counts.get(name, OperatorReport()), self._before.get(name, OperatorReport())
        return OperatorReport(
            now.received - before.received,
            now.emitted - before.emitted,
            max(0.0, now.busy_seconds - before.busy_seconds),
        )

    def _of_group(self, name: str, group: Group, end: BatchEnd) -> OperatorSignals:
        done = {node.name: self._since(node.name, end.counts) for node in group.nodes}
        read = [done[node.name].emitted for node in group.nodes if not node.inputs]
        received = sum(read) if read else done[name].received
        busy = sum(one.busy_seconds for one in done.values())
        least, most = self._bounds(group)
        return OperatorSignals(
            name,
            received=received,
            emitted=done[group.nodes[-1].name].emitted,
            inputs={self._feeding(group): received},
            busy_seconds=busy,
            cpu_seconds=busy,
            replicas=end.tasks[group.number],
            least_replicas=least,
            most_replicas=most,
            hottest_share=end.hottest.get(group.number, 0.0),
        )

    def _bounds(self, group: Group) -> tuple[int, int]:
        if (given := given_tasks(group)) is not None:
            return given, given
        return self._elastic.least_replicas, min(self._elastic.most_replicas or MOST_TASKS, MOST_TASKS)

    def _name(self, group: Group) -> str:
        """Its first operator that is no source, or its source; nothing where a stream is only put in order."""
        names = [node.name for node in group.nodes if node.inputs] or [node.name for node in group.nodes]
        return names[0] if names else ""

    def _feeding(self, group: Group) -> str:
        """The entry that its tuples come from; of several, the first."""
        if read := [node.name for node in group.nodes if not node.inputs]:
            return read[0]
        start = self._plan.groups[self._plan.into(group)[0].start]
        return self._name(start) or self._feeding(start)
