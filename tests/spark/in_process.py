"""The Spark engine without Spark: the same admission, tasks, exchanges, sums and manifests, all in this process.

Its tasks can be looked into, broken on purpose, and run thousands of times in a minute. What Spark itself does between
two stages is a partition of rows by target and a sort by their keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.clock import FakeClock
from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.spark import wire
from penstock.engines.spark.admission import Admission, BatchLimits
from penstock.engines.spark.batches import BatchRunner
from penstock.engines.spark.pickling import pickled
from penstock.engines.spark.stages import Level
from penstock.engines.spark.tasks import run_level
from penstock.plan.groups import make_plan


class _Accumulator:
    value: dict[str, float] = {}

    def add(self, seconds: dict[str, float]) -> None:
        pass


class _Session:
    """What `BatchRunner` asks a session and its context for."""

    def __init__(self) -> None:
        self.sparkContext = self.sparkSession = self
        self.properties: dict[str, str] = {}

    def accumulator(self, _zero: Any, _param: Any) -> _Accumulator:
        return _Accumulator()

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 (Spark's name)
        self.properties[name] = value


class _Stages:
    """The stages of a job, one after the other."""

    def __init__(self, session: _Session, levels: Sequence[bytes], partitions: Sequence[int]) -> None:
        self._session = session
        self._levels = levels
        self._partitions = partitions

    def select(self, _column: str) -> _Stages:
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        arriving = [[pa.record_batch([pa.array([number])], ["id"])] for number in range(self._partitions[0])]
        rows: list[wire.ShuffleRow] = []
        files = self._session.properties["penstock.batch-files"]
        for number, level in enumerate(self._levels):
            if number:
                arriving = self._exchanged(rows, self._partitions[number])
            rows = [row for partition, batches in enumerate(arriving) for row in _run(level, files, partition, batches)]
        return pa.table({"payload": [row.payload for row in rows]})

    @staticmethod
    def _exchanged(rows: list[wire.ShuffleRow], partitions: int) -> list[list[pa.RecordBatch]]:
        by_target = defaultdict(list)
        for row in reversed(rows):  # what is sent first need not arrive first
            by_target[row.target].append(row)
        return [list(wire.batches(sorted(by_target[one], key=lambda row: row.sort_key))) for one in range(partitions)]


def _run(level: bytes, files: str, partition: int, batches: list[pa.RecordBatch]) -> list[wire.ShuffleRow]:
    try:
        return list(wire.rows_of(run_level(level, files, partition, iter(batches), lambda _seconds: None)))
    except Exception as error:
        raise AssertionError("a task raises what belongs into its report: Spark would run it again") from error


def _stages_in_process(session: _Session, levels: Sequence[Level], partitions: Sequence[int], _busy: Any) -> _Stages:
    return _Stages(session, [pickled(level, level.flow) for level in levels], partitions)


class InProcess:
    """Runs a flow as the Spark engine would, in so many tasks; `run` is the only thing it can do."""

    def __init__(
        self,
        tasks: int = 2,
        rows_per_batch: int = 1_000_000,
        bytes_per_batch: int = 128 << 20,
        checkpoint: str | None = None,
    ) -> None:
        self._tasks = tasks
        self._limits = BatchLimits(rows_per_batch, bytes_per_batch)
        self._checkpoint = checkpoint

    def __repr__(self) -> str:
        return f"InProcess({self._tasks}, {self._limits})"

    def run(self, flow: Any, closes: bool = True) -> int:
        """Returns how many batches there were."""
        graph = flow.validate()
        checkpoint = Checkpoint(self._checkpoint, graph, "spark", buckets=16)
        try:
            commits = Commits(checkpoint, graph)
            commits.open()
            commits.finish()
            admission = Admission(graph, checkpoint, FakeClock(), self._limits, closes)
            session = _Session()
            batches = BatchRunner(make_plan(graph), checkpoint, commits, session, self._tasks, _stages_in_process)
            count = 0
            while admission.admit(batches.readers(), batches.sources_ahead) is not None:
                batches.run(session, admission.take())
                count += 1
            admission.leave()
            commits.close(has_failed=False)
        finally:
            checkpoint.leave()
        return count
