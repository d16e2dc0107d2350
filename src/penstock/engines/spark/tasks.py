"""The only code that runs in Spark's tasks: a level's share of a batch, from rows to rows."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.clock import SystemClock
from penstock.connectors.source import Chunk, Source, Split
from penstock.engines.spark import wire
from penstock.engines.spark.columns import column_hashes, key_hashes
from penstock.engines.spark.keyed import KeyedChain
from penstock.engines.spark.loops import LoopStep
from penstock.engines.spark.marks import Marker, share_of
from penstock.engines.spark.outlets import FileStage, LineWriter, ValueStage, joined
from penstock.engines.spark.pickling import dumps
from penstock.engines.spark.stages import Descriptor, Exit, GroupTask, Level, LevelBatch, Staged, TaskReport, batch_file
from penstock.engines.spark.timed import TimedStep
from penstock.errors import SourceError
from penstock.flow.nodes import Loops, PortRef, Waits, Writes
from penstock.ordering.keys import key_hash
from penstock.plan.groups import Spread
from penstock.runtime.inlets import Outlet
from penstock.runtime.quiescence import Part
from penstock.schema import rows_of_table
from penstock.state import pickles
from penstock.state.buckets import Place, TaskStates
from penstock.state.files import Files

_SIDE_BITS = 45  # above the numbers of slices: the inputs of an operator come one after the other


def run_level(
    level_pickle: bytes,
    batch: int,
    partition: int,
    arriving: Iterator[pa.RecordBatch],
    spent: Callable[[dict[str, float]], None],
) -> Iterator[pa.RecordBatch]:
    """A level's work on one partition; `spent` is told the busy seconds of its operators."""
    # A slice of rows is a hundred thousand objects without a cycle: looking for one at every 700 costs a tenth.
    gc.set_threshold(100_000, 20, 20)
    pickles.dumps = dumps
    level: Level = pickle.loads(level_pickle)
    told: LevelBatch = pickle.loads(Files(level.root).read(batch_file(level.number, batch)))
    return wire.batches(_LevelTask(level, told, partition, spent).rows(arriving))


class _LevelTask:
    def __init__(
        self, level: Level, batch: LevelBatch, partition: int, spent: Callable[[dict[str, float]], None]
    ) -> None:
        self._level = level
        self._batch = batch
        self._spent = spent
        self._partition = partition
        self._passing: list[wire.Row] = []

    def rows(self, arriving: Iterator[pa.RecordBatch]) -> Iterator[wire.Row]:
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
                    yield from self._run(_SplitsTask(self._about(group), mine))
            return
        own = self._own(wire.rows_of(arriving))
        group_here = level.group_of(self._partition)
        if group_here is not None:
            made = _KeysTask if group_here.keyed else _LinesTask if group_here.gathers else _OrderedTask
            yield from self._run(made(self._about(group_here), wire.slices_of(own)))
        for _ in own:
            pass  # a failed task has not read everything, and what passes must pass
        yield from self._passed()

    def _about(self, group: GroupTask) -> _About:
        return _About(self._level, self._batch, group, self._partition)

    def _run(self, task: _GroupRun) -> Iterator[wire.Row]:
        try:
            for row in task.rows():
                yield self._routed(row)
                yield from self._passed()
            report = task.report()
            # Not in the report: it differs between attempts, and Spark compares what they send.
            self._spent(task.busy_seconds())
        except Exception as error:
            report = task.failed(error)
        finally:
            task.leave()
        yield self._routed(wire.Row(self._level.levels, 0, 0, 0, wire.REPORT, pickle.dumps(report)))

    def _own(self, rows: Iterable[wire.Row]) -> Iterator[wire.Row]:
        for row in rows:
            if row.level == self._level.number:
                yield row
            else:
                self._passing.append(row)

    def _passed(self) -> Iterator[wire.Row]:
        passing, self._passing = self._passing, []
        return map(self._routed, passing)

    def _routed(self, row: wire.Row) -> wire.Row:
        """A row on its way past the next level goes through whichever partition it happens to meet there."""
        is_next = row.level == self._level.number + 1
        target = row.final if is_next else (row.final + row.place) % max(1, self._level.next_partitions)
        return row if row.target == target else replace(row, target=target)


class _About(NamedTuple):
    """What a task is: where it stands, and in which batch."""

    level: Level
    batch: LevelBatch
    group: GroupTask
    partition: int


