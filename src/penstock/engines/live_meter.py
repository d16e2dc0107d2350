"""Signals of a run: what its cells, ports and workers have done since the last look. Reads, and changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import OperatorSignals, Signals
from penstock.flow.nodes import Applies, Node
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.sources import SourceCell
from penstock.runtime.pool import Pool
from penstock.runtime.ports import Neighbour, Port
from penstock.runtime.run import Run
from penstock.runtime.teams.making import scalable, why_alone
from penstock.runtime.teams.team import Team

_MOST_THREADS = 64
"""Where they wait for something else than cores, and no bound is given."""


@dataclass(frozen=True)
class Gauge:
    """Where figures come from that are no operator's: the machine's, or a simulated one's."""

    cores: int
    system_cpu: Callable[[], float]
    """The share of all cores that was used since it was last asked."""
    has_gil: bool
    gil_seconds: Callable[[], float] = lambda: 0.0
    """How long threads have waited for the GIL so far, where that is no part of how long they were busy."""

    @staticmethod
    def python_has_gil() -> bool:
        return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


@dataclass(frozen=True)
class _Totals:
    """Of one group of operators, since the run began."""

    received: int = 0
    emitted: int = 0
    busy_seconds: float = 0.0
    cpu_seconds: float = 0.0
    full_seconds: float = 0.0


