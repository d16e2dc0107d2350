"""Chunks of a source in parts, where no more than so many tuples may be under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.clock import Clock
from penstock.connectors.source import Chunk, Source, Split

_FIRST_TUPLE_BYTES = 16.0


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
        else:  # where in it a later run could go on is not known
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
