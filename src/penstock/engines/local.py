"""The local engine: one process, a pool of worker threads that run operators as coroutines and generated loops."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.clock import Clock, SystemClock
from penstock.connectors.files.discover import checked_folder
from penstock.elasticity.loop import Elastic
from penstock.engines.base import AtEnd, Job
from penstock.engines.live_engine import LiveEngine
from penstock.engines.live_job import LiveJob
from penstock.engines.live_meter import Gauge
from penstock.engines.local_checkpoint import LocalCheckpoint
from penstock.engines.options import RuntimeOptions, Threading
from penstock.engines.platform import Platform
from penstock.flow.nodes import Graph
from penstock.observe.machine import SystemCpu, available_cores
from penstock.runtime.policies import SchedulingPolicy
from penstock.runtime.pool import Pool
from penstock.runtime.ports import Port
from penstock.runtime.threads import Threads


class Local(LiveEngine):
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
        driver: Callable[[Clock], Pool] | None = None,
        port: Callable[[str, int], Port] = Port,
        slice_seconds: float = 0.001,
        buckets: int = 64,
        partitioner: Callable[[Any], int] | None = None,
    ) -> None:
        options = RuntimeOptions(
            threads=threads,
            policy=policy,
            threading=threading,
            workers=workers,
            queue_size=queue_size,
            queue_limit=queue_limit,
            quantum=quantum,
            replicas=replicas,
            helping=helping,
            reorder=reorder,
            reorder_size=reorder_size,
            split=split,
            keyed_queue=keyed_queue,
            elastic=elastic,
            fuse=fuse,
            record_arrivals=record_arrivals,
            port=port,
            slice_seconds=slice_seconds,
            buckets=buckets,
            partitioner=partitioner,
        )
        super().__init__(options, self.has_gil, is_elastic=threads == "auto" and driver is None)
        self.clock = clock or SystemClock()
        self._driver = driver
        self.checkpoint = (
            None if checkpoint is None else checked_folder(f"engine {self.name!r}: checkpoint=", checkpoint)
        )
        self.checkpoint_seconds = checkpoint_seconds

    @property
    def has_gil(self) -> bool:
        return Gauge.python_has_gil()

    def gauge(self, clock: Clock) -> Gauge:
        """Where a run's cores are, and how busy."""
        return Gauge(available_cores(), SystemCpu().share, self.has_gil)

    def driver(self, flow: str) -> Pool:
        if self._driver is not None:
            return self._driver(self.clock)
        return Threads(self.threads, flow, dedicated=self.threading == "dedicated", patience=self.patience)

    def platform(self, flow: str) -> Platform:
        """What a run of that flow gets from outside."""
        return RealThreads(self.clock, self.driver(flow), lambda: self.gauge(self.clock))

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        # With a checkpoint another run may go on, so windows stay open; as on Spark.
        at_end = at_end or ("close" if self.checkpoint is None else "keep")
        platform, checkpoint = self.platform(graph.flow), None
        if self.checkpoint is not None:
            checkpoint = LocalCheckpoint(self.checkpoint, graph, self.clock, self.checkpoint_seconds)
        return LiveJob(self, graph, at_end, platform, checkpoint)


@dataclass(frozen=True)
class RealThreads(Platform):
    """The platform of the local engine: the machine as it is."""

    clock: Clock
    driver: Pool
    look_at_machine: Callable[[], Gauge]

    def gauge(self) -> Gauge:
        return self.look_at_machine()
