"""The only form in which tuples travel between tasks: one row for each slice and target task."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engines.spark.pickling import dumps
from penstock.schema import rows_of_table

_ARROW = pa.schema(
    [
        ("level", pa.int32()),
        ("final", pa.int32()),
        ("target", pa.int32()),
        ("sort_key", pa.binary()),
        ("edge", pa.int32()),
        ("payload", pa.binary()),
    ]
)
SCHEMA = from_arrow_schema(_ARROW)
"""The level at which a row is opened and its partition there; its partition at the next level; what rows of that
partition are sorted by; the edge it travels on, or -1 for a report to the driver."""
REPORT = -1
ROWS_PER_SLICE = 65_536
CLOSING = b"\xff\xff"
"""The sort key of the slice that comes after all others: the last words."""
_BYTES_PER_BATCH = 16 << 20

Positions = tuple[Any, ...]
"""Columns of integers that together say where in its slice each tuple belongs."""


@dataclass(frozen=True)
class ShuffleRow:
    """A payload on its way through an exchange."""

    level: int
    final: int
    target: int
    sort_key: bytes
    edge: int
    payload: bytes


@dataclass(frozen=True)
class Marks:
    """How far the watermark of a slice is at each tuple, and after all of them, whichever tasks got them."""

    at: list[Any]
    after: Any
    rises: tuple[Any, list[Any]] | None = None
    """All positions at which it rises, and how far; `None` where it makes no difference."""


Values: TypeAlias = Any
"""Tuples as a list of objects, as a table of rows, or as an array of written lines."""


@dataclass(frozen=True)
class Slice:
    """Some consecutive tuples of a stream, or those of them that came to one task; `positions` tell which."""

    sort_key: bytes
    """Sorts as slices follow each other: where it came from, the last step first."""
    values: Values
    positions: Positions | None = None
    """`None` where the slice is whole."""
    marks: Marks | None = None

    def with_values(self, values: Values) -> Slice:
        return Slice(self.sort_key, values, self.positions)

    def column(self) -> Positions:
        return (np.arange(len(self.values)),) if self.positions is None else self.positions

    def position(self, number: int) -> int:
        """Where in the slice a tuple stands; what was fired by a timer stands nowhere."""
        if self.positions is None:
            return number
        found = self.positions[0][number]
        return int(found) if isinstance(found, int | np.integer) else 0

    def with_outputs(self, values: list[Any], numbers: list[int]) -> Slice:
        """What came of its tuples, by their numbers: several from one are told apart by their order."""
        if self.positions is None:
            return Slice(self.sort_key, values)
        origin = np.array(numbers, dtype=np.int64)
        ordinal = np.arange(len(numbers)) - np.searchsorted(origin, origin)
        return Slice(self.sort_key, values, (*(column[origin] for column in self.positions), ordinal))


def slice_at(sort_key: bytes, positions: Sequence[tuple[Any, ...]], values: list[Any]) -> Slice:
    """Values with positions that are not all numbers of tuples."""
    columns = [_column(parts) for parts in zip(*positions, strict=True)]
    return Slice(sort_key, values, tuple(columns))


def _column(parts: Sequence[Any]) -> Any:
    """Integers if they are; other things are sorted by Python's own order."""
    if {type(part) for part in parts} <= {int, bool}:
        with suppress(OverflowError):
            return np.array(parts, dtype=np.int64)
    column = np.empty(len(parts), dtype=object)
    column[:] = parts
    return column


def sort_key_of(part: int, number: int) -> bytes:
    """The sort key of a slice, by its number in a numbered part of what a task reads.

    >>> sort_key_of(0, 7) < sort_key_of(0, 256) < sort_key_of(1, 0)
    True
    """
    return part.to_bytes(4, "big") + number.to_bytes(4, "big")


def sort_key_through(input_number: int, sort_key: bytes) -> bytes:
    """The sort key of a slice that has come through an input: all of one come before all of the next.

    >>> sort_key_through(0, sort_key_of(7, 1)) < sort_key_through(1, sort_key_of(0, 0)) < CLOSING
    True
    """
    return input_number.to_bytes(2, "big") + sort_key


