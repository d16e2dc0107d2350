"""What goes into the next batch: parts of sources, written down before a task reads them.

What any process can read is admitted as ranges. What only the driver can read (lists, sockets, closures) is spooled to
the checkpoint first. So a batch that runs again reads the same tuples.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.clock import Clock
from penstock.connectors.reached import Progress, Reached, check, read, resume
from penstock.connectors.source import Chunk, Source, Split
from penstock.elasticity.learning import RunningRatio
from penstock.engines.durable.admitted import admitted_name, unprocessed
from penstock.engines.durable.checkpoint import SPOOL, Checkpoint
from penstock.engines.durable.steps import reached
from penstock.engines.spark.pickling import dumps
from penstock.engines.spark.stages import Descriptor
from penstock.errors import SourceError
from penstock.flow.nodes import Graph, Loops, Node, Reads
from penstock.runtime.context import LoopContext
from penstock.runtime.loop import DriverLoop
from penstock.state.files import Files

_LEAST_PART = 8192
_LEAST_ROWS = 16_384
_LEAST_BYTES = 1 << 20
"""Parts that are not worth a task's while are smaller than these, however much is known of what they cost."""
_LEAST_PART_SECONDS = 0.02
"""Less work than this is not worth one either."""
_BATCH_FORGETS = 1.0
"""A batch counts as much for what a position costs as a second does elsewhere, however long it was."""
_FIRST_ROWS = 256
_FIRST_BYTES = 1 << 16
"""As long as their cost is not known, parts are not smaller than these."""


@dataclass(frozen=True)
class BatchLimits:
    """How much of each source goes into one batch, at the most."""

    rows: int = 1_000_000
    bytes: int = 128 << 20
    seconds: float = 0.2
    """How long the driver reads for one batch."""


@dataclass(frozen=True)
class Admitted:
    """What one batch reads."""

    number: int
    tasks: tuple[tuple[Descriptor, ...], ...]
    """The parts that each task of the first stage reads."""
    offsets: Mapping[str, Any]
    """How far each source has been read after it, as `Reached` in JSON."""
    closes: bool

    after: str = ""
    """The lineage of the batch before."""
    only_here: tuple[str, ...] = ()
    """The sources of which some tuples are nowhere but in the spool, because they can't be read again."""

    @property
    def files(self) -> list[str]:
        """What is not needed any more when the batch is done."""
        spooled = [part.spool[0] for task in self.tasks for part in task if part.spool is not None]
        return [admitted_name(self.number), *spooled]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Admitted:
        tasks = tuple(tuple(map(Descriptor.from_json, task)) for task in fields["tasks"])
        return cls(**{**fields, "tasks": tasks, "only_here": tuple(fields["only_here"])})


class Admission:
    """The sources of one run, and the log of what was admitted."""

    def __init__(self, graph: Graph, checkpoint: Checkpoint, clock: Clock, limits: BatchLimits, closes: bool) -> None:
        self.limits = limits
        self._checkpoint = checkpoint
        self._closes = closes
        self.is_closed = False
        found = unprocessed(checkpoint)
        left = None if found is None else Admitted.from_json(found)
        self.next = None if left is None else replace(left, closes=False)
        """What was admitted and is not processed yet."""
        offsets = checkpoint.offsets if left is None else left.offsets
        self._cursors = [
            _cursor(node, Reached.from_json(offsets.get(node.name, {})), checkpoint.files, clock, closes)
            for node in graph.sources
        ]

    def take(self) -> Admitted:
        """What is to be processed next: it must have been admitted."""
        assert self.next is not None
        admitted, self.next = self.next, None
        return admitted

    @property
    def has_ended(self) -> bool:
        return self.is_closed or all(cursor.has_ended for cursor in self._cursors)

    def set_rows(self, rows: int) -> None:
        """From the next batch on, read at most so many of each source."""
        self.limits = replace(self.limits, rows=rows)

    def offered(self, now: float) -> float | None:
        """How many tuples have come to all sources; `None` where some can be read as fast as one likes."""
        counts = [cursor.offered(now) for cursor in self._cursors]
        return None if not counts or None in counts else sum(count for count in counts if count is not None)

    def left(self) -> dict[str, int]:
        """How much of each source waits, where that is known."""
        return {cursor.name: left for cursor in self._cursors if (left := cursor.left()) is not None}

    def spent(self, seconds: Mapping[str, float]) -> None:
        """A batch is over, and the tasks that read these sources have worked for so long on what it took of them."""
        for cursor in self._cursors:
            cursor.spent(seconds.get(cursor.name, 0.0))

    def stop(self, sources: Collection[str] | None = None) -> None:
        """Nothing more is to be read, from these sources or from all."""
        for cursor in self._cursors:
            if sources is None or cursor.name in sources:
                cursor.end()

    def admit(self, tasks: Mapping[str, int], ahead: Collection[str] = ()) -> Admitted | None:
        """Write down the next batch, if there is anything for it, for so many tasks to read each source.

        Sources that are `ahead` have to wait, as long as there are others.
        """
        if self.is_closed:
            return None
        latest, number = self._checkpoint.latest, self._checkpoint.next_batch
        groups: list[tuple[Descriptor, ...]] = []
        others = any(not cursor.has_ended and cursor.name not in ahead for cursor in self._cursors)
        for cursor in self._cursors:
            if others and cursor.name in ahead:
                continue
            parts = cursor.take(number, tasks[cursor.name], self.limits)
            groups += [tuple(share) for share in _shares(parts, tasks[cursor.name])]
        closes = self.has_ended and self._closes
        if not groups and not closes:
            return None
        offsets = {cursor.name: cursor.progress.reached().to_json() for cursor in self._cursors}
        read = {part.operator for task in groups for part in task}
        only_here = tuple(cursor.name for cursor in self._cursors if not cursor.is_replayable and cursor.name in read)
        after = "" if latest is None else latest.lineage
        self.next = Admitted(number, tuple(groups), offsets, closes, after, only_here)
        self._checkpoint.files.seal(admitted_name(number), self.next.to_json())
        reached("admitted")
        self.is_closed = closes
        return self.next

    def leave(self) -> None:
        for cursor in self._cursors:
            cursor.leave()


