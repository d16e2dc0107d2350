"""The local engine: one process, a pool of worker threads that run operators as coroutines and generated loops."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from penstock.clock import Clock, SystemClock
from penstock.elasticity.loop import Elastic
from penstock.engines.base import AtEnd, BackgroundJob, Engine, Job
from penstock.engines.live_meter import Gauge
from penstock.engines.live_plant import steer
from penstock.engines.local_checkpoint import LocalCheckpoint
from penstock.errors import FlowError
from penstock.flow.checks import checked_folder
from penstock.flow.draw import explain
from penstock.flow.nodes import Graph
from penstock.observe.machine import SystemCpu, available_cores
from penstock.observe.report import LeftBehind, OperatorReport, Report
from penstock.ordering.reorder import Downstream, LockedBuffer, ReorderBuffer, Ring
from penstock.ordering.splits import LeastLoaded, RoundRobin, Splitter
from penstock.ordering.worklists import HybridQueue, PartitionedQueue, SharedQueue, Worklist
from penstock.runtime.background import Background
from penstock.runtime.build import build_cells, fused_groups
from penstock.runtime.flight import Flight
from penstock.runtime.function_cells import ChainCell
from penstock.runtime.policies import SchedulingPolicy, resolve_policy
from penstock.runtime.pool import Driver, Pool
from penstock.runtime.ports import Port
from penstock.runtime.run import Run, Settings
from penstock.runtime.teams import rescale
from penstock.runtime.threads import Threads

_REORDER: Mapping[str, Callable[[int, Downstream], ReorderBuffer]] = {"ring": Ring, "lock": LockedBuffer}
_KEYED_QUEUES: Mapping[str, Callable[[], Worklist[Any]]] = {
    "hybrid": HybridQueue,
    "shared": SharedQueue,
    "partitioned": PartitionedQueue,
}
_SPLITS: Mapping[str, Callable[[], Splitter] | None] = {
    "pull": None,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
}
_CLOSE_SECONDS = 0.5
Threading = Literal["dynamic", "dedicated", "manual"]
_FLIGHT_SHARE = 0.25
"""Of the time between two checkpoints, to wait until everything is out; a little is always needed to keep all busy."""
_LEAST_FLIGHT_SECONDS = 0.25


class Local(Engine):
    """Low latency in one process.

    `threading` is `"dynamic"` (any of `threads` workers runs any operator), `"dedicated"` (a thread for each operator)
    or `"manual"` (one thread that carries what it has read to the end before it reads more). Queues hold `queue_size`
    tuples; where a flow forks and rejoins they may grow to `queue_limit`. A driver loop is preempted after `quantum`
    seconds, unless its policy lets it go on; a function is given about `slice_seconds` of work at once. With
    `threads="auto"`, threads and replicas find their own number, as `elastic` says; a number that you
    give stays as it is. Keys fall into so many `buckets`, by their hash or as `partitioner` says, which the replicas of
    an operator share out.
    """

    name = "local"

    def __init__(
        self,
        threads: int | Literal["auto"] = "auto",
        policy: str | SchedulingPolicy = "last-in-pipeline",
        threading: Threading = "dynamic",
        workers: Literal["threads", "processes"] = "threads",
        queue_size: int = 16_384,
        queue_limit: int = 1 << 20,
        quantum: float = 0.05,
        replicas: int = 1,
        helping: float = 0.0,
        reorder: Literal["ring", "lock"] = "ring",
        reorder_size: int = 256,
        split: Literal["pull", "round-robin", "least-loaded"] = "pull",
        keyed_queue: Literal["hybrid", "shared", "partitioned"] = "hybrid",
        elastic: Elastic | bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 10.0,
        fuse: bool = True,
        record_arrivals: bool = False,
        clock: Clock | None = None,
        driver: Callable[[Clock], Driver] | None = None,
        port: Callable[[str, int], Port] = Port,
        slice_seconds: float = 0.001,
        buckets: int = 64,
        partitioner: Callable[[Any], int] | None = None,
    ) -> None:
        if threads != "auto" and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise FlowError(f"engine 'local': threads= is a number from 1 up or 'auto', not {threads!r}")
        if threading not in ("dynamic", "dedicated", "manual"):
            raise FlowError(f"engine 'local': threading= is 'dynamic', 'dedicated' or 'manual', not {threading!r}")
        if queue_size < 1 or queue_limit < queue_size:
            raise FlowError(
                f"engine 'local': 1 <= queue_size <= queue_limit must hold, not {queue_size}, {queue_limit}"
            )
        for option, count in ("replicas", replicas), ("reorder_size", reorder_size), ("buckets", buckets):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise FlowError(f"engine 'local': {option}= is a number from 1 up, not {count!r}")
        if not 0 <= helping <= 1:
            raise FlowError(f"engine 'local': helping= is a share from 0 to 1, not {helping!r}")
        for option, value, known in (
            ("workers", workers, ("threads", "processes")),
            ("reorder", reorder, tuple(_REORDER)),
            ("split", split, tuple(_SPLITS)),
            ("keyed_queue", keyed_queue, tuple(_KEYED_QUEUES)),
        ):
            if value not in known:
                raise FlowError(f"engine 'local': {option}= is one of {', '.join(map(repr, known))}, not {value!r}")
        for option, seconds in ("quantum", quantum), ("slice_seconds", slice_seconds):
            if not seconds > 0:
                raise FlowError(f"engine 'local': {option}= is a number of seconds above 0, not {seconds!r}")
        if partitioner is not None and not callable(partitioner):
            raise FlowError(f"engine 'local': partitioner= is a function from a key to a number, not {partitioner!r}")
        self.threading = threading
        self.threads = 1 if threading == "manual" else available_cores() if threads == "auto" else threads
        self.elastic = self._elastic(elastic, threads == "auto" and driver is None)
        self.policy = resolve_policy("last-in-pipeline" if threading == "manual" else policy)
        self.settings = Settings(
            queue_size=queue_size,
            queue_limit=queue_limit,
            quantum_seconds=quantum,
            chunk_seconds=slice_seconds,
            record_arrivals=record_arrivals,
            replicas=replicas,
            stateless_replicas=max(self.threads, replicas) if workers == "processes" else 0,
            has_companions=workers == "processes",
            has_replicas=threading != "manual",
            help_share=helping,
            has_gil=self.has_gil,
            reorder=_REORDER[reorder],
            reorder_size=reorder_size,
            split=_SPLITS[split],
            worklist=_KEYED_QUEUES[keyed_queue],
            buckets=buckets,
            partitioner=partitioner,
            fuses=fuse and threading != "dedicated",
            port=port,
        )
        self.clock = clock or SystemClock()
        self._driver = driver
        self.checkpoint = (
            None if checkpoint is None else checked_folder(f"engine {self.name!r}: checkpoint=", checkpoint)
        )
        self.checkpoint_seconds = checkpoint_seconds

    def _elastic(self, elastic: Elastic | bool | None, by_default: bool) -> Elastic | None:
        """What this engine can find by itself."""
        if self.threading == "manual" or elastic is False or (elastic is None and not by_default):
            return None
        chosen = elastic if isinstance(elastic, Elastic) else Elastic()
        return chosen if self.threading == "dynamic" else replace(chosen, threads="fixed")

    @property
    def has_gil(self) -> bool:
        return Gauge.python_has_gil()

    def gauge(self, clock: Clock) -> Gauge:
        """Where a run's cores are, and how busy."""
        return Gauge(available_cores(), SystemCpu().share, self.has_gil)

    def driver(self, flow: str) -> Driver:
        if self._driver is not None:
            return self._driver(self.clock)
        return Threads(self.threads, flow, dedicated=self.threading == "dedicated")

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        # With a checkpoint another run may go on, so windows stay open; as on Spark.
        at_end = at_end or ("close" if self.checkpoint is None else "keep")
        return LocalJob(self, graph, at_end, self.settings, self.clock, self.driver(graph.flow))

    def explain(self, graph: Graph) -> str:
        groups = fused_groups(graph, self.settings)
        lines = [f"  {' + '.join(node.name for node in group)}" for group in groups]
        threads = "a thread for each line" if self.threading == "dedicated" else f"{self.threads} threads"
        return "\n".join([explain(graph), f"runs on {threads}; operators on one line are one loop:", *lines])