class _GroupRun:
    """One group's share: slices in, slices out."""

    def __init__(self, about: _About) -> None:
        self.level, self.batch, self.group, self.partition = about
        level, group = self.level, self.group
        self.files = Files(level.root)
        self.states = TaskStates(self.files, level.query, self.batch.chains)
        self.staged: list[Staged] = []
        self.place = (0, 0)
        """The slice and the position at which it fails, if it fails."""
        exits = [*group.exits, *(exit for exits in group.straight.values() for exit in exits)]
        self._doors = {exit.edge: _Door(exit, level) for exit in exits}

    def rows(self) -> Iterator[wire.Row]:
        raise NotImplementedError

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        raise NotImplementedError

    def busy_seconds(self) -> dict[str, float]:
        raise NotImplementedError

    def completed(self) -> frozenset[str]:
        """Operators that are through for good: only what runs in one task can be."""
        return frozenset()

    def leave(self) -> None:
        """Whatever has happened: end."""

    def report(self) -> TaskReport:
        chains = self.states.commit()
        return TaskReport(
            self.level.number, self.partition, self.counts(), chains, tuple(self.staged), self.completed()
        )

    def failed(self, error: Exception) -> TaskReport:
        self.states.abandon()
        return TaskReport(self.level.number, self.partition, {}, {}, (), error=portable(error), error_place=self.place)

    def sent(self, exit: Exit, part: wire.Slice) -> Iterator[wire.Row]:
        if len(part.values):
            yield from self._doors[exit.edge].rows(part)

    def stage(self, sink: str, number: int, data: bytes, rows: int) -> None:
        """Write some output of a sink to a file that only the manifest makes part of the result."""
        file = f"outputs/{self.batch.number:010d}/{hashlib.sha256(data).hexdigest()}"
        self.files.write(file, data)
        self.staged.append(Staged(sink, number, file, rows))


class _Door:
    """Where an edge leaves a task: finds the target task of every tuple."""

    def __init__(self, exit: Exit, level: Level) -> None:
        self._exit = exit
        self._buckets = level.buckets

    def rows(self, part: wire.Slice) -> Iterator[wire.Row]:
        exit = self._exit
        if exit.marker is not None:
            yield from self._with_marks(part, exit.marker)
        elif exit.spread is Spread.KEYS and exit.tasks > 1:
            yield from self._by_key(part)
        else:
            task = _mixed(part.number) % exit.tasks if exit.spread is Spread.SLICES else 0
            yield self._row(part.number, task, wire.packed(part.values, part.positions))

    def _by_key(self, part: wire.Slice) -> Iterator[wire.Row]:
        targets = self._targets(part.values)
        columns = part.column()
        for task in range(self._exit.tasks):
            places = np.flatnonzero(targets == task)
            if len(places):
                chosen = part.values if len(places) == len(part.values) else _chosen(part.values, places)
                yield self._row(part.number, task, wire.packed(chosen, tuple(column[places] for column in columns)))

    def _with_marks(self, part: wire.Slice, marker: Marker) -> Iterator[wire.Row]:
        """To every task, even if it gets no tuple."""
        rows = rows_of_table(part.values) if isinstance(part.values, pa.Table) else part.values
        marks = marker.marks(rows)
        targets = self._targets(part.values)
        (column,) = part.column()
        for task in range(self._exit.tasks):
            places = np.flatnonzero(targets == task)
            payload = wire.packed(_chosen(part.values, places), (column[places],), share_of(marks, places))
            yield self._row(part.number, task, payload)

    def _targets(self, values: wire.Values) -> Any:
        """The task of each tuple; what has no key goes to the first, whose operator fails on it."""
        key = self._exit.key
        assert key is not None
        hashes = None
        if isinstance(values, pa.Table):
            hashes = column_hashes(values, key.columns)
            values = values if hashes is not None else rows_of_table(values)
        if hashes is None:
            try:
                hashes = key_hashes(list(map(key.fn, values)))
            except Exception:
                hashes = np.array([_hash_or_none(key.fn, value) for value in values], dtype=np.int64)
        return hashes % self._buckets * self._exit.tasks // self._buckets

    def _row(self, number: int, task: int, payload: bytes) -> wire.Row:
        exit = self._exit
        final = exit.first + task
        place = number if exit.spread is Spread.SLICES else wire.place_of(exit.rank, number)
        return wire.Row(exit.level, final, final, place, exit.edge, payload)


def _hash_or_none(key: Callable[[Any], Any], value: Any) -> int:
    try:
        return key_hash(key(value))
    except Exception:
        return 0


def _chosen(values: wire.Values, places: Any) -> wire.Values:
    return values.take(places) if isinstance(values, pa.Table) else [values[place] for place in places.tolist()]


def _mixed(number: int) -> int:
    """Neighbouring slices of one split, and the first slices of all splits, go to different tasks."""
    return (number >> 24) + (number & 0xFFFFFF)


