"""The only form in which tuples travel between tasks: one row for each slice and target task."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engines.spark.pickling import dumps

SCHEMA = "level int, final int, target int, place long, edge int, payload binary"
"""The level at which a row is opened and its partition there; its partition at the next level; its place in the order
of that partition; the edge it travels on, or -1 for a report to the driver."""
REPORT = -1
ROWS_PER_SLICE = 65_536
_PLACE_BITS = 50
_BYTES_PER_BATCH = 16 << 20

_ARROW = pa.schema(
    [
        ("level", pa.int32()),
        ("final", pa.int32()),
        ("target", pa.int32()),
        ("place", pa.int64()),
        ("edge", pa.int32()),
        ("payload", pa.binary()),
    ]
)

Positions = tuple[Any, ...]
"""Columns of integers that together say where in its slice each tuple belongs."""


@dataclass(frozen=True)
class Row:
    """A payload on its way."""

    level: int
    final: int
    target: int
    place: int
    edge: int
    payload: bytes


@dataclass(frozen=True)
class Slice:
    """Some consecutive tuples of a stream, or those of them that came to one task; `positions` tell which."""

    number: int
    values: list[Any]
    positions: Positions | None = None
    """`None` where the slice is whole."""

    def column(self) -> Positions:
        return (np.arange(len(self.values)),) if self.positions is None else self.positions


def place_of(input_number: int, slice_number: int) -> int:
    """Sorts by input, then by slice.

    >>> place_of(0, 7) < place_of(0, 8) < place_of(1, 0)
    True
    """
    return (input_number << _PLACE_BITS) | slice_number


def slice_of(place: int) -> int:
    return place & ((1 << _PLACE_BITS) - 1)


def packed(values: list[Any], positions: Positions | None) -> bytes:
    return dumps((positions, values))


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of a bounded size."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row.payload)
        if size >= _BYTES_PER_BATCH:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [[getattr(row, name) for row in rows] for name in _ARROW.names]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.record_batch(arrays, _ARROW)


def rows_of(arriving: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in arriving:
        yield from map(Row, *(column.to_pylist() for column in batch.columns))


def slices_of(rows: Iterable[Row]) -> Iterator[tuple[int, Slice]]:
    """The slices in a task's rows, which come sorted by place, with the edge that each came on.

    Where several tasks have worked on a slice, their tuples are put in order again.
    """
    for (place, edge), parts in groupby(rows, key=lambda row: (row.place, row.edge)):
        loaded = [pickle.loads(row.payload) for row in parts]
        positions, values = loaded[0] if len(loaded) == 1 else _merged(loaded)
        yield edge, Slice(slice_of(place), values, positions)


def _merged(parts: list[tuple[Positions, list[Any]]]) -> tuple[Positions, list[Any]]:
    columns = tuple(np.concatenate(column) for column in zip(*(positions for positions, _ in parts), strict=True))
    values = [value for _, part in parts for value in part]
    order = np.lexsort(columns[::-1])
    return tuple(column[order] for column in columns), [values[place] for place in order.tolist()]
