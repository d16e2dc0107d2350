"""File sinks: whole files or nothing, in a directory, named so that sorting by name gives the output order."""

from __future__ import annotations

import errno
import io
import os
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.connectors.files.csv import check_columns, check_delimiter
from penstock.connectors.files.discover import PathLike
from penstock.connectors.files.encoders import CsvEncoder, Encoder, JsonEncoder, ParquetEncoder, TextEncoder
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.errors import FlowError, SinkError
from penstock.schema import Schema

Mode = Literal["error", "append", "overwrite"]

_BYTES_PER_FILE = 128 << 20


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

    def open(self) -> DirectoryWriter:
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
        first = 1 + max(map(part_number, existing), default=-1) if self._mode == "append" else 0
        return DirectoryWriter(self, directory, first, old)

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def suffix(self) -> str:
        return self._suffix

    @property
    def directory(self) -> Path:
        return self._directory

    def describe(self) -> str:
        return str(self._directory)


def part_number(path: Path) -> int:
    digits = path.name.removeprefix("part-").split(".")[0].split("-")[0]
    return int(digits) if digits.isdigit() else -1


def encode(encoder: Encoder, values: Sequence[Any], position: int = 0) -> Rejected | None:
    """Encode all at once; where that fails, halve until the first bad value stands alone."""
    try:
        encoder.add(values)
    except Exception as error:
        if len(values) == 1:
            return Rejected(position, error)
        middle = len(values) // 2
        return encode(encoder, values[:middle], position) or encode(encoder, values[middle:], position + middle)
    return None


class DirectoryWriter(SinkWriter):
    """Writes under hidden names; a file gets its own name when it is whole."""

    def __init__(self, sink: FileSink, directory: Path, first: int, old: Sequence[Path]) -> None:
        self._sink = sink
        self._directory = directory
        self.first = self._part = first
        self.old: Sequence[Path] = old
        self._has_written = False
        self._file: io.BufferedWriter | None = None
        self._is_broken = False
        self._temporary = directory / f".{uuid.uuid4().hex}.tmp"
        self._encoder = sink.encoder()

    def write(self, values: Sequence[Any]) -> Rejected | None:
        rejected = encode(self._encoder, values) if values else None
        if values and (rejected is None or rejected.position):
            self._has_written = True
        with self._whole_or_nothing():
            self._put(self._encoder.take_bytes())
            if self._file is not None and self._file.tell() >= _BYTES_PER_FILE:
                self._publish()
        return rejected

    def close(self) -> None:
        if self._is_broken:
            return
        with self._whole_or_nothing():
            self._publish()
            self._remove_old()

    def abandon(self) -> None:
        """What was there before goes only if something has taken its place."""
        if not self._has_written:
            self.old = ()
        self.close()

    def _put(self, data: bytes) -> None:
        if data:
            if self._file is None:
                self._file = self._temporary.open("wb")
            self._file.write(data)

    def _publish(self) -> None:
        self._put(self._encoder.finish())
        if self._file is None:
            return
        self._file.close()
        self._remove_old()
        path = self._directory / f"part-{self._part:08d}{self._sink.suffix}"
        if path.exists():
            raise FileExistsError(errno.EEXIST, f"somebody else has written {path.name}")
        os.replace(self._temporary, path)
        self._file = None
        self._part += 1
        self._encoder = self._sink.encoder()

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """A file that can't be written to its end goes away, and nothing is written after it."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            self._is_broken = True
            with suppress(OSError):
                if self._file is not None:
                    self._file.close()
            self._temporary.unlink(missing_ok=True)
            reason = error.strerror if isinstance(error, OSError) else error
            raise SinkError(f"{self._sink.name} sink: can't write to {str(self._directory)!r}: {reason}") from error

    def _remove_old(self) -> None:
        """What is overwritten goes when the first new file is whole, not before."""
        for path in self.old:
            path.unlink(missing_ok=True)
        self.old = ()


class TextSink(FileSink):
    """Each tuple as a line: `str(value)`."""

    name = "text"

    def __init__(self, path: PathLike, mode: Mode) -> None:
        super().__init__(path, None, mode, ".txt")

    def encoder(self) -> Encoder:
        return TextEncoder()


class JsonSink(FileSink):
    """Each tuple as a line of JSON; named tuples and dataclasses as objects."""

    name = "json"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode) -> None:
        super().__init__(path, schema, mode, ".json")

    def encoder(self) -> Encoder:
        return JsonEncoder(self._schema)


class CsvSink(FileSink):
    """Rows as CSV, with a header line in every file."""

    name = "csv"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode, header: bool, delimiter: str) -> None:
        super().__init__(path, schema, mode, ".csv")
        check_delimiter("csv sink", delimiter)
        check_columns("csv sink", self._schema)
        self._header = header
        self._delimiter = delimiter

    def encoder(self) -> Encoder:
        return CsvEncoder(self._schema, self._header, self._delimiter)


class ParquetSink(FileSink):
    """Rows as Parquet; without a schema the columns are those of the first rows."""

    name = "parquet"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode) -> None:
        super().__init__(path, schema, mode, ".parquet")

    def encoder(self) -> Encoder:
        return ParquetEncoder(self._schema)