class _PartRun(_GroupRun):
    """A group that runs on the runtime, between inlets and outlets."""

    def __init__(self, about: _About) -> None:
        super().__init__(about)
        graph = self.group.graph
        self.part = Part(graph)
        sinks = {node.name: node.kind.sink for node in graph.nodes if isinstance(node.kind, Writes)}
        self._outlets = {name: sink for name, sink in sinks.items() if isinstance(sink, Outlet)}
        self._stages = {name: sink for name, sink in sinks.items() if isinstance(sink, FileStage | ValueStage)}

    def feed(self, inlet: str, number: int, values: Sequence[Any], all_readable: bool = True) -> None:
        """Let in what belongs to the slice of that number."""
        self.place = (number, 0)
        self.part.feed(inlet, Chunk(values, 0, all_readable=all_readable))

    def fed(self, inlet: str, number: int, values: Sequence[Any]) -> Iterator[wire.Row]:
        """Let a slice in, and send what comes out as a slice of that number."""
        self.feed(inlet, number, values)
        yield from self.out(number)

    def out(self, number: int) -> Iterator[wire.Row]:
        if self.part.failure is not None:
            raise self.part.failure
        for exit in self.group.exits:
            yield from self.sent(exit, wire.Slice(number, self._outlets[exit.outlet].take()))
        for name, stage in self._stages.items():
            data, rows = stage.take()
            if rows:
                self.stage(name, number, data, rows)

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {
            name: (counts.received, counts.emitted, counts.failed, counts.late)
            for name, counts in self.part.counts().items()
        }

    def busy_seconds(self) -> dict[str, float]:
        return {name: counts.busy_seconds for name, counts in self.part.counts().items()}

    def leave(self) -> None:
        with suppress(Exception):  # it has been reported
            self.part.leave()


class _SplitsTask(_PartRun):
    """Reads parts of a source."""

    def __init__(self, about: _About, descriptors: list[Descriptor]) -> None:
        super().__init__(about)
        self._descriptors = descriptors
        self._passed_on: Counter[str] = Counter()
        """How many tuples of a source went elsewhere, unseen."""

    def rows(self) -> Iterator[wire.Row]:
        for descriptor in self._descriptors:
            if self.group.straight[descriptor.operator]:
                yield from self._in_columns(descriptor)
            else:
                yield from self._in_rows(descriptor)

    def _in_columns(self, descriptor: Descriptor) -> Iterator[wire.Row]:
        source = descriptor.operator
        is_read = PortRef(source) in self.group.graph.readers
        for number, table in enumerate(self._tables(descriptor), descriptor.number << 24):
            for exit in self.group.straight[source]:
                yield from self.sent(exit, wire.Slice(number, table))
            if is_read:
                yield from self.fed(source, number, rows_of_table(table))
            else:
                self._passed_on[source] += len(table)

    def _in_rows(self, descriptor: Descriptor) -> Iterator[wire.Row]:
        """A slice is fed as it is read, piece by piece, while its values are in the processor's cache."""
        number, room = descriptor.number << 24, wire.ROWS_PER_SLICE
        for chunk in self._chunks(descriptor):
            values = chunk.values
            while len(values):
                piece, values = values[:room], values[room:]
                self.feed(descriptor.operator, number, piece, chunk.all_readable)
                room -= len(piece)
                if not room:
                    yield from self.out(number)
                    number, room = number + 1, wire.ROWS_PER_SLICE
        if room < wire.ROWS_PER_SLICE:
            yield from self.out(number)

    def _tables(self, descriptor: Descriptor) -> Iterator[pa.Table]:
        _check_version(descriptor)
        source, split = self._source(descriptor)
        waiting: list[pa.Table] = []
        for table in source.tables(split):
            while room := wire.ROWS_PER_SLICE - sum(map(len, waiting)):
                waiting.append(table.slice(0, room))
                table = table.slice(room)
                if not table:
                    break
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    def _chunks(self, descriptor: Descriptor) -> Iterator[Chunk]:
        if descriptor.spool is not None:
            return iter([Chunk(pickle.loads(self.files.read(descriptor.spool)), 0)])
        _check_version(descriptor)
        source, split = self._source(descriptor)
        return source.read(split, SystemClock())

    def _source(self, descriptor: Descriptor) -> tuple[Source, Split]:
        split = Split(descriptor.partition, descriptor.start, descriptor.end)
        return self.group.sources[descriptor.operator], split

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        counts = super().counts()
        for source, rows in self._passed_on.items():
            counts[source] = (rows, rows, 0, 0)
        return counts


