"""The Spark engine: what a user sets, and the job that runs a flow's batches one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock, SystemClock
from penstock.connectors.spark_session import reason_of, session
from penstock.elasticity.loop import Elastic
from penstock.engines.base import AtEnd, BackgroundJob, Engine, Job
from penstock.errors import FlowError, PenstockError
from penstock.flow.draw import explain
from penstock.flow.nodes import Graph
from penstock.observe.journal import Decision
from penstock.observe.report import BatchReport, Latency, OperatorReport, Report
from penstock.plan.groups import Spread, make_plan
from penstock.runtime.background import Background, StopSignal

if TYPE_CHECKING:
    from penstock.engines.spark.steering import SparkSteering

_POLL_SECONDS = 0.005
_LOOK_SECONDS = 0.1
_MOST_TASKS = 1024
_KEPT_BATCHES = 1000


class Spark(Engine):
    """The data pipeline: micro-batches on Structured Streaming.

    On `master` (`local[*]` by default), or on a `session` of yours. `checkpoint` is a directory that lets a later run
    go on where this one stopped; `trigger` is the least number of seconds between two batches. A batch takes at most
    `rows_per_batch` from each source, or `bytes_per_batch` where positions are bytes. A stage has `parallelism` tasks;
    where you give none, tasks, executors (on masters that let us) and what a batch reads find their own number, as
    `elastic` says.
    `buckets` is how many parts keyed state is kept in, for the whole life of a checkpoint; `conf` is Spark's.
    """

    name = "spark"

    def __init__(
        self,
        master: str | None = None,
        session: Any = None,
        trigger: float | None = None,
        checkpoint: str | None = None,
        buckets: int = 128,
        parallelism: int | None = None,
        rows_per_batch: int = 1_000_000,
        bytes_per_batch: int = 128 << 20,
        elastic: Elastic | bool | None = None,
        conf: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if master is not None and session is not None:
            raise FlowError("engine 'spark': give a master= or a session=, not both")
        numbers = {"buckets": buckets, "rows_per_batch": rows_per_batch, "bytes_per_batch": bytes_per_batch}
        for what, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise FlowError(f"engine 'spark': {what}= is a number from 1 up, not {number!r}")
        if trigger is not None and trigger < 0:
            raise FlowError(f"engine 'spark': trigger= is a number of seconds, not {trigger!r}")
        self.master = master
        self.session = session
        self.trigger_seconds = trigger or 0.0
        self.checkpoint = None if checkpoint is None else str(checkpoint)
        self.buckets = buckets
        self.parallelism = parallelism
        self.rows_per_batch = rows_per_batch
        self.bytes_per_batch = bytes_per_batch
        self.elastic: Elastic | None = None
        if elastic is not False and (elastic or parallelism is None):
            self.elastic = (elastic if isinstance(elastic, Elastic) else Elastic()).for_batches()
        self.conf = {str(name): str(value) for name, value in (conf or {}).items()}
        self.clock = clock or SystemClock()

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        return SparkJob(self, graph, at_end or ("close" if self.checkpoint is None else "keep"))

    def explain(self, graph: Graph) -> str:
        return "\n".join([explain(graph), "on Spark each batch runs in these stages:", make_plan(graph).explain()])


class SparkJob(BackgroundJob):
    """A flow that runs on Spark, batch by batch."""

    def __init__(self, engine: Spark, graph: Graph, at_end: AtEnd) -> None:
        self._engine = engine
        self._graph = graph
        self._closes = at_end == "close"
        self._plan = make_plan(graph)
        self._stop = StopSignal()
        self._batches: Any = None
        self._wanted: dict[int, int] = {}
        self._error: BaseException | None = None
        self._left: Mapping[str, int] = {}
        self._next_batch_at = 0.0
        self._has_ended = False
        self._history: deque[BatchReport] = deque(maxlen=_KEPT_BATCHES)
        self._decisions: list[Decision] = []
        self._steering: SparkSteering | None = None
        self._background = Background(self._to_the_end, name=f"penstock-{graph.flow}")

    def stop(self, drain: bool = True) -> None:
        """End between two batches; without `drain`, in the middle of one, which a later run does again."""
        self._stop.request(drain)
        self._background.join()

    def metrics(self) -> Mapping[str, OperatorReport]:
        if self._batches is None:
            return {node.name: OperatorReport() for node in self._graph.nodes}
        counts: Mapping[str, OperatorReport] = self._batches.counts()
        return counts

    def batches(self) -> Sequence[BatchReport]:
        """The last thousand batches."""
        return tuple(self._history)

    def rescale(self, name: str, replicas: int) -> None:
        """From the next batch on, run the stage of this operator in so many tasks."""
        if isinstance(replicas, bool) or not isinstance(replicas, int) or not 1 <= replicas <= _MOST_TASKS:
            raise FlowError(f"replicas are a number from 1 to {_MOST_TASKS}, not {replicas!r}")
        if all(node.name != name for node in self._graph.nodes):
            raise FlowError(f"flow {self._graph.flow!r} has no operator {name!r}")
        group = self._plan.group_of(name)
        if group.spread is Spread.ONE and replicas > 1:
            raise FlowError(
                f"operator {name!r} sees all tuples in one sequence, so its stage has one task, not {replicas}"
            )
        self._wanted[group.number] = replicas
        if self._batches is not None:
            self._batches.tasks.update(self._wanted)

    def _to_the_end(self) -> Report:
        from penstock.engines.durable.checkpoint import Checkpoint
        from penstock.engines.durable.publish import Publisher
        from penstock.engines.spark.admission import Admission, Limits
        from penstock.engines.spark.logs import last_committed
        from penstock.engines.spark.session import query_session

        engine, graph = self._engine, self._graph
        started = engine.clock.now()
        checkpoint = Checkpoint(engine.checkpoint, graph, engine.buckets)
        query = None if checkpoint.is_temporary else checkpoint.query
        publisher = Publisher(graph, checkpoint.files, checkpoint.sinks, query)
        has_failed, is_open = True, False
        admission: Admission | None = None
        try:
            checkpoint.remember_sinks(publisher.open())
            is_open = True
            limits = Limits(engine.rows_per_batch, engine.bytes_per_batch)
            admission = Admission(graph, checkpoint.files, engine.clock, limits, self._closes)
            if admission.is_closed and last_committed(checkpoint) >= admission.last:
                checkpoint.refuse_to_go_on()
            parent = engine.session or session(engine.master, engine.conf)
            spark = query_session(parent, engine.conf, checkpoint.is_local)
            self._run_batches(spark, checkpoint, admission, publisher)
            has_failed = self._error is not None
        finally:
            if admission is not None:
                admission.leave()
            try:
                if is_open:
                    publisher.close(has_failed)
            finally:
                checkpoint.leave()
        if self._error is not None:
            raise self._error
        batches = self.batches()
        latency = Latency.of([batch.seconds for batch in batches])
        elapsed = engine.clock.now() - started
        decisions = tuple(self._decisions)
        return Report(graph.flow, engine.name, elapsed, self.metrics(), latency, decisions, batches=batches)

    def _run_batches(self, spark: Any, checkpoint: Any, admission: Any, publisher: Any) -> None:
        from pyspark.errors import StreamingQueryException

        from penstock.engines.spark.batches import Batches
        from penstock.engines.spark.logs import last_committed, spark_root

        engine = self._engine
        parallelism = engine.parallelism or spark.sparkContext.defaultParallelism
        for batch, outputs in checkpoint.manifests.outputs():
            publisher.recollect(batch, outputs)
        self._batches = Batches(self._plan, checkpoint, admission.read, publisher, spark, parallelism)
        self._batches.tasks.update(self._wanted)
        if engine.elastic is not None:
            from penstock.engines.spark.steering import SparkSteering

            self._steering = SparkSteering(
                self._plan, engine.elastic, engine.clock, spark, self._batches, admission, self._decisions
            )
        if admission.last <= last_committed(checkpoint) and not self._admit(admission) and admission.has_ended:
            return
        # Spark's simplest source, a row for each batch: there is always a next one, and it waits in `_run_batch` until
        # it is admitted. So Spark's batch ids are our numbers, and its logs hold nothing that grows.
        frame = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
        writer = frame.writeStream.option("checkpointLocation", spark_root(checkpoint))
        query = writer.foreachBatch(partial(self._run_batch, admission)).start()
        try:
            while not self._stop.at_once and not query.awaitTermination(_LOOK_SECONDS):
                pass
        except StreamingQueryException:
            pass  # so every run ends; what it means was noted where it was raised
        finally:
            with suppress(Exception):
                query.stop()
        if self._error is None and not self._has_ended and not self._stop.at_once:
            self._error = _translated(query.exception() or RuntimeError("the query has stopped"), self._graph.flow)

    def _run_batch(self, admission: Any, frame: Any, batch: int) -> None:
        """What Spark calls, and calls again where it does not know how a batch has ended.

        What is raised here ends the query. An error is kept as well, because Spark wraps it in pages of its own.
        """
        clock = self._engine.clock
        try:
            while admission.last < batch:
                if not self._admit_next(admission):
                    self._has_ended = True
                    raise _Ended
            began = clock.now()
            self._batches.run(frame, batch)
        except BaseException as error:
            if not self._has_ended and not self._stop.at_once:
                self._error = error if isinstance(error, PenstockError) else _translated(error, self._graph.flow)
            raise
        seconds = clock.now() - began
        self._history.append(BatchReport(batch, seconds, self._batches.rows, self._left))
        if self._steering is not None and self._batches.rows:
            self._steering.after_batch(seconds, self._engine.trigger_seconds)

    def _admit_next(self, admission: Any) -> bool:
        """Wait until there is something for the next batch, and admit it; `False` when there never will be."""
        clock = self._engine.clock
        admission.stop(self._batches.sources_without_readers())
        while not self._stop.at_once:
            if self._stop.requested and self._closes:
                admission.stop()
            elif self._stop.requested:
                return False
            if clock.now() >= self._next_batch_at or self._stop.requested:
                self._next_batch_at = clock.now() + self._engine.trigger_seconds
                if self._admit(admission):
                    return True
                if admission.has_ended:
                    return False
            clock.sleep(_POLL_SECONDS)
        return False

    def _admit(self, admission: Any) -> bool:
        admitted = admission.admit(self._batches.readers(), self._batches.sources_ahead) is not None
        self._left = admission.left()
        return admitted


class _Ended(Exception):
    """There is no next batch; raised, because a batch that returns is noted as done."""


def _translated(error: BaseException, flow: str) -> BaseException:
    """Spark's words for what went wrong, without its frames."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        return error
    told = PenstockError(f"flow {flow!r}: Spark failed: {reason_of(error)}")
    told.__cause__ = error
    return told
