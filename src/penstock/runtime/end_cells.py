"""Cells at the ends of a flow: sources and sinks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.connectors.reached import Progress, Reached, check, read, resume
from penstock.connectors.source import Chunk, Split, Unreadable
from penstock.flow.nodes import Node, Reads, Writes
from penstock.runtime.cells import Cell
from penstock.runtime.flight import chunks_within
from penstock.runtime.own_thread import open_on_one_thread
from penstock.runtime.ports import Port, Taken

if TYPE_CHECKING:
    from penstock.runtime.run import Run


_CHUNKS_AHEAD = 64


class SourceCell(Cell):
    """Reads a source, chunk by chunk; where nothing has come, a timer looks again."""

    def __init__(self, run: Run, place: float, node: Node) -> None:
        super().__init__(run, place, [node], [])
        assert isinstance(node.kind, Reads)
        self._source = node.kind.source
        self._has_ended = False
        self._reached = Reached()
        self._progress = Progress(self._source)
        self._began_at: dict[str, int] = {}

    def open(self) -> None:
        splits = list(resume(self._source, self._reached, self.run.settings.closes_at_end))
        first = {split.partition: split.start for split in reversed(splits)}
        self._began_at = {**self._reached.positions, **first}
        self._chunks = read(self._source, splits, self._chunks_of)

    def _chunks_of(self, split: Split) -> Iterator[Chunk]:
        source, clock, flight = self._source, self.run.clock, self.run.flight
        if flight is None:
            return source.read(split, clock)
        return chunks_within(source, split, clock, lambda: flight.most_of(self))

    def rows_passed(self) -> int | None:
        """How many tuples lie between where it began and where it is now; `None` where positions are no tuples."""
        if not self._source.counts_rows:
            return None
        positions = self._progress.positions
        return sum(reached - self._began_at.get(partition, 0) for partition, reached in positions.items())

    def offsets(self) -> dict[str, Any]:
        return {self.name: self._progress.reached().to_json()}

    def restore_offsets(self, offsets: Mapping[str, Any]) -> None:
        self._reached = Reached.from_json(offsets.get(self.name, {}))
        self._progress = Progress(self._source, self._reached)

    def offered(self) -> float | None:
        """How many tuples have come to it, read or not, where that is known."""
        offered = self._source.offered(self.run.clock.now())
        return self.counters[self.name].received if offered is not None and self._has_ended else offered

    def take(self) -> bool:
        if self.run.is_stopping:
            self.is_over = self.is_over or self.run.settings.closes_at_end
            self._has_ended = True
        is_idle = self.is_over or self._has_ended or self.is_waiting
        return not (is_idle or self.run.is_failing or self.run.is_pausing)

    def process(self) -> None:
        (node,) = self.nodes
        partition, chunk = next(self._chunks, ("", None))
        now = self.run.clock.now()
        if chunk is None:
            self._has_ended = True
            self.is_over = self.is_over or self.run.settings.closes_at_end
        elif not chunk.values:
            self.run.timers.call_at(now + chunk.idle_seconds, self)
            self.is_waiting = True
            self.run.pause_if_due()
        else:
            self._read(node, partition, chunk, now)

    def _read(self, node: Node, partition: str, chunk: Chunk, now: float) -> None:
        self._progress.advance(partition, chunk.end)
        self._send(node, chunk, now if chunk.came is None else chunk.came)
        self.run.pause_if_due()

    def _send(self, node: Node, chunk: Chunk, born: float) -> None:
        # A copy, for its reader may fill the same list again; those that promise something never do.
        values = chunk.values if chunk.all_readable and isinstance(chunk.values, list) else list(chunk.values)
        counters = self.counters[node.name]
        counters.received += len(values)
        if chunk.all_readable or Unreadable not in map(type, values):
            counters.emitted += len(values)
            self.give(0, values, born)
            return
        good: list[Any] = []
        try:
            for value in values:
                if isinstance(value, Unreadable):
                    self.failed(node, value.raw, value.error, born)
                else:
                    good.append(value)
        finally:
            counters.emitted += len(good)
            self.give(0, good, born)

    def leave(self, has_failed: bool) -> None:
        if hasattr(self, "_chunks"):
            self._chunks.close()


class AsyncSourceCell(SourceCell):
    """A source that awaits what it reads: the event loop fills a small buffer and waits while it is full."""

    def open(self) -> None:
        self._began_at = dict(self._reached.positions)
        self._buffer: deque[tuple[str, Chunk] | BaseException | None] = deque()
        self._has_room = asyncio.Event()
        self._pump = self.run.event_loop.submit(self._fill())

    @property
    def waits_for_outside(self) -> bool:
        return not self._has_ended

    def take(self) -> bool:
        return super().take() and bool(self._buffer)

    def process(self) -> None:
        (node,) = self.nodes
        found = self._buffer.popleft()
        self.run.event_loop.call(self._has_room.set)
        if isinstance(found, BaseException):
            self._has_ended = True
            raise self.crashed(found)
        if not isinstance(found, tuple):
            self._has_ended = True
            self.is_over = self.is_over or self.run.settings.closes_at_end
            return
        self._read(node, *found, self.run.clock.now())

    async def _fill(self) -> None:
        last: BaseException | None = None
        try:
            for split in resume(self._source, self._reached, self.run.settings.closes_at_end):
                check(self._source, split)
                async for chunk in self._source.read_async(split):
                    self._buffer.append((split.partition, chunk))
                    self.notify()
                    while len(self._buffer) >= _CHUNKS_AHEAD:
                        self._has_room.clear()
                        await self._has_room.wait()
        except BaseException as error:
            last = error
        self._buffer.append(last)
        self.notify()

    def leave(self, has_failed: bool) -> None:
        if hasattr(self, "_pump"):
            self._pump.cancel()


class SinkCell(Cell):
    """Writes to a sink, and notes how long its tuples were under way."""

    def __init__(self, run: Run, place: float, node: Node, port: Port) -> None:
        super().__init__(run, place, [node], [port])
        assert isinstance(node.kind, Writes)
        self._sink = node.kind.sink
        self._port = port
        self._values: list[Any] = []
        self._born = 0.0
        self.written = 0
        """Tuples that its sink has taken."""

    def open(self) -> None:
        self._writer = open_on_one_thread(self._sink)

    def take(self) -> bool:
        closed = self._port.closed
        self._values, self._born = self._port.take(self.budget(len(self._port)))
        if closed and not self._values:
            self.is_over = True
        return bool(self._values)

    def process(self) -> None:
        (node,) = self.nodes
        counters = self.counters[node.name]
        values, self._values = self._values, []
        self.processed = len(values)
        counters.received += len(values)
        rest = values
        while rest and (rejected := self._writer.write(self._lent(rest))):
            self.written += rejected.position
            self.failed(node, rest[rejected.position], rejected.error, self._born)
            rest = rest[rejected.position + 1 :]
        self.written += len(rest)
        now = self.run.clock.now()
        self.run.on_latency(now - self._born)
        if isinstance(self._born, Taken):
            self.run.on_processing(now - self._born.taken)

    def _lent(self, values: list[Any]) -> list[Any]:
        """A user's sink may empty the list that it is given, and other readers of the stream have the same one."""
        return values if self._sink.any_thread else list(values)

    def leave(self, has_failed: bool) -> None:
        if not hasattr(self, "_writer"):
            return
        if not self.run.ending.adds_up:
            self._writer.discard()
        elif has_failed:
            self._writer.abandon()
        else:
            self._writer.close()
