"""How much may be under way, in seconds of work: the only code that bounds queues and reading by time.

A checkpoint waits until everything that was read is out. So that it need not wait for long, each queue holds no more
than what is worked off in its share of some seconds, by what tuples have cost so far, there and in all that follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.connectors.source import Chunk, Source, Split

if TYPE_CHECKING:
    from penstock.runtime.cells import Cell
    from penstock.runtime.ports import Port
    from penstock.runtime.running.registry import Registry

_LOOK_SECONDS = 0.005
_LEAST_SECONDS = 0.02
"""What a queue may hold however many there are: several chunks, so that nobody starves."""
_FIRST_TUPLES = 4
"""While nobody knows what a tuple costs."""
_FIRST_TUPLE_BYTES = 16.0
_LEAST_COST = 1e-9


class Flight:
    """Lets the queues of a run hold work for so many seconds, all together."""

    def __init__(
        self, registry: Registry, now: Callable[[], float], seconds: float, threads: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._now = now
        self._seconds = seconds
        self._threads = threads
        self._next_look = -math.inf
        for cell in registry.cells:
            for port in cell.inputs:
                port.limit(_FIRST_TUPLES)

    def look(self) -> None:
        """Called by sources that have read something, and writers that wait: bring queues to what tuples cost now."""
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        cells, threads = self._registry.cells, self._threads()
        share = max(_LEAST_SECONDS, self._seconds / max(1, sum(len(cell.inputs) for cell in cells)))
        seconds_of: dict[Cell, float] = {}
        for cell in reversed(cells):  # each after those that read from it
            own = cell.pace(threads)
            if own is None:
                continue
            seconds_of[cell] = seconds = own + _seconds_behind(cell, seconds_of)
            # Two for each of its workers, unless they wait for others anyway.
            least = 2 * min(cell.most_workers, threads) * own / seconds if seconds else 1
            for port in cell.inputs:
                port.limit(max(1, round(least), int(share / max(seconds, _LEAST_COST))))

    def most_of(self, source: Cell) -> float:
        """How many tuples a source may send at once; without end, where time does not bound its readers' queues."""
        ports = [port for targets in source.outputs for port in targets]
        return min((port.capacity for port in ports if port.is_limited), default=math.inf)


def _seconds_behind(cell: Cell, seconds_of: dict[Cell, float]) -> float:
    """What comes of one tuple costs so much in those that read it, as far as is known."""
    received, _ = cell.passed()
    ports: list[Port] = [port for targets in cell.outputs for port in targets]
    return sum(port.total / received * seconds_of.get(port.reader, 0.0) for port in ports) if received else 0.0


def chunks_within(source: Source, split: Split, clock: Clock, most: Callable[[], float]) -> Iterator[Chunk]:
    """The chunks of a split, with no more tuples than `most()` says at the time, where the source can be read so.

    >>> from penstock.clock import FakeClock
    >>> from penstock.connectors.memory import Items
    >>> chunks = chunks_within(Items([1, 2, 3, 4, 5]), Split("items"), FakeClock(), lambda: 2)
    >>> [(chunk.values, chunk.end) for chunk in chunks]
    [([1, 2], 2), ([3, 4], 4), ([5], 5)]
    """
    if not source.counts_rows and source.cut(split, split.start) is not None:
        yield from _pieces(source, split, clock, most)
        return
    position = split.start
    for chunk in source.read(split, clock):
        if chunk.end - position == len(chunk.values):
            yield from _slices(chunk, most)
        else:  # nobody knows where in it one could go on
            yield chunk
        position = chunk.end


def _slices(chunk: Chunk, most: Callable[[], float]) -> Iterator[Chunk]:
    """A chunk whose positions count its values, in parts."""
    while (left := len(chunk.values)) > (size := most()):
        size = int(size)
        yield replace(chunk, values=chunk.values[:size], end=chunk.end - left + size)
        chunk = replace(chunk, values=chunk.values[size:])
    yield chunk


def _pieces(source: Source, split: Split, clock: Clock, most: Callable[[], float]) -> Iterator[Chunk]:
    """A split piece by piece, each of about as many bytes as that many tuples have; or the rest of it whole."""
    position, tuple_bytes = split.start, _FIRST_TUPLE_BYTES
    while split.end is None or position < split.end:
        end, size = split.end, most()
        if size < math.inf:
            cut = source.cut(replace(split, start=position), position + max(1, int(size * tuple_bytes)))
            end = cut if cut is not None and (end is None or cut < end) else end
        for chunk in source.read(replace(split, start=position, end=end), clock):
            if chunk.values:
                tuple_bytes = (chunk.end - position) / len(chunk.values)
            position = chunk.end
            yield chunk
            if end == split.end and len(chunk.values) > most():
                break  # go on with smaller ones
        else:
            if end is None:
                return
            position = end
