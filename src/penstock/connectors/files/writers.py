"""File sinks: whole files or nothing, in a directory, named so that sorting by name gives the output order."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.connectors.files.discover import PathLike
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.errors import FlowError, SinkError
from penstock.schema import Row, Schema

Mode = Literal["error", "append", "overwrite"]

_BYTES_PER_FILE = 128 << 20
_ROWS_PER_GROUP = 65_536


class Encoder(ABC):
    """Turns values into the bytes of one file."""

    @abstractmethod
    def add(self, values: Sequence[Any]) -> None:
        """Take all of the values in, or raise `ValueError` and take none."""

    @abstractmethod
    def take_bytes(self) -> bytes:
        """What is ready to be written."""

    def finish(self) -> bytes:
        """The rest of the file."""
        return self.take_bytes()


class FileSink(Sink):
    """A directory of files in one format."""

    delivery = Delivery.TRANSACTIONAL

    def __init__(self, path: PathLike, schema: str | None, mode: Mode, suffix: str) -> None:
        if mode not in ("error", "append", "overwrite"):
            raise FlowError(f"{self.name} sink: mode= is 'error', 'append' or 'overwrite', not {mode!r}")
        self._directory = Path(os.fspath(path))
        self._schema = None if schema is None else Schema.parse(schema)
        self._mode = mode
        self._suffix = suffix

    @abstractmethod
    def encoder(self) -> Encoder:
        """A fresh encoder, for the next file."""

    def open(self) -> SinkWriter:
        directory = self._directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            existing = sorted(child for child in directory.glob("part-*") if child.is_file())
        except OSError as error:
            raise SinkError(f"{self.name} sink: can't write to {str(directory)!r}: {error.strerror}") from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise SinkError(f"{self.name} sink: the directory {str(directory)!r} is not writable")
        if existing and self._mode == "error":
            raise SinkError(
                f"{self.name} sink: {str(directory)!r} already holds output ({existing[0].name}); write elsewhere, "
                "or say mode='append' or mode='overwrite'"
            )
        old = existing if self._mode == "overwrite" else []
        first = 1 + max(map(_part_number, existing), default=-1) if self._mode == "append" else 0
        return _DirectoryWriter(self, directory, first, old)

    @property
    def suffix(self) -> str:
        return self._suffix

    def describe(self) -> str:
        return str(self._directory)


def _part_number(path: Path) -> int:
    digits = path.name.removeprefix("part-").split(".")[0].split("-")[0]
    return int(digits) if digits.isdigit() else -1


class _DirectoryWriter(SinkWriter):
    """Writes under hidden names; a file gets its own name when it is whole."""

    def __init__(self, sink: FileSink, directory: Path, first: int, old: Sequence[Path]) -> None:
        self._sink = sink
        self._directory = directory
        self._part = first
        self._old = old
        self._file: io.BufferedWriter | None = None
        self._temporary = directory / f".{uuid.uuid4().hex}.tmp"
        self._encoder = sink.encoder()

    def write(self, values: Sequence[Any]) -> Sequence[Rejected]:
        rejected: list[Rejected] = []
        self._add(values, 0, rejected)
        data = self._encoder.take_bytes()
        if data:
            self._put(data)
        if self._file is not None and self._file.tell() >= _BYTES_PER_FILE:
            self._publish()
        return rejected

    def close(self) -> None:
        if self._file is not None or (rest := self._encoder.finish()):
            if self._file is None:
                self._put(rest)
                self._rename()
            else:
                self._publish()
        self._remove_old()

    def _add(self, values: Sequence[Any], position: int, rejected: list[Rejected]) -> None:
        """All at once; where that fails, halve until each bad value stands alone."""
        try:
            self._encoder.add(values)
        except ValueError as error:
            if len(values) == 1:
                rejected.append(Rejected(position, error))
                return
            middle = len(values) // 2
            self._add(values[:middle], position, rejected)
            self._add(values[middle:], position + middle, rejected)

    def _put(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = self._temporary.open("wb")
            self._file.write(data)
        except OSError as error:
            raise self._error(error) from error

    def _publish(self) -> None:
        if rest := self._encoder.finish():
            self._put(rest)
        self._rename()
        self._encoder = self._sink.encoder()

    def _rename(self) -> None:
        assert self._file is not None
        try:
            self._file.close()
            self._remove_old()
            os.replace(self._temporary, self._directory / f"part-{self._part:08d}{self._sink.suffix}")
        except OSError as error:
            raise self._error(error) from error
        self._file = None
        self._part += 1

    def _remove_old(self) -> None:
        """What is overwritten goes when the first new file is whole, not before."""
        for path in self._old:
            path.unlink(missing_ok=True)
        self._old = ()

    def _error(self, error: OSError) -> SinkError:
        return SinkError(f"{self._sink.name} sink: can't write to {str(self._directory)!r}: {error.strerror}")


class _Buffered(Encoder):
    """Text formats: bytes pile up until they are taken."""

    def __init__(self) -> None:
        self._ready: list[bytes] = []

    def take_bytes(self) -> bytes:
        data = b"".join(self._ready)
        self._ready = []
        return data


class TextSink(FileSink):
    """Each tuple as a line: `str(value)`."""

    name = "text"

    def __init__(self, path: PathLike, mode: Mode) -> None:
        super().__init__(path, None, mode, ".txt")

    def encoder(self) -> Encoder:
        return _TextEncoder()


class _TextEncoder(_Buffered):
    def add(self, values: Sequence[Any]) -> None:
        lines = [str(value) for value in values]
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a line of text can't hold a line break; use ps.sinks.json for such values")
        self._ready.append("".join(line + "\n" for line in lines).encode())


class JsonSink(FileSink):
    """Each tuple as a line of JSON; named tuples and dataclasses as objects."""

    name = "json"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode) -> None:
        super().__init__(path, schema, mode, ".json")

    def encoder(self) -> Encoder:
        return _JsonEncoder(self._schema)


class _JsonEncoder(_Buffered):
    def __init__(self, schema: Schema | None) -> None:
        super().__init__()
        self._schema = schema

    def add(self, values: Sequence[Any]) -> None:
        plain = [as_plain(value) for value in values]
        if self._schema is not None:
            plain = self._schema.table(plain).to_pylist()
        try:
            lines = [json.dumps(value, ensure_ascii=False, default=_json_default, allow_nan=False) for value in plain]
            self._ready.append("".join(line + "\n" for line in lines).encode())
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None


def as_plain(value: Any) -> Any:
    """A tuple as rows and JSON know it: named tuples and dataclasses become dicts, at any depth of named tuples."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_plain(part) for name, part in value._asdict().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


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


