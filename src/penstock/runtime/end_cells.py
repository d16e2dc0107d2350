"""Cells at the ends of a flow: sources and sinks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.connectors.source import Chunk, Unreadable, splits_from
from penstock.flow.nodes import Node, Reads, Writes
from penstock.runtime.cells import Cell
from penstock.runtime.ports import Port

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
        self._offset: dict[str, int] = {}

    def open(self) -> None:
        splits = list(splits_from(self._source, self._offset))
        self._chunks = (
            (split.partition, chunk) for split in splits for chunk in self._source.read(split, self.run.clock)
        )

    def offsets(self) -> dict[str, dict[str, int]]:
        return {self.name: dict(self._offset)}

    def restore_offsets(self, offsets: Mapping[str, Any]) -> None:
        self._offset = dict(offsets.get(self.name, {}))

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
        self._offset[partition] = chunk.end
        self._send(node, chunk, now if chunk.came is None else chunk.came)
        self.run.pause_if_due()

    def _send(self, node: Node, chunk: Chunk, born: float) -> None:
        values = chunk.values if isinstance(chunk.values, list) else list(chunk.values)
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
        self._buffer: deque[tuple[str, Chunk] | Exception | None] = deque()
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
        if isinstance(found, Exception):
            self._has_ended = True
            self.failed(node, None, found, self.run.clock.now())
        if not isinstance(found, tuple):
            self._has_ended = True
            self.is_over = self.is_over or self.run.settings.closes_at_end
            return
        self._read(node, *found, self.run.clock.now())

    async def _fill(self) -> None:
        last: Exception | None = None
        try:
            for split in splits_from(self._source, self._offset):
                async for chunk in self._source.read_async(split):
                    self._buffer.append((split.partition, chunk))
                    self.notify()
                    while len(self._buffer) >= _CHUNKS_AHEAD:
                        self._has_room.clear()
                        await self._has_room.wait()
        except Exception as error:
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

    def open(self) -> None:
        self._writer = self._sink.open()

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
        while rest and (rejected := self._writer.write(rest)):
            self.failed(node, rest[rejected.position], rejected.error, self._born)
            rest = rest[rejected.position + 1 :]
        self.run.on_latency(self.run.clock.now() - self._born)

    def leave(self, has_failed: bool) -> None:
        if hasattr(self, "_writer"):
            self._writer.abandon() if has_failed else self._writer.close()
