"""CSV in: parsed by pyarrow as text, then cast column by column, so that a bad value is found by its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.clock import Clock
from penstock.connectors.files.discover import Paths
from penstock.connectors.files.lines import BYTE_ORDER_MARK, Limits, read_blocks
from penstock.connectors.files.readers import LineFiles
from penstock.connectors.source import Chunk, OnChange, Split
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
        on_change: OnChange,
    ) -> None:
        super().__init__(paths, schema, limits, on_change)
        check_delimiter("csv source", delimiter)
        if self.schema is None and header is False:
            raise FlowError("csv source: without a header line the columns need names: give a schema=")
        self._header = header
        self._delimiter = delimiter
        self._has_quoted_newlines = multiline
        check_columns("csv source", self.schema)

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        columns, data_start = self._layout(split.partition)
        start = max(split.start, data_start)
        for block in read_blocks(split.partition, start, split.end, self._limits, self._has_quoted_newlines):
            yield self._chunk(block, lambda lines: self._rows(lines, columns))

    def cut(self, split: Split, near: int) -> int | None:
        return None if self._has_quoted_newlines else super().cut(split, near)

    def _parse(self, lines: list[bytes]) -> list[Any]:
        raise NotImplementedError("rows need the columns of their file")

    def _layout(self, path: str) -> tuple[list[str], int]:
        """The columns of a file, and where its rows begin."""
        names = None if self.schema is None else list(self.schema.names)
        if names is not None and self._header is False:
            return names, 0
        for block in read_blocks(path, 0, None, self._limits, self._has_quoted_newlines):
            for index, line in enumerate(block.lines):
                if not line.strip():
                    continue
                try:
                    cells = self._cells(line)
                except ValueError as error:
                    if names is not None and self._header is None:
                        return names, 0
                    raise SourceError(f"{path}, line {block.line_numbers[index]}: the header: {error}") from None
                if names is not None and self._header is None and not set(names) <= set(cells):
                    return names, 0
                self._check_header(path, cells, names or [])
                return cells, block.end - sum(map(len, block.lines[index + 1 :]))
        return names or [], 0

    def _cells(self, line: bytes) -> list[str]:
        """The cells of a header: text, whatever they look like."""
        self._limits.check_lines([line])
        try:
            return next(csv.reader([line.decode()], delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from None

    def _check_header(self, path: str, cells: list[str], names: list[str]) -> None:
        if missing := [name for name in names if name not in cells]:
            raise SourceError(f"{path}: the header has no column {missing[0]!r}; it has {', '.join(cells)}")
        if len(set(cells)) < len(cells):
            raise SourceError(f"{path}: two columns in the header have the same name: {', '.join(cells)}")
        if len(cells) > self._limits.fields:
            raise SourceError(f"{path}: {len(cells):,} columns are more than limits=Limits(fields=…) allows")

    def _rows(self, lines: list[bytes], columns: list[str]) -> list[Any]:
        delimiter = self._delimiter.encode()
        lines = [line for line in lines if not line.isspace() or delimiter in line]
        if not lines:
            return []
        data = b"".join(lines)
        table = self._table(data, columns)
        if table.num_rows > len(lines):
            raise ValueError("a quote or a carriage return stands where none can be")
        if table.num_rows < len(lines) or self._is_quote_open(data, lines[-1], table):
            raise ValueError("a quote is opened and never closed")
        if self.schema is not None:
            table = fit_text(table, self.schema)
        rows: list[Any] = table.to_pylist()
        return rows

    def _is_quote_open(self, data: bytes, last: bytes, table: pa.Table) -> bool:
        """Whether pyarrow has taken the end of a line, or of the file, for a part of a value."""
        if self._has_quoted_newlines:
            return last.count(b'"') % 2 == 1
        return b'"' in data and any(pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns)

    def _table(self, data: bytes, columns: list[str]) -> pa.Table:
        read = pyarrow.csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(data) + 8)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False)
        # An open quote in the last line shows by the newline that it takes in.
        ended = data if data.endswith(b"\n") else data + b"\n"
        if data.startswith(BYTE_ORDER_MARK):  # pyarrow drops one, wherever in the file these lines are
            ended = BYTE_ORDER_MARK + ended
        try:
            return pyarrow.csv.read_csv(pa.BufferReader(ended), read, parse, convert)
        except pa.ArrowInvalid as error:
            raise ValueError(_plain(str(error), columns)) from None


def check_delimiter(what: str, delimiter: str) -> None:
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise FlowError(f"{what}: delimiter= is a single character (and no quote or line break), not {delimiter!r}")


def check_columns(what: str, schema: Schema | None) -> None:
    for field in () if schema is None else schema.arrow:
        if pa.types.is_nested(field.type):
            raise FlowError(f"{what}: column {field.name!r} is a {ddl_type(field.type)}, which CSV can't hold")


def _plain(message: str, columns: list[str]) -> str:
    """pyarrow's message about one line, without its own row numbers."""
    if "Expected" in message and "columns, got" in message:
        found = message.split("columns, got ")[1].split(":")[0]
        return f"expected {len(columns)} columns ({', '.join(columns)}), found {found}"
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
