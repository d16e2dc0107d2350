"""CSV in: parsed by pyarrow as text, then cast column by column, so that a bad value is found by its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.clock import Clock
from penstock.connectors.files.discover import Paths
from penstock.connectors.files.lines import Limits, parse_lines, read_blocks
from penstock.connectors.files.readers import LineFiles
from penstock.connectors.source import Chunk, Split
from penstock.errors import FlowError, SourceError
from penstock.schema import Schema, ddl_type


class CsvFiles(LineFiles):
    """Rows of CSV files as `dict`s.

    The first line is a header if it holds the schema's column names, or if there is no schema. An empty value is
    `None`, a quoted empty one is `""`.
    """

    name = "csv"

    def __init__(
        self,
        paths: Paths,
        schema: str | None,
        limits: Limits,
        header: bool | None,
        delimiter: str,
        multiline: bool,
    ) -> None:
        super().__init__(paths, schema, limits)
        if len(delimiter.encode()) != 1:
            raise FlowError(f"csv source: delimiter= is a single character, not {delimiter!r}")
        if self.schema is None and header is False:
            raise FlowError("csv source: without a header line the columns need names: give a schema=")
        self._header = header
        self._delimiter = delimiter
        self._multiline = multiline
        for field in () if self.schema is None else self.schema.arrow:
            if pa.types.is_nested(field.type):
                raise FlowError(f"csv source: column {field.name!r} is a {field.type}, which CSV can't hold")

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        columns, data_start = self._layout(split.partition)
        start = max(split.start, data_start)
        for block in read_blocks(split.partition, start, split.end, self._limits, self._multiline):
            yield parse_lines(block, lambda lines: self._rows(lines, columns), self._multiline)

    def _parse(self, lines: list[bytes]) -> list[Any]:
        raise NotImplementedError("rows need the columns of their file")

    def _layout(self, path: str) -> tuple[list[str], int]:
        """The columns of a file, and where its rows begin."""
        first = next(read_blocks(path, 0, None, self._limits, self._multiline), None)
        line = b"" if first is None else first.lines()[0]
        try:
            cells = list(self._table([line], None).to_pylist()[0].values()) if line.strip() else []
        except ValueError as error:
            raise SourceError(f"{path}, line 1: {error}") from None
        cells = [str(cell).removeprefix("\ufeff") for cell in cells]
        names = None if self.schema is None else list(self.schema.names)
        if self._header is False or (self._header is None and names is not None and not set(names) <= set(cells)):
            assert names is not None
            return names, 0
        missing = [name for name in names or () if name not in cells]
        if missing and first is not None:
            raise SourceError(f"{path}: the header has no column {missing[0]!r}; it has {', '.join(cells)}")
        if len(set(cells)) < len(cells):
            raise SourceError(f"{path}: two columns in the header have the same name: {', '.join(cells)}")
        if len(cells) > self._limits.fields:
            raise SourceError(f"{path}: {len(cells):,} columns are more than limits=Limits(fields=…) allows")
        return cells, len(line)

    def _rows(self, lines: list[bytes], columns: list[str]) -> list[Any]:
        lines = [line for line in lines if not line.isspace()]
        if not lines:
            return []
        table = self._table(lines, columns)
        if table.num_rows != len(lines):
            # An open quote takes in the lines after it: not this block at once, then, but line by line.
            raise ValueError("a quote is opened and never closed")
        if self.schema is not None:
            table = fit_text(table, self.schema)
        rows: list[Any] = table.to_pylist()
        return rows

    def _table(self, lines: list[bytes], columns: list[str] | None) -> pa.Table:
        data = b"".join(lines)
        read = pyarrow.csv.ReadOptions(
            column_names=columns,
            autogenerate_column_names=columns is None,
            use_threads=False,
            block_size=len(data) + 1,
        )
        types = None if columns is None else dict.fromkeys(columns, pa.string())
        convert = pyarrow.csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False)
        try:
            table = pyarrow.csv.read_csv(pa.BufferReader(data), read, parse, convert)
        except pa.ArrowInvalid as error:
            raise ValueError(_plain(str(error), data, columns)) from None
        if len(lines) == 1 and not self._multiline and b'"' in data and _holds_newline(table):
            raise ValueError("a quote is opened and never closed")
        return table


def _holds_newline(table: pa.Table) -> bool:
    return any(b"\n" in str(value).encode() for row in table.to_pylist() for value in row.values())


def _plain(message: str, data: bytes, columns: list[str] | None) -> str:
    """pyarrow's message about one line, without its own row numbers."""
    if "Expected" in message and "columns, got" in message:
        found = message.split("columns, got ")[1].split(":")[0]
        return f"expected {len(columns or ())} columns ({', '.join(columns or ())}), found {found}"
    if "invalid UTF8" in message:
        return "not UTF-8"
    return message


def fit_text(table: pa.Table, schema: Schema) -> pa.Table:
    """Columns of text as the types of a schema; `ValueError` names the column and the value that does not fit."""
    arrays = []
    for field in schema.arrow:
        column = table.column(field.name)
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name!r} is NOT NULL and has no value")
        try:
            arrays.append(_cast_text(column, field.type))
        except pa.ArrowInvalid:
            value = column[0].as_py() if len(column) == 1 else "a value"
            raise ValueError(f"column {field.name!r}: {value!r:.60} is not a {ddl_type(field.type)}") from None
    return pa.table(arrays, schema=schema.arrow)


def _cast_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # A time without an offset is UTC, as in a Spark session whose zone is UTC.
        try:
            return pc.assume_timezone(column.cast(pa.timestamp(kind.unit)), "UTC")
        except pa.ArrowInvalid:
            return column.cast(kind)
    return column.cast(kind)