def version_of(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _check_version(descriptor: Descriptor) -> None:
    if descriptor.version is None:
        return
    try:
        now = version_of(descriptor.partition)
    except OSError:
        raise SourceError(f"{descriptor.partition}: the file is gone; it was there when the run began") from None
    if now != descriptor.version:
        raise SourceError(
            f"{descriptor.partition}: the file has changed since it was admitted, so a retry could not give the same "
            "tuples; write new data to new files"
        )


class _OrderedTask(_PartRun):
    """Works on whole slices, in their order; the only task of its group keeps the operators' state."""

    def __init__(self, about: _About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        self._slices = slices
        self._is_one = self.group.spread is Spread.ONE
        self._places = {node.name: Place(node.name, 0) for node in self.group.graph.nodes}

    def completed(self) -> frozenset[str]:
        return frozenset(self.part.completed()) if self._is_one else frozenset()

    def rows(self) -> Iterator[wire.Row]:
        if self._is_one:
            kept = {name: self.states.get(place, None, None) for name, place in self._places.items()}
            self.part.restore({name: state for name, state in kept.items() if state is not None})
        count = 0
        for edge, part in self._slices:
            number = count if self._is_one else part.number
            yield from self.fed(self.group.inlets[edge], number, part.values)
            count += 1
        if self.batch.closes:
            self.part.close()
            yield from self.out(count if self._is_one else 1 << 49)
        elif self._is_one:
            self.part.settle()
            yield from self.out(count)
            for name, snapshot in self.part.snapshots().items():
                self.states.change(self._places[name], {None: snapshot})


class _KeysTask(_GroupRun):
    """Works on the tuples of its keys, slice by slice; the tuples keep their positions."""

    def __init__(self, about: _About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        level, group = self.level, self.group
        self._step = self._made_step()
        self._clock = SystemClock()
        self._busy_seconds = 0.0
        self._writers = {exit.edge: LineWriter(level.flow, exit.writes) for exit in group.exits if exit.writes}
        self._slices = slices

    def _made_step(self) -> KeyedChain | TimedStep | LoopStep:
        level, (node, *_) = self.level, self.group.keyed
        match node.kind:
            case Waits():
                return TimedStep(level.flow, node, self.states, level.buckets, self._is_mine)
            case Loops():
                return LoopStep(level.flow, node, self.states, level.buckets, self._is_mine)
        return KeyedChain(level.flow, self.group.keyed, self.states, level.buckets, self._is_mine)

    def _is_mine(self, bucket: int) -> bool:
        return bucket * self.group.tasks // self.level.buckets == self.partition - self.group.first

    def rows(self) -> Iterator[wire.Row]:
        for edge, part in self._slices:
            side = self.group.sides[edge]
            part = replace(part, number=part.number | side << _SIDE_BITS)
            began = self._clock.now()
            try:
                outputs = self._step.run(part, side)
            except Exception:
                self.place = (part.number, self._step.failed_at)
                raise
            self._busy_seconds += self._clock.now() - began
            yield from self._out(outputs)
        if self.batch.closes:
            yield from self._out(self._step.close())
        else:
            self._step.keep()

    def _out(self, outputs: Mapping[str, wire.Slice]) -> Iterator[wire.Row]:
        for exit in self.group.exits:
            if exit.outlet in outputs:
                out = outputs[exit.outlet]
                if exit.writes is not None:
                    out = self._written(self._writers[exit.edge], out)
                yield from self.sent(exit, out)

    def _written(self, writer: LineWriter, part: wire.Slice) -> wire.Slice:
        try:
            return writer.written(part)
        except Exception:
            self.place = (part.number, writer.failed_at)
            raise

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        rejected = {writer.operator: (writer.failed, 0, writer.failed, 0) for writer in self._writers.values()}
        return {**self._step.counts(), **rejected}

    def busy_seconds(self) -> dict[str, float]:
        shares = self._step.shares()
        return {
            **{name: self._busy_seconds * share for name, share in shares.items()},
            **{writer.operator: writer.busy_seconds for writer in self._writers.values()},
        }


class _LinesTask(_GroupRun):
    """Puts written lines in order."""

    def __init__(self, about: _About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        assert self.group.gathers is not None
        self._operator = self.group.gathers.name
        self._slices = slices
        self._rows = 0

    def rows(self) -> Iterator[wire.Row]:
        for _, part in self._slices:
            self._rows += len(part.values)
            self.stage(self._operator, part.number, joined(part.values), len(part.values))
        yield from ()

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._operator: (self._rows, 0, 0, 0)}

    def busy_seconds(self) -> dict[str, float]:
        return {}


def portable(error: Exception) -> bytes:
    """An exception as bytes, with its cause and the text of its traceback; or what can be told of it."""
    from pyspark import cloudpickle

    cause = error.__cause__
    told = cause if cause is not None else error
    text = "".join(traceback.format_exception(type(told), told, told.__traceback__))
    try:
        data: bytes = cloudpickle.dumps((error, cause, text))
        pickle.loads(data)
    except Exception:
        data = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None, text))
    return data
