"""The job of every engine whose flows run on the runtime: it is given a platform, and knows no other difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.engines.base import AtEnd, BackgroundJob
from penstock.engines.live_engine import LiveEngine
from penstock.engines.live_plant import steer
from penstock.engines.local_checkpoint import LocalCheckpoint
from penstock.engines.platform import Platform
from penstock.errors import FlowError
from penstock.flow.nodes import Graph
from penstock.observe.report import LeftBehind, OperatorReport, Report
from penstock.runtime.background import Background
from penstock.runtime.build import build_run
from penstock.runtime.cells.functions import ChainCell
from penstock.runtime.policies import resolve_policy
from penstock.runtime.running.host import Host
from penstock.runtime.teams.making import rescale

_FLIGHT_SHARE = 0.25
"""Of the time between two checkpoints, to wait until everything is out; a little is always needed to keep all busy."""
_LEAST_FLIGHT_SECONDS = 0.25


class LiveJob(BackgroundJob):
    """A flow that runs on a platform's workers."""

    def __init__(
        self,
        engine: LiveEngine,
        graph: Graph,
        at_end: AtEnd,
        platform: Platform,
        checkpoint: LocalCheckpoint | None = None,
    ) -> None:
        self._engine = engine
        self._patience = engine.patience
        self._platform = platform
        self._driver = platform.driver
        self._ends_at_once = False
        self._checkpoint = self._open_checkpoint = checkpoint
        settings = replace(engine.settings, closes_at_end=at_end == "close", knows_changes=checkpoint is not None)
        try:
            graph = platform.charged(graph if checkpoint is None else checkpoint.graph)
            self._run = build_run(graph, platform.settings(settings), self._host())
            self._driver.attach(self._run)
            platform.begin(self._run)
            self._steer(engine)
        except BaseException:
            self._leave_checkpoint(has_failed=True)
            raise
        self._background = Background(self._to_the_end, name=f"penstock-{graph.flow}")

    def _host(self) -> Host:
        host = self._platform.host(self._engine.policy)
        if self._checkpoint is None:
            return host
        seconds = max(_LEAST_FLIGHT_SECONDS, _FLIGHT_SHARE * self._checkpoint.seconds)
        return replace(host, quiet=self._checkpoint, flight_seconds=seconds)

    def _steer(self, engine: LiveEngine) -> None:
        """Let threads, replicas and helpers find their own number."""
        if engine.elastic is not None:
            steer(self._run, self._driver, self._platform.gauge(), engine.elastic)

    def _ask_to_stop(self, drain: bool) -> None:
        self._ends_at_once = self._ends_at_once or not drain
        self._run.stop(drain)

    def _is_inside(self) -> bool:
        return super()._is_inside() or self._driver.is_called_from_inside()

    def _abandoned(self) -> Report:
        run = self._run
        doing, where = run.users_code.called_in(self._background.ident), self._background.standing
        self._driver.leave_behind()
        if doing or not run.ending.left_behind:
            left = LeftBehind(doing or run.registry.awaiting() or "the engine", where)
            run.ending.leave_behind(left, *(cell for cell in run.cells if cell.name == doing))
        run.companions.end()
        Background(run.ending.close_cells, f"penstock-{run.flow}-leaving").join(self._patience.closing)
        self._leave_checkpoint(has_failed=True)
        run.ending.raise_failure()
        return run.report(self._engine.name)

    def metrics(self) -> Mapping[str, OperatorReport]:
        return self._run.counts()

    def rescale(self, name: str, replicas: int) -> None:
        if replicas < 1:
            raise FlowError(f"operator {name!r} needs at least one replica, not {replicas}")
        if not self._engine.settings.has_replicas:
            raise FlowError("with threading='manual' every operator has one replica")
        rescale(self._run, name, replicas)

    def set_policy(self, policy: Any) -> None:
        self._run.scheduler.set_policy(resolve_policy(policy))

    def unfuse(self, name: str) -> None:
        """Take an operator out of its fused loop, from the next chunk on: it and what follows it run on their own."""
        with self._run.changing:
            cell = self._run.cell_of(name)
            if isinstance(cell, ChainCell):
                names = [node.name for node in cell.nodes]
                cell.stand_alone(cell.nodes[names.index(name) :])

    @property
    def threads(self) -> int:
        return self._driver.threads

    @threads.setter
    def threads(self, count: int) -> None:
        if self._engine.threading != "dynamic":
            raise FlowError("only the 'dynamic' threading model can change its number of threads")
        if count < 1:
            raise FlowError(f"a flow needs at least one thread, not {count}")
        self._driver.set_threads(count)

    @property
    def stuck(self) -> list[str]:
        """The operators that have held a worker for longer than a second."""
        return self._driver.stuck()

    def _to_the_end(self) -> Report:
        if self._checkpoint is None:
            self._drive()
            return self._platform.report(self._run, self._engine.name)
        has_failed = True
        try:
            self._checkpoint.attach(self._run.registry)
            self._drive()
            if self._run.settings.closes_at_end and not self._ends_at_once:
                self._checkpoint.take(self._run.registry, closed=True)
            has_failed = False
        finally:
            self._leave_checkpoint(has_failed)
        report = self._platform.report(self._run, self._engine.name)
        return replace(report, batches=tuple(self._checkpoint.reports))

    def _leave_checkpoint(self, has_failed: bool) -> None:
        """Once, by the first thread that gets here."""
        checkpoint, self._open_checkpoint = self._open_checkpoint, None
        if checkpoint is not None:
            checkpoint.leave(has_failed)

    def _drive(self) -> None:
        try:
            self._driver.drive()
        finally:
            self._run.leave()
