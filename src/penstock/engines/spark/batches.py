"""One micro-batch on the driver: plan, run, write the manifest, publish. The order of these steps is what makes a batch
happen once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from penstock.connectors.spark_words import text_of
from penstock.engines.batch_shares import BucketShares
from penstock.engines.batch_tasks import first_tasks
from penstock.engines.durable.checkpoint import BATCHES, Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.durable.publish import outputs_of
from penstock.engines.durable.steps import reached
from penstock.engines.spark import wire
from penstock.engines.spark.admission import Admitted
from penstock.engines.spark.causes import is_death, told_by_spark
from penstock.engines.spark.conservation import check_batch
from penstock.engines.spark.parts import first_partitions, group_task
from penstock.engines.spark.pickling import pickled
from penstock.engines.spark.stages import Level, LevelBatch, TaskReport
from penstock.engines.spark.tasks import run_level
from penstock.errors import PenstockError, describe_exception
from penstock.flow.nodes import PortRef
from penstock.observe.report import OperatorReport
from penstock.plan.groups import Plan, Spread
from penstock.runtime.portable import revived

_MOST_RERUNS = 3
_MOST_WAITING = 65_536
_FILES = "penstock.batch-files"
_REHEARSES = "penstock.rehearses"
_DIFFERED = ("checksum mismatch", "indeterminate", "INDETERMINATE")


MakeStages: TypeAlias = Callable[[Any, Sequence[Level], Sequence[int], Any], Any]
"""Given a session, the levels, the number of tasks of each, and what adds up their busy seconds."""


class BatchRunner:
    """Runs the batches of one query."""

    def __init__(
        self,
        plan: Plan,
        checkpoint: Checkpoint,
        commits: Commits,
        spark: Any,
        parallelism: int,
        make_stages: MakeStages | None = None,
    ) -> None:
        # An accumulator counts what tasks that were retried have spent as well: it was spent.
        self._busy_seconds = spark.sparkContext.accumulator({}, _SecondsByOperator())
        self._plan = plan
        self._checkpoint = checkpoint
        self._commits = commits
        self._counts = {node.name: OperatorReport() for node in plan.graph.nodes}
        self.tasks = first_tasks(plan, parallelism)
        """How many tasks each group has from the next batch on."""
        self.rows = 0
        """How many tuples the last batch has read."""
        self.spent: dict[str, float] = {}
        """How long the tasks that read each source have worked in the last batch."""
        self._written: list[str] = []
        """Files that are not needed once a batch is done."""
        self._make_stages = make_stages or _stages_on_spark
        self._stages: Any = None
        self._stages_for: tuple[int, dict[int, int]] | None = None
        keyed = [group for group in plan.groups if group.spread is Spread.KEYS]
        self._shares = {group.number: BucketShares(checkpoint.buckets) for group in keyed}
        self._completed: set[str] = set()
        self.sources_ahead: set[str] = set()
        """Sources whose tuples pile up before an operator that waits for those of others."""

    def run(self, spark: Any, admitted: Admitted) -> None:
        """Process what was admitted, once: nothing is visible before its manifest is there."""
        self.rows = 0
        reached("planned")
        reports = self._run_job(spark, admitted)
        reached("processed")
        _raise_first_error(self._plan.graph.flow, reports)
        staged = outputs_of([staged for report in reports for staged in report.staged])
        outputs = self._commits.publisher.agreed(admitted.number, staged)
        check_batch(self._plan, admitted, reports, outputs)
        self._commits.commit(
            admitted.number,
            admitted.offsets,
            {bucket_id: chain for report in reports for bucket_id, chain in report.chains.items()},
            outputs,
            admitted.closes,
            spark,
        )
        spent = self._spent_by_source()
        self._count(reports)
        self.spent = {name: after - spent[name] for name, after in self._spent_by_source().items()}
        self._completed.update(*(report.completed for report in reports))
        self.sources_ahead = self._sources_ahead(reports)
        for name in (*self._written, *admitted.files):
            self._checkpoint.files.delete(name)
        self._written = []

    def counts(self) -> dict[str, OperatorReport]:
        in_sinks = self._commits.publisher.failed()
        return {
            name: replace(counts, failed=counts.failed + in_sinks.get(name, 0)) for name, counts in self._counts.items()
        }

    def _spent_by_source(self) -> dict[str, float]:
        """What the operators that run where a source is read were busy for, in all batches that were counted."""
        plan = self._plan
        return {
            source.name: sum(self._counts[node.name].busy_seconds for node in plan.group_of(source.name).nodes)
            for source in plan.graph.sources
        }

    @property
    def hottest(self) -> dict[int, float]:
        """By keyed group, the share of its tuples that only one task can work on."""
        return {group: shares.hottest for group, shares in self._shares.items()}

    def readers(self) -> dict[str, int]:
        """How many tasks read each source."""
        plan = self._plan
        return {node.name: self.tasks[plan.group_of(node.name).number] for node in plan.graph.sources}

    def sources_without_readers(self) -> list[str]:
        """Sources whose tuples no operator will take any more."""
        graph = self._plan.graph
        over = set(self._completed)
        for node in reversed(graph.nodes):
            refs = [PortRef(node.name, port) for port in range(node.outputs + 1)]
            readers = [reader.node for ref in refs for reader in graph.readers.get(ref, ())]
            if readers and all(reader in over for reader in readers):
                over.add(node.name)
        return [node.name for node in graph.sources if node.name in over]

    def _sources_ahead(self, reports: Sequence[TaskReport]) -> set[str]:
        graph = self._plan.graph
        ahead: set[str] = set()
        for name, counts in ((name, counts) for report in reports for name, counts in report.waiting.items()):
            inputs = self._plan.node(name).inputs
            feeding = [graph.sources_of(ref) if ref is not None else set() for ref in inputs]
            short = [sources for sources, count in zip(feeding, counts, strict=False) if count <= _MOST_WAITING]
            for sources, count in zip(feeding, counts, strict=False):
                if count > _MOST_WAITING:
                    ahead |= sources.difference(*short)
        return ahead

    def _run_job(self, spark: Any, admitted: Admitted) -> list[TaskReport]:
        """Again, if Spark gives up because a task that was retried sent something else than the first time.

        And once more with a rehearsal, if that can tell which operator has ended the workers.
        """
        reruns, rehearses = 0, False
        while True:
            try:
                reports = self._reports(self._job(spark, admitted, rehearses))
            except PenstockError:
                raise
            except Exception as error:
                text = text_of(error)
                if any(sign in text for sign in _DIFFERED) and reruns < _MOST_RERUNS:
                    reruns += 1
                elif is_death(text) and not rehearses:
                    rehearses = True
                else:
                    raise told_by_spark(error, self._plan, spark) from error
            else:
                first = _first_failed(reports)
                if first is None or not first.escaped or rehearses:
                    return reports
                rehearses = True

    def _job(self, spark: Any, admitted: Admitted, rehearses: bool) -> Any:
        """One job, one pass: each level is a stage. Spark's own frame only tells that there is a batch."""
        plan, tasks = self._plan, dict(self.tasks)
        chains = self._checkpoint.manifests.chains()
        owners = {group: tuple(shares.owners(tasks[group])) for group, shares in self._shares.items()}
        files = []
        for number, groups in enumerate(plan.levels):
            names = {node.name for group in groups for node in group.nodes}
            told = LevelBatch(
                admitted.number,
                admitted.closes,
                {bucket_id: chain for bucket_id, chain in chains.items() if bucket_id.operator in names},
                (admitted.tasks or ((),)) if number == 0 else (),
                owners,
            )
            blob = self._checkpoint.files.keep(f"{BATCHES}/{admitted.number:010d}-{number}-", told.to_json())
            files.append(blob)
        self._written = [blob.file for blob in files]
        readers = max(1, len(admitted.tasks))
        if self._stages is None or self._stages_for != (readers, tasks):
            levels, partitions = self._levels(tasks)
            self._stages = self._make_stages(spark, levels, [readers, *partitions[1:]], self._busy_seconds)
            self._stages_for = (readers, tasks)
        spark.sparkContext.setLocalProperty(_FILES, " ".join(f"{blob.file}:{blob.digest}" for blob in files))
        spark.sparkContext.setLocalProperty(_REHEARSES, str(int(rehearses)))
        # A new frame, or Spark would think that it has run these stages before.
        return self._stages.select("payload")

    def _levels(self, tasks: dict[int, int]) -> tuple[list[Level], list[int]]:
        """What the tasks of each level are told, and how many there are."""
        plan, checkpoint = self._plan, self._checkpoint
        first = first_partitions(plan, tasks)
        partitions = [sum(tasks[group.number] for group in level) for level in plan.levels]
        levels = [
            Level(
                number=number,
                levels=len(plan.levels),
                query=checkpoint.query,
                files=checkpoint.files,
                buckets=checkpoint.buckets,
                flow=plan.graph.flow,
                groups=tuple(group_task(plan, group, tasks, first) for group in groups),
                next_partitions=partitions[number + 1] if number + 1 < len(partitions) else 1,
            )
            for number, groups in enumerate(plan.levels)
        ]
        return levels, partitions

    @staticmethod
    def _reports(frame: Any) -> list[TaskReport]:
        payloads = frame.toArrow().column("payload").to_pylist()
        return sorted(
            (pickle.loads(payload) for payload in payloads), key=lambda report: (report.level, report.partition)
        )

    def _count(self, reports: list[TaskReport]) -> None:
        sources = {node.name for node in self._plan.graph.sources}
        for group, shares in self._shares.items():
            loads = [report.loads[group] for report in reports if group in report.loads]
            shares.add([sum(counts) for counts in zip(*loads, strict=True)])
        for report in reports:
            self.rows += sum(report.counts[name][1] for name in sources & report.counts.keys())
            for name, (received, emitted, failed, late) in report.counts.items():
                if (before := self._counts.get(name)) is not None:
                    self._counts[name] = OperatorReport(
                        before.received + received,
                        before.emitted + emitted,
                        self._busy_seconds.value.get(name, 0.0),
                        self.tasks[self._plan.group_of(name).number],
                        failed=before.failed + failed,
                        late=before.late + late,
                    )