def packed(values: Values, positions: Positions | None, marks: Marks | None = None) -> bytes:
    return dumps((positions, values if isinstance(values, list) else _Columns.of(values), marks))


def unpacked(payload: bytes) -> tuple[Positions | None, Values, Marks | None]:
    """Rows of a table are objects again: it is operators that get them."""
    positions, values, marks = pickle.loads(payload)
    if isinstance(values, _Columns):
        table = values.table()
        values = table.column(0).combine_chunks() if values.is_array else rows_of_table(table)
    return positions, values, marks


@dataclass(frozen=True)
class _Columns:
    """Arrow's own bytes for a table or an array: cheaper than a pickle, which keeps the whole of what was sliced."""

    data: bytes
    is_array: bool

    @classmethod
    def of(cls, values: pa.Table | pa.Array) -> _Columns:
        is_array = not isinstance(values, pa.Table)
        table = pa.table({"": values}) if is_array else values
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return cls(out.getvalue().to_pybytes(), is_array)

    def table(self) -> pa.Table:
        return pa.ipc.open_stream(self.data).read_all()


def in_slices(tables: Iterable[pa.Table | list[Any]]) -> Iterator[pa.Table | list[Any]]:
    """The rows of tables, cut anew: each slice full, but the last, and those before something that is no table.

    >>> tables = [pa.table({"n": range(ROWS_PER_SLICE)}), pa.table({"n": [7]})]
    >>> [len(part) for part in in_slices(tables)]
    [65536, 1]
    """
    waiting: list[pa.Table] = []
    room = ROWS_PER_SLICE
    for table in tables:
        if isinstance(table, list):
            if waiting:
                yield pa.concat_tables(waiting)
                waiting, room = [], ROWS_PER_SLICE
            yield table
            continue
        while len(table):
            piece, table = table.slice(0, room), table.slice(room)
            waiting.append(piece)
            room -= len(piece)
            if not room:
                yield pa.concat_tables(waiting)
                waiting, room = [], ROWS_PER_SLICE
    if waiting:
        yield pa.concat_tables(waiting)


def batches(rows: Iterable[ShuffleRow]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of a bounded size."""
    waiting: list[ShuffleRow] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row.payload)
        if size >= _BYTES_PER_BATCH:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(rows: list[ShuffleRow]) -> pa.RecordBatch:
    columns = [[getattr(row, name) for row in rows] for name in _ARROW.names]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.record_batch(arrays, _ARROW)


def rows_of(arriving: Iterable[pa.RecordBatch]) -> Iterator[ShuffleRow]:
    for batch in arriving:
        yield from map(ShuffleRow, *(column.to_pylist() for column in batch.columns))


def slices_of(rows: Iterable[ShuffleRow]) -> Iterator[tuple[int, Slice]]:
    """The slices in a task's rows, which come sorted by their keys, with the edge that each came on.

    Where several tasks have worked on a slice, their tuples are put in order again.
    """
    for (sort_key, edge), parts in groupby(rows, key=lambda row: (row.sort_key, row.edge)):
        loaded = [unpacked(row.payload) for row in parts]
        positions, values, marks = loaded[0] if len(loaded) == 1 else (*_merged(loaded), None)
        yield edge, Slice(sort_key, values, positions, marks)


def _merged(parts: list[tuple[Any, Values, Marks | None]]) -> tuple[Positions, Values]:
    columns = tuple(np.concatenate(column) for column in zip(*(positions for positions, *_ in parts), strict=True))
    order = np.lexsort(columns[::-1])
    ordered = tuple(column[order] for column in columns)
    if not isinstance(parts[0][1], list):
        return ordered, pa.concat_arrays([lines for _, lines, _ in parts]).take(pa.array(order))
    values = [value for _, part, _ in parts for value in part]
    return ordered, [values[index] for index in order.tolist()]
