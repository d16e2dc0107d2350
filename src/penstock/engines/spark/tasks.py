"""What one of Spark's tasks does: its partition of a level, from the rows that arrive to the rows that go on."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from penstock.engines.spark import wire
from penstock.engines.spark.group_runs import About, GroupRun, KeyedRun, LinesRun, OrderedRun, RelayRun
from penstock.engines.spark.reading import ReadingRun
from penstock.engines.spark.rehearsal import rehearsed
from penstock.engines.spark.stages import GroupTask, Level, LevelBatch, TaskReport
from penstock.errors import OperatorError
from penstock.runtime.portable import portable
from penstock.state.files import Blob


def run_level(
    level_pickle: bytes,
    batch_files: str,
    partition: int,
    arriving: Iterator[pa.RecordBatch],
    spent: Callable[[dict[str, float]], None],
    rehearses: bool = False,
) -> Iterator[pa.RecordBatch]:
    """A level's work on one partition; `spent` is told the busy seconds of its operators.

    `batch_files` are the files that tell what to do in this batch, one for each level, with their digests.
    """
    # A slice of rows is a hundred thousand objects without a cycle: looking for one at every 700 costs a tenth.
    gc.set_threshold(100_000, 20, 20)
    level: Level = pickle.loads(level_pickle)
    file, _, digest = batch_files.split()[level.number].partition(":")
    told = LevelBatch.from_json(level.files.fetch(Blob(file, digest), "what a batch reads"))
    if not rehearses:
        return wire.batches(_LevelTask(level, told, partition, spent).rows(arriving))
    came = list(arriving)
    killer = rehearsed(level, lambda noting: _LevelTask(noting, told, partition, spent, True).rows(iter(came)))
    task = _LevelTask(level, told, partition, spent)
    return wire.batches(task.rows(iter(came)) if killer is None else task.refused(iter(came), killer))


class _LevelTask:
    def __init__(
        self,
        level: Level,
        batch: LevelBatch,
        partition: int,
        spent: Callable[[dict[str, float]], None],
        rehearses: bool = False,
    ) -> None:
        self._level = level
        self._batch = batch
        self._spent = spent
        self._partition = partition
        self._rehearses = rehearses
        self._passing: list[wire.ShuffleRow] = []
        self._report: TaskReport

    def rows(self, arriving: Iterator[pa.RecordBatch]) -> Iterator[wire.ShuffleRow]:
        """What goes on from here: tuples, rows that only pass, and a report."""
        level = self._level
        if level.number == 0:
            descriptors = [
                part
                for batch in arriving
                for number in batch.column(0).to_pylist()
                for part in self._batch.parts[number]
            ]
            for group in level.groups:
                mine = [descriptor for descriptor in descriptors if descriptor.operator in group.sources]
                if mine:
                    yield from self._run(partial(ReadingRun, self._about(group), mine))
            return
        own = self._own(wire.rows_of(arriving))
        group_here = level.group_of(self._partition)
        if group_here is not None:
            yield from self._run(partial(_run_of(group_here), self._about(group_here), wire.slices_of(own)))
        for _ in own:
            pass  # a failed task has not read everything, and what passes must pass
        yield from self._passed()

    def refused(self, arriving: Iterator[pa.RecordBatch], error: OperatorError) -> Iterator[wire.ShuffleRow]:
        """Do nothing, and say why."""
        if self._level.number > 0:
            for _ in self._own(wire.rows_of(arriving)):
                pass
        yield from self._passed()
        yield self._reported(self._not_begun(error))

    def _not_begun(self, error: BaseException) -> TaskReport:
        return TaskReport(self._level.number, self._partition, {}, {}, (), error=portable(error))

    def _about(self, group: GroupTask) -> About:
        return About(self._level, self._batch, group, self._partition)

    def _run(self, make: Callable[[], GroupRun]) -> Iterator[wire.ShuffleRow]:
        try:
            task = make()
        except Exception as error:  # states can't be read
            yield self._reported(self._not_begun(error))
            return
        try:
            rows = task.rows()
            # Row by row: Spark ends this generator by an exception where it yields, and that is no failure of the task.
            while (row := self._next(task, rows)) is not None:
                yield self._routed(row)
                yield from self._passed()
        finally:
            task.leave()
        yield self._reported(self._report)

    def _next(self, task: GroupRun, rows: Iterator[wire.ShuffleRow]) -> wire.ShuffleRow | None:
        """A task's next row; after the last one, its report is there."""
        try:
            row = next(rows, None)
            if row is None:
                self._report = task.report()
                # Not in the report: it differs between attempts, and Spark compares what they send.
                self._spent(task.busy_seconds())
            return row
        except Exception as error:
            self._report = task.failed(error)
        except BaseException as error:
            if self._rehearses:
                raise
            self._report = replace(task.failed(error), escaped=True)
        return None

    def _reported(self, report: TaskReport) -> wire.ShuffleRow:
        return self._routed(wire.ShuffleRow(self._level.levels, 0, 0, b"", wire.REPORT, pickle.dumps(report)))

    def _own(self, rows: Iterable[wire.ShuffleRow]) -> Iterator[wire.ShuffleRow]:
        for row in rows:
            if row.level == self._level.number:
                yield row
            else:
                self._passing.append(row)

    def _passed(self) -> Iterator[wire.ShuffleRow]:
        passing, self._passing = self._passing, []
        return map(self._routed, passing)

    def _routed(self, row: wire.ShuffleRow) -> wire.ShuffleRow:
        """A row on its way past the next level goes through whichever partition it happens to meet there."""
        is_next = row.level == self._level.number + 1
        target = row.final if is_next else (row.final + sum(row.sort_key)) % max(1, self._level.next_partitions)
        return row if row.target == target else replace(row, target=target)


def _run_of(group: GroupTask) -> type[KeyedRun | LinesRun | OrderedRun | RelayRun]:
    if group.keyed:
        return KeyedRun
    if group.gathers:
        return LinesRun
    return OrderedRun if group.graph.nodes else RelayRun
