"""The Spark engine: what a user sets, and the job that runs a flow's batches one after another."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.connectors.files.discover import checked_folder
from penstock.connectors.spark_cluster import is_stopped
from penstock.connectors.spark_session import await_executors, log_hint, session
from penstock.connectors.spark_words import reason_of
from penstock.elasticity.loop import Elastic
from penstock.engines.base import AtEnd, BackgroundJob, Engine, Job
from penstock.engines.batch_plant import BatchSteering
from penstock.engines.batch_tasks import rescaled_group
from penstock.engines.spark.query_end import QueryFailed, QueryStopped, told_elsewhere
from penstock.errors import FlowError, PenstockError, caused_by, cut
from penstock.flow.draw import explain
from penstock.flow.nodes import Graph
from penstock.observe.journal import Decision
from penstock.observe.report import BatchReport, Latency, OperatorReport, Report
from penstock.plan.groups import make_plan
from penstock.runtime.background import Background, StopSignal
from penstock.runtime.running.patience import Patience

_POLL_SECONDS = 0.005
_LOOK_SECONDS = 0.05
_STOP_SECONDS = 60.0
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
        self.checkpoint = (
            None if checkpoint is None else checked_folder(f"engine {self.name!r}: checkpoint=", checkpoint)
        )
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

    _patience = Patience(end=10.0)  # Spark needs a second or two to end a job, and the Python workers of its tasks

    def __init__(self, engine: Spark, graph: Graph, at_end: AtEnd) -> None:
        self._engine = engine
        self._graph = graph
        self._closes = at_end == "close"
        self._plan = make_plan(graph)
        self._stop = StopSignal()
        self._runner: Any = None
        self._query: Any = None
        self._callback: Any = None
        """The connection over which the query calls."""
        self._wanted: dict[int, int] = {}
        self._error: BaseException | None = None
        self._left: Mapping[str, int] = {}
        self._next_batch_at = 0.0
        self._has_ended = False
        self._history: deque[BatchReport] = deque(maxlen=_KEPT_BATCHES)
        self._decisions: list[Decision] = []
        self._steering: BatchSteering | None = None
        self._background = Background(self._to_the_end, name=f"penstock-{graph.flow}")

    def _ask_to_stop(self, drain: bool) -> None:
        """Between two batches; without `drain`, in the middle of one, which a later run does again."""
        self._stop.request(drain)

    def metrics(self) -> Mapping[str, OperatorReport]:
        if self._runner is None:
            return {node.name: OperatorReport() for node in self._graph.nodes}
        counts: Mapping[str, OperatorReport] = self._runner.counts()
        return counts

    def batches(self) -> Sequence[BatchReport]:
        """The last thousand batches."""
        return tuple(self._history)

    def rescale(self, name: str, replicas: int) -> None:
        """From the next batch on, run the stage of this operator in so many tasks."""
        group = rescaled_group(self._plan, name, replicas)
        self._wanted[group.number] = replicas
        if self._runner is not None:
            self._runner.tasks.update(self._wanted)

    def _to_the_end(self) -> Report:
        from penstock.engines.durable.checkpoint import Checkpoint
        from penstock.engines.durable.commits import Commits
        from penstock.engines.durable.moving import move
        from penstock.engines.spark.admission import Admission, BatchLimits
        from penstock.engines.spark.session import query_session

        engine, graph = self._engine, self._graph
        started = engine.clock.now()
        checkpoint = Checkpoint(engine.checkpoint, graph, engine.name, engine.buckets)
        has_failed = True
        commits: Commits | None = None
        admission: Admission | None = None
        try:
            commits = Commits(checkpoint, graph)
            commits.open()
            limits = BatchLimits(engine.rows_per_batch, engine.bytes_per_batch)
            admission = Admission(graph, checkpoint, engine.clock, limits, self._closes)
            parent = engine.session or session(engine.master, engine.conf)
            spark = query_session(parent, engine.conf, checkpoint.is_local)
            await_executors(spark, lambda: not self._stop.at_once)
            commits.finish(spark)
            move(checkpoint, commits, graph, engine.buckets)
            self._run_batches(spark, checkpoint, admission, commits)
            has_failed = self._error is not None
        finally:
            if admission is not None:
                admission.leave()
            try:
                if commits is not None:
                    commits.close(has_failed)
            finally:
                checkpoint.leave()
        if self._error is not None:
            raise self._error
        batches = self.batches()
        seconds = [batch.seconds for batch in batches]
        latency = Latency.of(seconds, seconds)
        elapsed = engine.clock.now() - started
        decisions = tuple(self._decisions)
        return Report(graph.flow, engine.name, elapsed, self.metrics(), latency, decisions, batches=batches)

    def _run_batches(self, spark: Any, checkpoint: Any, admission: Any, commits: Any) -> None:
        from pyspark.errors import StreamingQueryException

        from penstock.engines.spark.batches import BatchRunner
        from penstock.engines.spark.logs import fresh_log

        engine = self._engine
        parallelism = engine.parallelism or spark.sparkContext.defaultParallelism
        self._runner = BatchRunner(self._plan, checkpoint, commits, spark, parallelism)
        self._runner.tasks.update(self._wanted)
        if engine.elastic is not None:
            self._steering = self._steer(engine.elastic, spark, admission)
        if admission.next is None and not self._admit(admission) and admission.has_ended:
            return
        # Spark's simplest source, a row for each batch: there is always a next one, and it waits in `_run_batch` until
        # it is admitted. What was done stands in our own log alone, so Spark's is a new one for each run.
        frame = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
        writer = frame.writeStream.option("checkpointLocation", fresh_log(checkpoint))
        if self._stop.at_once:
            return
        told_elsewhere()
        query = self._query = writer.foreachBatch(partial(self._run_batch, admission)).start()
        try:
            while not self._is_over and not query.awaitTermination(_LOOK_SECONDS):
                if is_stopped(spark.sparkContext):
                    self._fail(PenstockError(f"flow {self._graph.flow!r}: its Spark session was stopped while it ran"))
        except StreamingQueryException:
            pass  # what it means was noted where it was raised
        except Exception as error:  # there is no Spark any more
            self._fail(error)
        finally:
            with suppress(Exception):
                query.stop()
            self._close_callback()
        if not self._is_over:
            self._fail(query.exception() or RuntimeError("the query has stopped"))

    def _steer(self, elastic: Elastic, spark: Any, admission: Any) -> BatchSteering:
        """Let tasks, executors and what a batch reads find their own number."""
        from penstock.engines.spark.adjustable import AdjustableSpark
        from penstock.engines.spark.executors import SparkExecutors

        engine = self._engine
        adjustable = AdjustableSpark(engine.clock, SparkExecutors(spark), self._runner, admission)
        slots = adjustable.slots().now
        if adjustable.why_fixed is not None and (elastic.most_threads or 0) > slots:
            reason = f"there can't be more executors: {adjustable.why_fixed}"
            self._decisions.append(Decision(0.0, "executors", "", slots, slots, reason, is_applied=False))
        interval = engine.trigger_seconds
        return BatchSteering(self._plan, elastic, adjustable, engine.clock, interval, self._decisions)

    @property
    def _is_over(self) -> bool:
        return self._has_ended or self._stop.at_once or self._error is not None

    def _fail(self, error: BaseException) -> None:
        """Keep what ends the run; what comes of that is not another failure."""
        if not self._is_over:
            self._error = error if isinstance(error, PenstockError) else _translated(error, self._graph.flow)

    def _run_batch(self, admission: Any, frame: Any, batch: int) -> None:
        """What Spark calls, and calls again where it does not know how a batch has ended."""
        self._note_callback(frame)
        try:
            if self._do_batch(admission, frame):
                return
            self._has_ended = True
        except BaseException as error:
            self._fail(error)
        # Raised, because a batch that returns is noted as done; and not inside of `except`, because Spark is sent the
        # text of all that led to it. It knows no other good end of a query than to be stopped.
        if self._error is not None:
            raise QueryFailed(cut(str(self._error)))
        self._await_stop()
        raise QueryStopped

    def _note_callback(self, frame: Any) -> None:
        with suppress(Exception):
            self._callback = frame.sparkSession.sparkContext._gateway._gateway_client.get_thread_connection()

    def _close_callback(self) -> None:
        """The thread and the socket over which the query has called: py4j keeps both until Java collects garbage."""
        with suppress(Exception):
            if self._callback is not None:
                self._callback.socket.shutdown(socket.SHUT_RDWR)

    def _await_stop(self) -> None:
        clock = self._engine.clock
        deadline = clock.now() + _STOP_SECONDS
        with suppress(Exception):  # there is no Spark any more
            while clock.now() < deadline and (self._query is None or self._query.isActive):
                clock.sleep(_POLL_SECONDS)

    def _do_batch(self, admission: Any, frame: Any) -> bool:
        """Run the next batch; `False` if there is none."""
        clock = self._engine.clock
        if admission.next is None and not self._admit_next(admission):
            return False
        began = clock.now()
        admitted = admission.take()
        self._runner.run(frame.sparkSession, admitted)
        seconds = clock.now() - began
        admission.spent(self._runner.spent)
        self._history.append(BatchReport(admitted.number, seconds, self._runner.rows, self._left))
        if self._steering is not None and self._runner.rows:
            self._steering.after_batch(seconds)
        return True

    def _admit_next(self, admission: Any) -> bool:
        """Wait until there is something for the next batch, and admit it; `False` when there never will be."""
        clock = self._engine.clock
        admission.stop(self._runner.sources_without_readers())
        while not self._is_over:
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
        admitted = admission.admit(self._runner.readers(), self._runner.sources_ahead) is not None
        self._left = admission.left()
        return admitted


def _translated(error: BaseException, flow: str) -> BaseException:
    """Spark's words for what went wrong, without its frames."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        return error
    return caused_by(PenstockError(f"flow {flow!r}: Spark failed: {reason_of(error)}{log_hint()}"), error)