def _shares(parts: list[Descriptor], tasks: int) -> Iterator[list[Descriptor]]:
    """Consecutive parts for each task, about equally many."""
    size = max(1, math.ceil(len(parts) / tasks))
    for start in range(0, len(parts), size):
        yield parts[start : start + size]


class _SourceCursor:
    """One source: how far it is admitted, and what is left of it."""

    is_replayable = True

    def __init__(self, name: str, progress: Progress) -> None:
        self.name = name
        self.progress = progress
        self.has_ended = False
        self._cost = RunningRatio()
        """Seconds of work for a position."""
        self._in_batch = 0
        """How many positions the last batch took; 0 where some are not known."""

    def spent(self, seconds: float) -> None:
        """So long have tasks worked on what the last batch took."""
        self._cost.add(seconds, self._in_batch, _BATCH_FORGETS)

    def _worth_a_task(self, first: int, most: int) -> int:
        """So many positions at least are worth a task: by what they cost, if that is known."""
        if not self._cost.value:
            return min(first, most)
        return max(1, min(most, math.ceil(_LEAST_PART_SECONDS / self._cost.value)))

    def end(self) -> None:
        """Nothing more is to be read of it."""
        self.has_ended = True

    def offered(self, now: float) -> float | None:
        """How many tuples have come, read or not, where that is known."""
        return None

    def take(self, batch: int, tasks: int, limits: BatchLimits) -> list[Descriptor]:
        """The parts of the next batch, about as many as there are tasks for them."""
        raise NotImplementedError

    def left(self) -> int | None:
        """How much waits to be read, in the unit of its positions."""
        return None

    def leave(self) -> None:
        """Close what is open."""


def _cursor(node: Node, reached: Reached, files: Files, clock: Clock, closes: bool) -> _SourceCursor:
    if isinstance(node.kind, Loops):
        return _SpoolCursor(node.name, Progress(None, reached), _loop_chunks(node, reached), files, clock)
    assert isinstance(node.kind, Reads)
    source = node.kind.source
    progress = Progress(source, reached)
    left = list(resume(source, reached, closes))
    if source.reads_anywhere:
        return _RangeCursor(node.name, source, left, progress)
    chunks = read(source, left, lambda split: source.read(split, clock))
    return _SpoolCursor(node.name, progress, chunks, files, clock, source)