class Meter:
    """Looks at a run once a period."""

    def __init__(self, run: Run, pool: Pool, gauge: Gauge, elastic: Elastic) -> None:
        self._run = run
        self._pool = pool
        self._gauge = gauge
        self._elastic = elastic
        self._started = self._since = run.clock.now()
        self._cpu_before = run.clock.process_cpu()
        self._before: dict[str, _Totals] = {}
        self._emitted: dict[str, int] = {}
        """By operator, in the period that is being read; cells come in the order of the graph, writers first."""
        self._offered_before = 0.0
        self._gil_before = 0.0

    def read(self) -> Signals:
        """What has happened since the last time."""
        run, clock, elastic = self._run, self._run.clock, self._elastic
        now, cpu = clock.now(), clock.process_cpu()
        seconds = max(1e-9, now - self._since)
        with run.changing:
            operators = {signals.name: signals for cell in run.cells for signals in self._of_cell(cell, seconds)}
        offered, backlog = self._offered()
        rate = None if offered is None else max(0.0, offered - self._offered_before) / seconds
        used = (cpu - self._cpu_before) / seconds
        self._since, self._cpu_before, self._offered_before = now, cpu, offered or 0.0
        cores = self._gauge.cores
        return Signals(
            time=now - self._started,
            seconds=seconds,
            operators=operators,
            threads=self._pool.threads,
            least_threads=elastic.least_threads,
            most_threads=elastic.most_threads or max(cores, elastic.least_threads, _MOST_THREADS),
            has_thread_each=self._pool.is_dedicated,
            stuck_threads=len(self._pool.stuck()) + self._pool.leaving,
            cores=cores,
            cores_used=used,
            system_cpu=self._gauge.system_cpu(),
            has_gil=self._gauge.has_gil,
            gil_seconds=self._waited_for_gil(),
            offered_rate=rate,
            backlog=backlog,
            helping=dict(run.help_shares.shares),
        )

    def _waited_for_gil(self) -> float:
        before, self._gil_before = self._gil_before, self._gauge.gil_seconds()
        return self._gil_before - before

    def group(self, name: str) -> list[Node]:
        """The operators that can be rescaled together, by the name of their first."""
        return next(group for group in _groups(self._run.cell_of(name)) if group[0].name == name)

    def _offered(self) -> tuple[float | None, int]:
        """Tuples that have come to all sources, and how many of them were not read; `None` where one can't tell."""
        total, waiting = 0.0, 0.0
        sources = [cell for cell in self._run.cells if isinstance(cell, SourceCell)]
        for cell in sources:
            offered = cell.offered()
            if offered is None:
                return None, 0
            total += offered
            waiting += max(0.0, offered - cell.figures.passed()[0])
        return (total if sources else None), int(waiting)

    def _of_cell(self, cell: Cell, seconds: float) -> list[OperatorSignals]:
        reports = cell.figures.reports()
        busy = sum(report.busy_seconds for report in reports.values())
        cpu, hottest = cell.figures.cpu_seconds, cell.figures.hottest_share()
        groups = _groups(cell)
        earlier = [self._before.get(group[0].name, _Totals()) for group in groups]
        # How a loop shares out its time is learnt by and by: what is new is shared out as is known now.
        new_busy = max(0.0, busy - sum(one.busy_seconds for one in earlier))
        new_cpu = min(_since(cpu, sum(one.cpu_seconds for one in earlier)), new_busy)
        found: list[OperatorSignals] = []
        for group, before in zip(groups, earlier, strict=True):
            name = group[0].name
            group_busy = sum(reports[node.name].busy_seconds for node in group if node.name in reports)
            share = group_busy / busy if busy > 0 else 0.0
            is_first = group is groups[0]
            totals = _Totals(
                reports[name].received,
                reports[group[-1].name].emitted,
                group_busy,
                cpu * share,
                sum(self._full_seconds(port) for port in cell.inputs) if is_first else 0.0,
            )
            self._before[name] = totals
            received = totals.received - before.received
            self._emitted[name] = totals.emitted - before.emitted
            least, most = self._bounds(group)
            found.append(
                OperatorSignals(
                    name=name,
                    received=received,
                    emitted=self._emitted[name],
                    inputs=self._sent(cell) if is_first else {found[-1].name: received},
                    busy_seconds=new_busy * share,
                    cpu_seconds=new_cpu * share,
                    queue_length=cell.figures.queue_length if is_first else 0,
                    queue_capacity=max((port.capacity for port in cell.inputs), default=1),
                    full_share=min(1.0, max(0.0, totals.full_seconds - before.full_seconds) / seconds),
                    replicas=cell.figures.most_workers,
                    least_replicas=least,
                    most_replicas=most,
                    hottest_share=hottest,
                    has_own_process=self._run.settings.has_companions and isinstance(group[0].kind, Applies),
                    is_source=cell.is_source,
                    loop=groups[0][0].name if len(groups) > 1 else "",
                    can_be_helped=self._can_be_helped(group),
                )
            )
        return found

    def _full_seconds(self, port: Port) -> float:
        since = port.full_since
        return port.full_seconds + (self._run.clock.now() - since if since is not None else 0.0)

    def _sent(self, cell: Cell) -> dict[str, int]:
        """By the operator that writes to it: tuples made for it there, also those that wait to be in order."""
        sent: dict[str, int] = {}
        for port in cell.inputs:
            first = _groups(port.writer)[-1][0].name
            sent[first] = sent.get(first, 0) + round(self._emitted.get(first, 0) * _part(port.writer, port))
        return sent

    def _bounds(self, group: list[Node]) -> tuple[int, int]:
        """How many replicas they may have: by what they are, and by what the user wants."""
        fixed = [node.replicas for node in group if node.replicas]
        if fixed:
            return max(fixed), max(fixed)
        if any(why_alone(node) is not None for node in group) or not self._run.settings.has_replicas:
            return 1, 1
        return self._elastic.least_replicas, self._elastic.most_replicas or 1024

    def _can_be_helped(self, group: list[Node]) -> bool:
        """Functions without state whose workers the user has not counted."""
        is_free = all(isinstance(node.kind, Applies) and why_alone(node) is None for node in group)
        return is_free and not any(node.replicas for node in group) and not self._run.settings.has_companions


def _groups(cell: Neighbour) -> list[list[Node]]:
    """The operators of a cell, as they can be rescaled."""
    return [list(cell.nodes)] if isinstance(cell, Team) else scalable(cell)


def _since(total: float, before: float) -> float:
    """What has been added; a cell that has taken another's place begins at nothing."""
    return total - before if total >= before else total


def _part(writer: Neighbour, port: Port) -> float:
    """How much of what a cell emits goes to one of its readers."""
    firsts = [targets[0] for targets in writer.outputs[: writer.nodes[-1].outputs] if targets]
    if len(firsts) == 1 and port in writer.outputs[0]:
        return 1.0
    sent = sum(first.total for first in firsts)
    return port.total / sent if sent else 0.0