def _stages_on_spark(spark: Any, levels: Sequence[Level], partitions: Sequence[int], busy_seconds: Any) -> Any:
    """A frame whose rows are the reports of a batch: a stage for each level, an exchange between two."""
    from pyspark.sql import functions

    frame = spark.range(0, partitions[0], 1, partitions[0])
    for level, count in zip(levels, partitions, strict=True):
        if level.number > 0:
            frame = frame.repartitionById(count, functions.col("target"))
            frame = frame.sortWithinPartitions("sort_key")
        frame = frame.mapInArrow(_in_task(pickled(level, level.flow), busy_seconds), wire.SCHEMA)
    return frame


def _in_task(level_pickle: bytes, busy_seconds: Any) -> Any:
    def run(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch_files = context.getLocalProperty(_FILES) or ""
        rehearses = context.getLocalProperty(_REHEARSES) == "1"
        return run_level(level_pickle, batch_files, context.partitionId(), arriving, busy_seconds.add, rehearses)

    return run


def _first_failed(reports: list[TaskReport]) -> TaskReport | None:
    """A failure further down the flow is about an earlier tuple; at one level, the first slice and position count."""
    failed = [report for report in reports if report.error is not None]
    return min(failed, key=lambda report: (-report.level, report.failed_at, report.partition), default=None)


def _raise_first_error(flow: str, reports: list[TaskReport]) -> None:
    first = _first_failed(reports)
    if first is None or first.error is None:
        return
    error = revived(first.error)
    if not isinstance(error, PenstockError):
        raise PenstockError(f"flow {flow!r} failed in one of Spark's tasks: {describe_exception(error)}") from error
    raise error


class _SecondsByOperator(AccumulatorParam):  # type: ignore[misc]
    """Adds up seconds by operator."""

    def zero(self, value: dict[str, float]) -> dict[str, float]:
        return {}

    def addInPlace(self, one: dict[str, float], other: dict[str, float]) -> dict[str, float]:  # noqa: N802 (Spark's name)
        for name, seconds in other.items():
            one[name] = one.get(name, 0.0) + seconds
        return one