class _RangeCursor(_SourceCursor):
    """A source that tasks read by themselves."""

    def __init__(self, name: str, source: Source, left: list[Split], progress: Progress) -> None:
        super().__init__(name, progress)
        self._source = source
        self._left = left
        self.has_ended = not self._left

    def take(self, batch: int, tasks: int, limits: BatchLimits) -> list[Descriptor]:
        room = most = limits.rows if self._source.counts_rows else limits.bytes
        size = self._part_size(most, tasks)
        parts: list[Descriptor] = []
        while self._left and room > 0 and not self.has_ended:
            split = self._left.pop(0)
            check(self._source, split)
            end = self._cut(split, min(size, room))
            if end is not None and (split.end is None or end < split.end):
                self._left.insert(0, replace(split, start=end))
            else:
                end = split.end
            part = Descriptor(self.name, len(parts), split.partition, split.start, end)
            self.progress.advance(split.partition, part.reached)
            parts.append(replace(part, identity=self.progress.identity(split.partition)))
            room -= (_size(split.partition, most) if end is None else end) - split.start
        self.has_ended = self.has_ended or not self._left
        ends = [part.end for part in parts]
        self._in_batch = 0 if None in ends else sum(part.reached - part.start for part in parts)
        return parts

    def left(self) -> int | None:
        known = [split.end - split.start for split in self._left if split.end is not None]
        return sum(known) if len(known) == len(self._left) else None

    def _part_size(self, most: int, tasks: int) -> int:
        """So that every task has something to do, but not so little that it is not worth a part."""
        counts_rows = self._source.counts_rows
        worth = self._worth_a_task(
            _FIRST_ROWS if counts_rows else _FIRST_BYTES, _LEAST_ROWS if counts_rows else _LEAST_BYTES
        )
        least = min(most, worth)
        total = sum(most if split.end is None else split.end - split.start for split in self._left)
        return max(1, min(least, most // tasks), -(-min(total, most) // tasks))

    def _cut(self, split: Split, size: int) -> int | None:
        if split.end is not None and split.end - split.start <= size:
            return None
        return self._source.cut(split, split.start + size)


def _size(partition: str, most: int) -> int:
    """How much a partition of unknown length is worth: as many bytes as the file has."""
    return os.path.getsize(partition) if os.path.isfile(partition) else most


Positioned = tuple[str, Chunk]


def _loop_chunks(node: Node, reached: Reached) -> Iterator[Positioned]:
    """What a driver loop without inputs emits, a tuple at a time; a later run skips what was admitted before.

    Where it has several outputs, each value comes with the number of its output.
    """
    assert isinstance(node.kind, Loops)
    emitted: list[Any] = []
    has_one = node.outputs == 1
    context = LoopContext(
        node.name, 0, 0, lambda port, value: emitted.append(value if has_one else (port, value)), node.outputs
    )
    loop = DriverLoop(node.name, node.kind.operator, context)
    count = 0
    while not loop.is_done:
        loop.resume()
        count += len(emitted)
        if count > reached.positions.get("loop", 0):
            yield "loop", Chunk(list(emitted), count)
        emitted.clear()


class _SpoolCursor(_SourceCursor):
    """A source that only the driver can read: its values go to the checkpoint."""

    def __init__(
        self,
        name: str,
        progress: Progress,
        chunks: Iterator[Positioned],
        files: Files,
        clock: Clock,
        source: Source | None = None,
    ) -> None:
        super().__init__(name, progress)
        self._chunks = chunks
        self._files = files
        self._clock = clock
        self._source = source
        self.is_replayable = source is None or source.replayable
        self._counts_rows = source is None or source.counts_rows
        self._taken = 0
        self._rest: Positioned | None = None
        """The end of a chunk that did not fit into the last batch."""

    def offered(self, now: float) -> float | None:
        offered = None if self._source is None else self._source.offered(now)
        return self._taken if offered is not None and self.has_ended else offered

    def take(self, batch: int, tasks: int, limits: BatchLimits) -> list[Descriptor]:
        least = max(1, min(self._worth_a_task(_FIRST_ROWS, _LEAST_PART), limits.rows // tasks))
        values = self._read(limits)
        self._in_batch = len(values)
        return spooled(self.name, batch, values, tasks, self._files, least)

    def _read(self, limits: BatchLimits) -> list[Any]:
        """Up to a batch's worth of values, or what has come within a moment; the offset is never beyond them."""
        values: list[Any] = []
        until = self._clock.now() + limits.seconds
        while not self.has_ended and (room := limits.rows - len(values)) > 0:
            found, self._rest = self._rest or next(self._chunks, None), None
            if found is None:
                self.has_ended = True
                break
            partition, chunk = found
            taken, left = chunk.values[:room], chunk.values[room:]
            if left and not self._counts_rows:  # only its reader knows the positions inside a chunk
                taken, left = chunk.values, ()
            if left:
                self._rest = partition, Chunk(left, chunk.end)
            values += taken
            self.progress.advance(partition, chunk.end - len(left))
            if not chunk.values or self._clock.now() > until:
                break
        self._taken += len(values)
        return values

    def leave(self) -> None:
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()


def spooled(
    source: str, batch: int, values: list[Any], tasks: int, files: Files, least: int = _LEAST_PART
) -> list[Descriptor]:
    """Write values to the checkpoint, in parts that tasks can read."""
    size = max(least, -(-len(values) // tasks))
    parts = []
    for number, start in enumerate(range(0, len(values), size)):
        share = values[start : start + size]
        blob = files.keep(f"{SPOOL}/{batch:010d}-", _pickled(source, share))
        parts.append(Descriptor(source, number, source, 0, len(share), (blob.file, blob.digest)))
    return parts


def _pickled(source: str, values: list[Any]) -> bytes:
    try:
        return dumps(values)
    except Exception as error:
        raise SourceError(
            f"source {source!r}: its values can't be pickled ({error}), so they can't be sent to Spark's tasks; "
            "read plain values and make the rest in an operator"
        ) from error
