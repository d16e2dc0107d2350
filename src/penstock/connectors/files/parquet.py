"""Parquet in: row groups read by pyarrow, a position counting rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet

from penstock.clock import Clock
from penstock.connectors.files.discover import Paths, checked_paths, find_files
from penstock.connectors.source import Chunk, Source, Split
from penstock.errors import SourceError
from penstock.schema import Schema, rows_of_table

_ROWS_PER_CHUNK = 8192


class ParquetFiles(Source):
    """Rows of Parquet files as `dict`s; a schema picks columns and converts them where nothing is lost."""

    name = "parquet"
    reads_anywhere = True
    has_columns = True

    def __init__(self, paths: Paths, schema: str | None) -> None:
        self._paths = checked_paths(self.name, paths)
        self.schema = None if schema is None else Schema.parse(schema)

    def splits(self) -> Sequence[Split]:
        paths = find_files(self.name, self._paths)
        return [Split(path, 0, self._open(path).metadata.num_rows) for path in paths]

    def cut(self, split: Split, near: int) -> int | None:
        return near

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        position = split.start
        for table in self.tables(split):
            position += len(table)
            with self._readable(split.partition):
                rows = rows_of_table(table)
            yield Chunk(rows, position, all_readable=True)

    def tables(self, split: Split) -> Iterator[pa.Table]:
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
                    table = table.select(self.schema.names).cast(self.schema.arrow)
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
