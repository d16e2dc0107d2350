"""Parquet in: row groups read by pyarrow, a position counting rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from penstock.clock import Clock
from penstock.connectors.files.discover import Paths, checked_on_change, checked_paths, find_files
from penstock.connectors.files.identity import Watched, whole_changed, whole_identity
from penstock.connectors.source import Chunk, OnChange, Source, Split, Unreadable
from penstock.errors import SourceError
from penstock.schema import Schema, rows_of_table

_ROWS_PER_CHUNK = 8192


class ParquetFiles(Source):
    """Rows of Parquet files as `dict`s; a schema picks columns and converts them where nothing is lost."""

    name = "parquet"
    counts_rows = True
    reads_anywhere = True
    has_columns = True

    def __init__(self, paths: Paths, schema: str | None, on_change: OnChange) -> None:
        self._paths = checked_paths(self.name, paths)
        self.schema = None if schema is None else Schema.parse(schema)
        self.on_change = checked_on_change(self.name, on_change)

    def splits(self) -> Sequence[Split]:
        paths = find_files(self.name, self._paths)
        return [Split(path, 0, self._open(path).metadata.num_rows) for path in paths]

    def identity(self, partition: str, position: int) -> Any:
        return whole_identity(partition)

    def changed(self, partition: str, position: int, identity: Any) -> str | None:
        return whole_changed(partition, identity)

    def cut(self, split: Split, near: int) -> int | None:
        return near

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        for table, position in self._fetched(split):
            end = position + len(table)
            try:
                chunk = Chunk(rows_of_table(self._fitted(table, split.partition)), end, all_readable=True)
            except _NOT_A_VALUE:
                pieces = self._pieces(table, split.partition, position)
                chunk = Chunk([value for piece in pieces for value in _values(piece)], end)
            yield chunk

    def tables(self, split: Split) -> Iterator[pa.Table | list[Unreadable]]:
        for table, position in self._fetched(split):
            pieces = self._pieces(table, split.partition, position)
            for are_unreadable, some in groupby(pieces, lambda piece: isinstance(piece, list)):
                if are_unreadable:
                    yield list(chain.from_iterable(some))
                else:
                    yield from some

    def _pieces(self, table: pa.Table, path: str, position: int) -> Iterator[pa.Table | list[Unreadable]]:
        """The table as the schema wants it; where that fails, halved until each bad row stands alone."""
        try:
            fitted = self._fitted(table, path)
            if _is_doubtful(fitted):
                rows_of_table(fitted)
        except _NOT_A_VALUE as error:
            if len(table) == 1:
                yield [self._unreadable(table, f"{path}, row {position + 1}", error)]
                return
            middle = len(table) // 2
            yield from self._pieces(table.slice(0, middle), path, position)
            yield from self._pieces(table.slice(middle), path, position + middle)
        else:
            yield fitted

    def _fitted(self, table: pa.Table, path: str) -> pa.Table:
        try:
            return table if self.schema is None else table.cast(self.schema.arrow)
        except pa.ArrowNotImplementedError as error:  # no value of this type would fit
            raise SourceError(f"{path}: the rows can't be read with this schema: {error}") from None

    def _unreadable(self, row: pa.Table, where: str, error: Exception) -> Unreadable:
        """Says which column it is, and what is in the others."""
        for name, column in zip(row.column_names, row.columns, strict=True):
            kind = column.type if self.schema is None else self.schema.arrow.field(name).type
            try:
                column.cast(kind).to_pylist(maps_as_pydicts="strict")
            except _NOT_A_VALUE as found:
                where, error = f"{where}: column {name!r} ({kind})", found
                break
        raw = {name: _shown(column) for name, column in zip(row.column_names, row.columns, strict=True)}
        return Unreadable(raw, SourceError(f"{where}: the value can't be read: {error}"))

    def _fetched(self, split: Split) -> Iterator[tuple[pa.Table, int]]:
        """What the file holds, and the position of each table, while it stays the file that it was."""
        with closing(Watched(split.partition)) as watched:
            identity = watched.whole_identity()
            position = split.start
            for table in self._tables_of(split):
                watched.check_whole(identity)
                yield table, position
                position += len(table)

    def _tables_of(self, split: Split) -> Iterator[pa.Table]:
        file = self._open(split.partition)
        end = file.metadata.num_rows if split.end is None else split.end
        position = 0
        for group in range(file.num_row_groups):
            rows_in_group = file.metadata.row_group(group).num_rows
            if position + rows_in_group <= split.start or position >= end:
                position += rows_in_group
                continue
            for table in self._tables(file, group, split.partition):
                first, last = max(0, split.start - position), max(0, end - position)
                position += len(table)
                if wanted := table.slice(first, max(0, last - first)):
                    yield wanted

    def _tables(self, file: pyarrow.parquet.ParquetFile, group: int, path: str) -> Iterator[pa.Table]:
        with self._readable(path):
            for batch in file.iter_batches(_ROWS_PER_CHUNK, [group], columns=self._columns()):
                table = pa.Table.from_batches([batch])
                if self.schema is not None:
                    table = table.select(self.schema.names)
                yield table

    @contextmanager
    def _readable(self, path: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            fit = "" if self.schema is None else " with this schema"
            raise SourceError(f"{path}: the rows can't be read{fit}: {error}") from None

    def _columns(self) -> list[str] | None:
        return None if self.schema is None else list(self.schema.names)

    def _open(self, path: str) -> pyarrow.parquet.ParquetFile:
        try:
            return pyarrow.parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(f"{path}: can't be read as Parquet: {error}") from None

    def describe(self) -> str:
        return ", ".join(self._paths)


_NOT_A_VALUE = (pa.ArrowInvalid, OverflowError, ValueError, KeyError)
"""What is raised for a value that Python, or the schema, has no place for."""


def _values(piece: pa.Table | list[Unreadable]) -> Sequence[Any]:
    return rows_of_table(piece) if isinstance(piece, pa.Table) else piece


def _is_doubtful(table: pa.Table) -> bool:
    """Whether there may be values that have no place in Python: text that is no UTF-8, times of other eras."""
    return any(_is_column_doubtful(column) for column in table.columns)


def _is_column_doubtful(column: pa.ChunkedArray) -> bool:
    types, kind = pa.types, column.type
    if types.is_string(kind) or types.is_large_string(kind):
        column.validate(full=True)
    elif types.is_date(kind) or types.is_timestamp(kind):
        pc.min_max(column).as_py()  # what is between two values that have a place has one
    else:
        return not (
            types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
        )
    return False


def _shown(column: pa.ChunkedArray) -> Any:
    """The only value of a column, or what can be told of it."""
    try:
        return column.to_pylist()[0]
    except _NOT_A_VALUE:
        pass
    try:
        return str(column.cast(pa.int64())[0])
    except pa.ArrowException:
        return f"a {column.type}"
