"""Cells that read sources: by chunks, on the event loop, or what a run is fed with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.connectors.reached import Progress, Reached, check, read, resume
from penstock.connectors.source import Chunk, Split, Unreadable
from penstock.flow.nodes import Node, Reads
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.slices import chunks_within
from penstock.runtime.surroundings import Surroundings

_CHUNKS_AHEAD = 64


class SourceCell(Cell):
    """Reads a source, chunk by chunk; where nothing has come, a timer looks again."""

    def __init__(self, run: Surroundings, place: float, node: Node) -> None:
        super().__init__(run, place, [node], [])
        assert isinstance(node.kind, Reads)
        self._source = node.kind.source
        self._has_ended = False
        self._reached = Reached()
        self._progress = Progress(self._source)
        self._began_at: dict[str, int] = {}
        self.is_waiting = False
        """A timer will notify it."""

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

    @property
    def waits_for_outside(self) -> bool:
        return self.is_waiting

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
        return self.tally.first.received if offered is not None and self._has_ended else offered

    def take(self) -> bool:
        if self.run.is_stopping:
            self.is_over = self.is_over or self.run.settings.closes_at_end
            self._has_ended = True
        is_idle = self.is_over or self._has_ended or self.is_waiting
        return not (is_idle or self.run.is_failing or self.run.is_pausing)

    def process(self) -> int:
        (node,) = self.nodes
        partition, chunk = next(self._chunks, ("", None))
        now = self.run.clock.now()
        if chunk is None:
            self._has_ended = True
            self.is_over = self.is_over or self.run.settings.closes_at_end
        elif not chunk.values:
            self.is_waiting = True
            self.run.timers.call_at(now + chunk.idle_seconds, self._look_again)
            self.run.pause_if_due()
        else:
            self._read(node, partition, chunk, now)
        return 0

    def _look_again(self) -> None:
        self.is_waiting = False
        self.notify()

    def _read(self, node: Node, partition: str, chunk: Chunk, now: float) -> None:
        self._progress.advance(partition, chunk.end)
        self._send(node, chunk, now if chunk.came is None else chunk.came)
        self.run.pause_if_due()

    def _send(self, node: Node, chunk: Chunk, born: float) -> None:
        # A copy, for its reader may fill the same list again; those that promise something never do.
        values = chunk.values if chunk.all_readable and isinstance(chunk.values, list) else list(chunk.values)
        if chunk.all_readable or Unreadable not in map(type, values):
            self.tally.first.count(len(values), len(values))
            self.ports.give(0, values, born)
            return
        good: list[Any] = []
        try:
            for value in values:
                if isinstance(value, Unreadable):
                    self.failing.failed(node, value.raw, value.error, born, self.ports.give)
                else:
                    good.append(value)
        finally:
            self.tally.first.count(len(values), len(good))
            self.ports.give(0, good, born)

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

    def process(self) -> int:
        (node,) = self.nodes
        found = self._buffer.popleft()
        self.run.event_loop.call(self._has_room.set)
        if isinstance(found, BaseException):
            self._has_ended = True
            raise self.failing.crashed(found)
        if isinstance(found, tuple):
            self._read(node, *found, self.run.clock.now())
        else:
            self._has_ended = True
            self.is_over = self.is_over or self.run.settings.closes_at_end
        return 0

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


class InletCell(SourceCell):
    """Passes on the chunks that it is fed."""

    def open(self) -> None:
        self._fed: deque[Chunk] = deque()
        self._total_fed = 0

    def rows_passed(self) -> int | None:
        return self._total_fed

    def feed(self, chunk: Chunk) -> None:
        """Let these values in next."""
        self._fed.append(chunk)
        self._total_fed += len(chunk.values)
        self.notify()

    def take(self) -> bool:
        return bool(self._fed) and not self.run.is_failing

    def has_more(self) -> bool:
        return bool(self._fed)

    def process(self) -> int:
        (node,) = self.nodes
        chunk = self._fed.popleft()
        self._send(node, chunk, self.run.clock.now())
        return len(chunk.values)

    def _send(self, node: Node, chunk: Chunk, born: float) -> None:
        if node.outputs == 1:
            super()._send(node, chunk, born)
            return
        # A driver loop that was run elsewhere: its values come with the numbers of its outputs.
        self.tally.first.count(len(chunk.values), len(chunk.values))
        for port in range(node.outputs):
            self.ports.give(port, [value for output, value in chunk.values if output == port], born)