class LocalJob(BackgroundJob):
    """A flow that runs on this process's threads."""

    def __init__(
        self, engine: Local, graph: Graph, at_end: AtEnd, settings: Settings, clock: Clock, driver: Driver
    ) -> None:
        self._engine = engine
        self._driver = driver
        self._ends_at_once = False
        self._checkpoint: LocalCheckpoint | None = None
        if engine.checkpoint is not None:
            self._checkpoint = LocalCheckpoint(engine.checkpoint, graph, engine.clock, engine.checkpoint_seconds)
            graph = self._checkpoint.graph
        self._open_checkpoint = self._checkpoint
        settings = replace(settings, closes_at_end=at_end == "close", knows_changes=self._checkpoint is not None)
        self._run = Run(graph, clock, engine.policy, settings, self._driver.on_ready)
        try:
            self._run.cells = build_cells(graph, self._run)
            self._driver.attach(self._run)
            self._steer(engine, clock)
        except BaseException:
            self._leave_checkpoint(has_failed=True)
            raise
        self._background = Background(self._to_the_end, name=f"penstock-{graph.flow}")

    def _gauge(self, engine: Local, clock: Clock) -> Gauge:
        return engine.gauge(clock)

    def _steer(self, engine: Local, clock: Clock) -> None:
        """Let threads, replicas and helpers find their own number."""
        if engine.elastic is not None and isinstance(self._driver, Pool):
            steer(self._run, self._driver, self._gauge(engine, clock), engine.elastic)

    def _ask_to_stop(self, drain: bool) -> None:
        self._ends_at_once = self._ends_at_once or not drain
        self._run.stop(drain)

    def _is_inside(self) -> bool:
        return super()._is_inside() or self._driver.is_called_from_inside()

    def _abandoned(self) -> Report:
        run = self._run
        doing, where = run.doing.get(self._background.ident), self._background.standing
        self._driver.leave_behind()
        if doing or not run.left_behind:
            run.left_behind.append(LeftBehind(doing or run.awaiting() or "the engine", where))
            run.stuck.update(cell for cell in run.cells if cell.name == doing)
        run.companions.end()
        Background(run.close_cells, f"penstock-{run.flow}-leaving").join(_CLOSE_SECONDS)
        self._leave_checkpoint(has_failed=True)
        run.raise_failure()
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
                cell.cut_before(next(node for node in cell.nodes if node.name == name))

    @property
    def threads(self) -> int:
        return self._driver.threads

    @threads.setter
    def threads(self, count: int) -> None:
        if not isinstance(self._driver, Pool) or self._engine.threading != "dynamic":
            raise FlowError("only the 'dynamic' threading model can change its number of threads")
        if count < 1:
            raise FlowError(f"a flow needs at least one thread, not {count}")
        self._driver.set_threads(count)

    @property
    def stuck(self) -> list[str]:
        """The operators that have held a worker for longer than a second."""
        return self._driver.stuck() if isinstance(self._driver, Pool) else []

    def _to_the_end(self) -> Report:
        if self._checkpoint is None:
            self._drive()
            return self._run.report(self._engine.name)
        has_failed = True
        try:
            self._checkpoint.attach(self._run)
            seconds = max(_LEAST_FLIGHT_SECONDS, _FLIGHT_SHARE * self._engine.checkpoint_seconds)
            self._run.flight = Flight(self._run, seconds, lambda: self._driver.threads)
            self._drive()
            if self._run.settings.closes_at_end and not self._ends_at_once:
                self._checkpoint.take(self._run, closed=True)
            has_failed = False
        finally:
            self._leave_checkpoint(has_failed)
        return replace(self._run.report(self._engine.name), batches=tuple(self._checkpoint.reports))

    def _leave_checkpoint(self, has_failed: bool) -> None:
        """Once, whoever is first."""
        checkpoint, self._open_checkpoint = self._open_checkpoint, None
        if checkpoint is not None:
            checkpoint.leave(has_failed)

    def _drive(self) -> None:
        try:
            self._driver.drive()
        finally:
            self._run.leave()
