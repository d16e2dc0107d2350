"""The only code that turns tuples into the bytes of a file: text, JSON, CSV, Parquet."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import numbers
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.connectors.files.agreed import other_columns
from penstock.schema import Row, Schema, rows_of_table

try:
    import msgspec
except ImportError:  # there is none for a Python 3.13 without a GIL
    msgspec = None  # type: ignore[assignment]

_ROWS_PER_GROUP = 65_536
_MOST_HELD_ROWS = 8 * _ROWS_PER_GROUP
_SIMPLE = frozenset({type(None), bool, int, float, str})
_ATOMS = frozenset({type(None), bool, int, float, str, bytes, date, datetime, Decimal})


class Encoder(ABC):
    """Turns values into the bytes of one file."""

    @property
    def columns(self) -> Any:
        """Those of its file, as far as they are known, where the next file is to have the same."""
        return None

    def followed_by(self, encoder: Encoder) -> Encoder:
        """The encoder of the next file, which takes the same rows as this one would have taken."""
        return encoder

    def empty(self) -> bytes:
        """A file without rows, where it tells more than no file does: which columns there are."""
        return b""

    @abstractmethod
    def add(self, values: Sequence[Any]) -> None:
        """Take all of the values in, or raise and take none."""

    @abstractmethod
    def take_bytes(self) -> bytes:
        """What is ready to be written."""

    def finish(self) -> bytes:
        """The rest of the file."""
        return self.take_bytes()


class _Buffered(Encoder):
    """Text formats: bytes pile up until they are taken."""

    def __init__(self) -> None:
        self._ready: list[bytes] = []

    def take_bytes(self) -> bytes:
        data = b"".join(self._ready)
        self._ready = []
        return data


class LineEncoder(_Buffered):
    """Formats in which each value is a line by itself, whatever else is in the file."""

    @abstractmethod
    def lines(self, values: Sequence[Any]) -> bytes:
        """A line for each value: all of them, or an error. A line break is nowhere but at their ends."""

    def add(self, values: Sequence[Any]) -> None:
        self._ready.append(self.lines(values))


class TextEncoder(LineEncoder):
    """`str(value)` on a line for each value."""

    def lines(self, values: Sequence[Any]) -> bytes:
        lines = [str(value) for value in values]
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a line of text can't hold a line break; use ps.sinks.json for such values")
        return "".join(line + "\n" for line in lines).encode()


class JsonEncoder(LineEncoder):
    """A line of JSON for each value.

    What a value looks like depends on nothing but the value: msgspec writes those in which nothing but text and
    numbers is found, at any depth, up to twenty times as fast as the standard library, which writes the others.
    """

    def __init__(self, schema: Schema | None) -> None:
        super().__init__()
        self._schema = schema
        self._fast = None if msgspec is None else msgspec.json.Encoder()
        self._slow = json.JSONEncoder(
            ensure_ascii=False, default=_json_default, allow_nan=False, separators=(",", ":")
        ).encode

    def lines(self, values: Sequence[Any]) -> bytes:
        if self._schema is not None:
            values = rows_of_table(self._schema.table([as_plain(value) for value in values]))
        if self._fast is not None and _are_simple(values):
            with suppress(TypeError):  # a key that is neither text nor a number
                return self._fast.encode_lines(values)
        return b"".join([self._line(as_plain(value)) for value in values])

    def _line(self, value: Any) -> bytes:
        try:
            if self._fast is not None and _is_plain(value):
                with suppress(TypeError):
                    return self._fast.encode_lines([value])
            return self._slow(value).encode() + b"\n"
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None


def _are_simple(values: Sequence[Any]) -> bool:
    """Whether all values are plain without a look into what they hold: the question for many at once."""
    kinds = set(map(type, values))
    if kinds == {dict}:
        rows: list[Any] = list(map(dict.values, values))
    elif kinds <= {tuple, list}:
        rows = list(values)
    else:
        return False
    inside = set(map(type, chain.from_iterable(rows)))
    if not inside <= _SIMPLE:
        return False
    return float not in inside or all(math.isfinite(part) for part in chain.from_iterable(rows) if type(part) is float)


def _is_plain(value: Any) -> bool:
    """Whether there is nothing but text and finite numbers in a value, at any depth.

    >>> _is_plain({"a": [1, {"b": None}]}), _is_plain([float("nan")])
    (True, False)
    """
    kind = type(value)
    if kind in _SIMPLE:
        return kind is not float or math.isfinite(value)
    if kind is dict:
        return all(map(_is_plain, value.values()))
    return kind in (list, tuple) and all(map(_is_plain, value))


def _json_default(value: Any) -> Any:
    match value:
        case date() | time():
            return value.isoformat()
        case Decimal() | uuid.UUID():
            return str(value)
        case Enum():
            return value.value
        case bytes():
            return base64.b64encode(value).decode()
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form; map the tuples to dicts, lists, strings and numbers")


class CsvEncoder(_Buffered):
    """Without a schema, the first row says which columns there are, and each value how it is written.

    `columns` are those of the files in a directory that are there already.
    """

    def __init__(
        self,
        schema: Schema | None,
        header: bool,
        delimiter: str,
        columns: tuple[str, ...] | None = None,
        directory: str = "",
    ) -> None:
        super().__init__()
        self._schema = schema
        self._there = columns
        self._directory = directory
        self._names: tuple[str, ...] = ()
        self._header_due = header
        self._delimiter = delimiter

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self._names or self._there

    def followed_by(self, encoder: Encoder) -> Encoder:
        assert isinstance(encoder, CsvEncoder)
        return encoder._with_names(self._names)  # a row that lacks a column may come first there

    def _with_names(self, names: tuple[str, ...]) -> CsvEncoder:
        self._names = names
        return self

    def empty(self) -> bytes:
        if self._schema is None or not self._header_due:
            return b""
        return self._lines(self._schema.arrow.empty_table())

    def add(self, values: Sequence[Any]) -> None:
        rows = _rows(values)
        self._ready.append(self._free_lines(rows) if self._schema is None else self._lines(self._schema.table(rows)))
        self._header_due = False

    def _lines(self, table: pa.Table) -> bytes:
        out = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=self._header_due, delimiter=self._delimiter)
        pyarrow.csv.write_csv(table, out, options)
        data: bytes = out.getvalue().to_pybytes()
        return data

    def _free_lines(self, rows: Sequence[Row]) -> bytes:
        names = self._names or tuple(rows[0])
        if not names:
            raise ValueError("the first row has no columns; give a schema=")
        if self._there is not None and not self._names:
            if set(names) != set(self._there):
                raise other_columns(f"the files in {self._directory!r}", self._there, names)
            names = self._there
        for row in rows:
            if unknown := [name for name in row if name not in names]:
                raise ValueError(f"the first row has no column {unknown[0]!r}, only {', '.join(names)}; give a schema=")
        records = [[row.get(name) for name in names] for row in rows]
        if self._header_due:
            records.insert(0, list(names))
        data = "".join(self._delimiter.join(map(_csv_cell, record)) + "\n" for record in records).encode()
        self._names = names
        return data


def _csv_cell(value: Any) -> str:
    """A value as pyarrow would write it: only `None` is empty, and text is always quoted."""
    if type(value) is str:
        return '"' + value.replace('"', '""') + '"'
    if type(value) in (int, float, Decimal, date, datetime):
        return str(value)
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Enum():
            return _csv_cell(value.value)
        case bytes():
            return _csv_cell(value.decode())
        case str():
            return _csv_cell(str(value))
        case int() | float() | date() | time():
            return str(value)
        case list() | tuple() | dict():
            raise ValueError(f"CSV can't hold a {type(value).__name__}")
    return _csv_cell(_json_default(value))


class ParquetEncoder(Encoder):
    """Rows wait until they make a row group; without a schema, the first group's rows agree on the columns.

    They wait longer where a column has been `None` in all of them. `columns` are those of an earlier file.
    """

    def __init__(self, schema: Schema | None, columns: pa.Schema | None = None) -> None:
        self._has_schema = schema is not None
        self._schema: Any = columns if schema is None else schema.arrow
        self._is_final = self._schema is not None
        self._pipe = _Pipe()
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, values: Sequence[Any]) -> None:
        rows = _rows(values)
        if self._is_final:
            self._waiting.append(self._fitting(rows))
        else:
            self._agree(inferred(rows))
        self._waiting_rows += len(rows)

    @property
    def columns(self) -> pa.Schema | None:
        return self._schema

    def empty(self) -> bytes:
        if not self._has_schema:
            return b""
        out = pa.BufferOutputStream()
        pyarrow.parquet.write_table(self._schema.empty_table(), out)
        data: bytes = out.getvalue().to_pybytes()
        return data

    def _fitting(self, rows: list[Row]) -> pa.Table:
        try:
            return Schema(self._schema).table(rows)
        except ValueError as error:
            if self._has_schema:
                raise
            raise ValueError(f"{error}; that is what the first rows were: give a schema=") from None

    def _agree(self, table: pa.Table) -> None:
        """Take the table in; either it or what waits gets the wider columns of the other."""
        try:
            if self._schema is not None:
                table = pa.concat_tables([self._schema.empty_table(), table], promote_options="permissive")
            if table.schema == self._schema:
                self._waiting.append(table)
            else:
                self._waiting = [pa.concat_tables([*self._waiting, table], promote_options="permissive")]
        except (pa.ArrowException, TypeError) as error:
            raise ValueError(f"{error}; give a schema=") from None
        self._schema = table.schema

    def take_bytes(self) -> bytes:
        if self._waiting_rows >= _ROWS_PER_GROUP and not self._is_to_wait():
            self._write_group()
        return self._pipe.drain()

    def finish(self) -> bytes:
        if self._waiting_rows:
            self._write_group()
        if self._writer is None:
            return b""
        self._writer.close()
        return self._pipe.drain()

    def _is_to_wait(self) -> bool:
        """Whether the type of a column may still turn up."""
        return not self._is_final and self._waiting_rows < _MOST_HELD_ROWS and pa.null() in self._schema.types

    def _write_group(self) -> None:
        self._is_final = True
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._pipe, self._schema)
        self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._waiting_rows = [], 0


class _Pipe(io.RawIOBase):
    """A file that counts what went through and gives it away: Parquet's footer needs true positions."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def drain(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces = []
        return data


