"""A flow as a step of a user's own query: its `foreachBatch` brings the rows, the flow is everything behind them."""

from __future__ import annotations

from typing import Any

from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.durable.moving import check_engine
from penstock.engines.spark.admission import Admitted, spooled
from penstock.engines.spark.batches import BatchRunner
from penstock.engines.spark.engine import Spark
from penstock.errors import CheckpointError, FlowError
from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport
from penstock.plan.groups import make_plan
from penstock.schema import rows_of_table


class Step:
    """A function for `foreachBatch`: the rows of each batch are the tuples of the flow's only source.

    Exactly once, if the query that calls it has a checkpoint: a batch that comes again is not processed again.
    """

    def __init__(self, graph: Graph, engine: Spark, order_by: str | list[str] | None) -> None:
        if len(graph.sources) != 1:
            raise FlowError(
                f"flow {graph.flow!r} has {len(graph.sources)} sources; as a step it reads one stream, the batches"
            )
        if engine.checkpoint is None:
            raise FlowError("a step keeps its state between batches, so it needs a checkpoint= of its own")
        self._graph = graph
        self._engine = engine
        self._order_by = [order_by] if isinstance(order_by, str) else list(order_by or ())
        self._checkpoint = Checkpoint(engine.checkpoint, graph, "spark step", engine.buckets)
        try:
            self._commits = Commits(self._checkpoint, graph)
            self._commits.open()
            self._commits.finish()
            check_engine(self._checkpoint)
        except BaseException:
            self._checkpoint.leave()
            raise
        self._runner: BatchRunner | None = None

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Process one batch."""
        spark = frame.sparkSession
        latest = self._checkpoint.latest
        if latest is not None and batch_id <= latest.batch:
            if batch_id < latest.batch:
                raise CheckpointError(
                    f"flow {self._graph.flow!r}: the query calls for batch {batch_id}, and this step has done batch "
                    f"{latest.batch}: the query's own checkpoint was deleted or is an older one. Put it back, or give "
                    "the step a new checkpoint as well"
                )
            return  # it was done before the query could write that down
        if self._runner is None:
            parallelism = self._engine.parallelism or spark.sparkContext.defaultParallelism
            self._runner = BatchRunner(make_plan(self._graph), self._checkpoint, self._commits, spark, parallelism)
        ordered = frame.orderBy(*self._order_by) if self._order_by else frame
        values = rows_of_table(ordered.toArrow())
        parts = spooled(self._graph.sources[0].name, batch_id, values, 2, self._checkpoint.files)
        admitted = Admitted(batch_id, (tuple(parts),), {}, closes=False)
        self._runner.run(spark, admitted)

    def metrics(self) -> dict[str, OperatorReport]:
        """The counts of every operator, as they are now."""
        return {} if self._runner is None else self._runner.counts()

    def close(self) -> None:
        """Let go of the checkpoint and the sinks."""
        self._commits.close(has_failed=False)
        self._checkpoint.leave()