def _rows(values: Sequence[Any]) -> list[Row]:
    rows = [as_plain(value) for value in values]
    if not all(isinstance(row, dict) for row in rows):
        kinds = sorted({type(row).__name__ for row in rows if not isinstance(row, dict)})
        raise ValueError(f"expected rows (dicts, named tuples or dataclasses), found {', '.join(kinds)}")
    return rows


def _inferred(rows: Sequence[Row]) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(str(error)) from None


class CsvSink(FileSink):
    """Rows as CSV, with a header line in every file."""

    name = "csv"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode, header: bool, delimiter: str) -> None:
        super().__init__(path, schema, mode, ".csv")
        self._header = header
        self._delimiter = delimiter

    def encoder(self) -> Encoder:
        return _CsvEncoder(self._schema, self._header, self._delimiter)


class _CsvEncoder(_Buffered):
    """Without a schema, the first row says which columns there are."""

    def __init__(self, schema: Schema | None, header: bool, delimiter: str) -> None:
        super().__init__()
        self._schema = schema
        self._names: tuple[str, ...] | None = None
        self._header_due = header
        self._delimiter = delimiter

    def add(self, values: Sequence[Any]) -> None:
        out = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=self._header_due, delimiter=self._delimiter)
        table = self._table(_rows(values))
        try:
            pyarrow.csv.write_csv(table, out, options)
        except pa.ArrowException as error:
            raise ValueError(str(error)) from None
        self._ready.append(out.getvalue().to_pybytes())
        self._names = tuple(table.column_names)
        self._header_due = False

    def _table(self, rows: list[Row]) -> pa.Table:
        if self._schema is not None:
            return self._schema.table(rows)
        names = self._names or tuple(rows[0])
        for row in rows:
            if unknown := [name for name in row if name not in names]:
                raise ValueError(f"the first row has no column {unknown[0]!r}, only {', '.join(names)}; give a schema=")
        return _inferred([{name: row.get(name) for name in names} for row in rows])


class ParquetSink(FileSink):
    """Rows as Parquet; without a schema the columns are those of the first rows."""

    name = "parquet"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode) -> None:
        super().__init__(path, schema, mode, ".parquet")

    def encoder(self) -> Encoder:
        return _ParquetEncoder(self._schema)


class _ParquetEncoder(Encoder):
    """Rows wait until they make a row group; without a schema, the first group's rows agree on the columns."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema: Any = None if schema is None else schema.arrow
        self._is_final = schema is not None
        self._pipe = _Pipe()
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, values: Sequence[Any]) -> None:
        rows = _rows(values)
        if self._is_final:
            table = Schema(self._schema).table(rows)
        else:
            table = _inferred(rows)
            try:
                known = [table.schema] if self._schema is None else [self._schema, table.schema]
                self._schema = pa.unify_schemas(known, promote_options="permissive")
            except (pa.ArrowException, TypeError) as error:
                raise ValueError(f"{error}; give a schema=") from None
        self._waiting.append(table)
        self._waiting_rows += len(rows)

    def take_bytes(self) -> bytes:
        if self._waiting_rows >= _ROWS_PER_GROUP:
            self._write_group()
        return self._pipe.drain()

    def finish(self) -> bytes:
        if self._waiting_rows:
            self._write_group()
        if self._writer is None:
            return b""
        self._writer.close()
        return self._pipe.drain()

    def _write_group(self) -> None:
        tables = [*self._waiting, self._schema.empty_table()]
        table = pa.concat_tables(tables, promote_options="permissive").select(self._schema.names)
        self._is_final = True
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._pipe, self._schema)
        self._writer.write_table(table.cast(self._schema).combine_chunks())
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