def as_plain(value: Any) -> Any:
    """A tuple as rows and JSON know it: named tuples and dataclasses become dicts, at any depth."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, dict):
        if _ATOMS.issuperset(map(type, value.values())):
            return value
        return {name: as_plain(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_plain(part) for name, part in value._asdict().items()}
    if isinstance(value, list | tuple):
        parts = map(as_plain, value)
        return tuple(parts) if isinstance(value, tuple) else list(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _rows(values: Sequence[Any]) -> list[Row]:
    rows = [as_plain(value) for value in values]
    if not all(isinstance(row, dict) for row in rows):
        kinds = sorted({type(row).__name__ for row in rows if not isinstance(row, dict)})
        raise ValueError(f"expected rows (dicts, named tuples or dataclasses), found {', '.join(kinds)}")
    return rows


def inferred(rows: Sequence[Row]) -> pa.Table:
    """A table with every column that any of the rows has, in the order of their appearance."""
    if not all(rows):
        raise ValueError("a row has no columns; give a schema=")
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(name) for row in rows]
        try:
            _check_alike(values)
            columns[name] = pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"column {name!r}: {error}; give a schema=") from None
    return pa.table(columns)


def _check_alike(values: Sequence[Any]) -> None:
    """Refuse a mixture that pyarrow would make one type of by dropping a time of day, or a zone."""
    kinds = set(map(type, values)) - {type(None)}
    are_lists = kinds <= {list, tuple}
    if len(kinds) > 1 and not are_lists and not all(issubclass(kind, numbers.Real) for kind in kinds):
        raise ValueError(f"{' and '.join(sorted(kind.__name__ for kind in kinds))} are mixed")
    if kinds.isdisjoint({datetime, list, tuple, dict}):
        return
    present = [value for value in values if value is not None]
    if kinds == {datetime} and len({value.tzinfo is None for value in present}) > 1:
        raise ValueError("times with and without a zone are mixed")
    if are_lists:
        _check_alike(list(chain.from_iterable(present)))
    if kinds == {dict}:
        for name in dict.fromkeys(chain.from_iterable(present)):
            _check_alike([value.get(name) for value in present])
