"""Parquet in: row groups read by pyarrow, a position counting rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet

from penstock.clock import Clock
from penstock.connectors.files.discover import Paths, checked_paths, find_files
from penstock.connectors.source import Chunk, Source, Split
from penstock.errors import SourceError
from penstock.schema import Schema

_ROWS_PER_CHUNK = 8192


class ParquetFiles(Source):
    """Rows of Parquet files as `dict`s; a schema picks columns and converts them where nothing is lost."""

    name = "parquet"

    def __init__(self, paths: Paths, schema: str | None) -> None:
        self._paths = checked_paths(self.name, paths)
        self.schema = None if schema is None else Schema.parse(schema)

    def splits(self) -> Sequence[Split]:
        paths = find_files(self.name, self._paths)
        return [Split(path, 0, self._open(path).metadata.num_rows) for path in paths]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        file = self._open(split.partition)
        position = 0
        for group in range(file.num_row_groups):
            rows_in_group = file.metadata.row_group(group).num_rows
            if position + rows_in_group <= split.start:
                position += rows_in_group
                continue
            for batch in file.iter_batches(_ROWS_PER_CHUNK, [group], columns=self._columns()):
                skip = max(0, min(split.start - position, batch.num_rows))
                take = batch.num_rows if split.end is None else min(batch.num_rows, split.end - position)
                position += batch.num_rows
                if take > skip:
                    yield Chunk(self._fit(batch.slice(skip, take - skip), split.partition), position)

    def _columns(self) -> list[str] | None:
        return None if self.schema is None else list(self.schema.names)

    def _fit(self, batch: pa.RecordBatch, path: str) -> list[dict[str, object]]:
        table = pa.Table.from_batches([batch])
        if self.schema is not None:
            try:
                table = table.select(self.schema.names).cast(self.schema.arrow)
            except (pa.ArrowInvalid, KeyError, ValueError) as error:
                raise SourceError(f"{path}: the rows don't fit the schema: {error}") from None
        rows: list[dict[str, object]] = table.to_pylist()
        return rows

    def _open(self, path: str) -> pyarrow.parquet.ParquetFile:
        try:
            return pyarrow.parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(f"{path}: can't be read as Parquet: {error}") from None

    def describe(self) -> str:
        return ", ".join(self._paths)
