"""File sinks: whole files or nothing, in a directory, named so that sorting by name gives the output order."""

from __future__ import annotations

import errno
import io
import os
import shutil
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.connectors.files.agreed import Agreement, CsvAgreement, ParquetAgreement
from penstock.connectors.files.csv import check_columns, check_delimiter
from penstock.connectors.files.discover import PathLike, checked_folder, local_path
from penstock.connectors.files.encoders import CsvEncoder, Encoder, JsonEncoder, ParquetEncoder, TextEncoder
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.errors import FlowError, SinkError
from penstock.schema import Schema

Mode = Literal["error", "append", "overwrite"]

BOOKKEEPING = ".penstock"
"""The folder in a directory of output where runs with a checkpoint note what they have written."""
_BYTES_PER_FILE = 128 << 20


class FileSink(Sink):
    """A directory of files in one format."""

    delivery = Delivery.TRANSACTIONAL
    any_thread = True

    def __init__(self, path: PathLike, schema: str | None, mode: Mode, suffix: str) -> None:
        if mode not in ("error", "append", "overwrite"):
            raise FlowError(f"{self.name} sink: mode= is 'error', 'append' or 'overwrite', not {mode!r}")
        checked_folder(f"{self.name} sink: path=", path)
        self._directory = Path(local_path(f"{self.name} sink", path))
        self._schema = None if schema is None else Schema.parse(schema)
        self._mode = mode
        self._suffix = suffix

    @abstractmethod
    def encoder(self, columns: Any = None) -> Encoder:
        """A fresh encoder, for a file that follows others with these columns."""

    def staging_encoder(self) -> Encoder:
        """An encoder for a file that is to agree with others before it is let out."""
        return self.encoder()

    @property
    def agreement(self) -> Agreement | None:
        """How files that are written apart are brought to the same columns, where they must be."""
        return None

    def open(self) -> DirectoryWriter:
        directory = self._directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            existing = sorted(child for child in directory.glob("part-*") if child.is_file())
        except OSError as error:
            raise unwritable(self.name, directory, error.strerror) from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise SinkError(f"{self.name} sink: the directory {str(directory)!r} is not writable")
        if existing and self._mode == "error":
            raise SinkError(
                f"{self.name} sink: {str(directory)!r} already holds output ({existing[0].name}); write elsewhere, "
                "or say mode='append' or mode='overwrite'"
            )
        old = existing if self._mode == "overwrite" else []
        first = 1 + max(map(part_number, existing), default=-1) if self._mode == "append" else 0
        columns = None
        if self._mode == "append" and self.agreement is not None:
            columns = self.agreement.of_output([path for path in existing if path.suffix == self._suffix])
        return DirectoryWriter(self, directory, first, old, columns)

    @property
    def place(self) -> object:
        return str(self._directory.resolve())

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


def unwritable(sink: str, directory: Path, reason: object) -> SinkError:
    """What to raise where a directory does not take what is to be written."""
    return SinkError(
        f"{sink} sink: can't write to {str(directory)!r}: {reason}; it must be a directory that this user may write "
        "to, on a disk with space left"
    )


def part_number(path: Path) -> int:
    digits = path.name.removeprefix("part-").split(".")[0].split("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


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

    def __init__(self, sink: FileSink, directory: Path, first: int, old: Sequence[Path], columns: Any = None) -> None:
        self._sink = sink
        self._directory = directory
        self.first = self._part = first
        self.old: Sequence[Path] = old
        self._has_written = False
        self._file: io.BufferedWriter | None = None
        self._is_broken = self._is_abandoned = False
        self._temporary = directory / f".{uuid.uuid4().hex}.tmp"
        self._encoder = sink.encoder(columns)

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
            if self._is_to_be_empty():
                self._put(self._encoder.empty())
                self._publish()
            self._remove_old()

    def _is_to_be_empty(self) -> bool:
        """Nothing has come, and nothing else is there: a file without rows says which columns there would be."""
        return not self._is_abandoned and self._part == 0 and not self._has_written

    def abandon(self) -> None:
        """What was there before goes only if something has taken its place."""
        self._is_abandoned = True
        if not self._has_written:
            self.old = ()
        self.close()

    def discard(self) -> None:
        self._is_broken = True
        if self._file is not None:
            self._file.close()
        self._temporary.unlink(missing_ok=True)

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
            raise FileExistsError(errno.EEXIST, f"another process has written {path.name}")
        os.replace(self._temporary, path)
        self._file = None
        self._part += 1
        self._encoder = self._encoder.followed_by(self._sink.encoder(self._encoder.columns))

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
            if not isinstance(error, OSError):
                raise SinkError(
                    f"{self._sink.name} sink: no file in {str(self._directory)!r} can hold these rows: {error}; give a "
                    "schema= of columns that it can hold"
                ) from error
            raise unwritable(self._sink.name, self._directory, error.strerror) from error

    def _remove_old(self) -> None:
        """What is overwritten goes when the first new file is whole, not before."""
        if self.old:  # what other runs know of their output here is no longer true
            shutil.rmtree(self._directory / BOOKKEEPING, ignore_errors=True)
        for path in self.old:
            path.unlink(missing_ok=True)
        self.old = ()


class TextSink(FileSink):
    """Each tuple as a line: `str(value)`."""

    name = "text"

    def __init__(self, path: PathLike, mode: Mode) -> None:
        super().__init__(path, None, mode, ".txt")

    def encoder(self, columns: Any = None) -> Encoder:
        return TextEncoder()


class JsonSink(FileSink):
    """Each tuple as a line of JSON; named tuples and dataclasses as objects."""

    name = "json"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode) -> None:
        super().__init__(path, schema, mode, ".json")

    def encoder(self, columns: Any = None) -> Encoder:
        return JsonEncoder(self._schema)


class CsvSink(FileSink):
    """Rows as CSV, with a header line in every file; without a schema the columns are those of the first row."""

    name = "csv"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode, header: bool, delimiter: str) -> None:
        super().__init__(path, schema, mode, ".csv")
        check_delimiter("csv sink", delimiter)
        check_columns("csv sink", self._schema)
        self._header = header
        self._delimiter = delimiter

    def encoder(self, columns: Any = None) -> Encoder:
        return CsvEncoder(self._schema, self._header, self._delimiter, columns, str(self._directory))

    def staging_encoder(self) -> Encoder:
        return CsvEncoder(self._schema, self._header or self._schema is None, self._delimiter)

    @property
    def agreement(self) -> Agreement | None:
        return CsvAgreement(self._delimiter, self._header) if self._schema is None else None


class ParquetSink(FileSink):
    """Rows as Parquet; without a schema the columns are those of the first rows."""

    name = "parquet"

    def __init__(self, path: PathLike, schema: str | None, mode: Mode) -> None:
        super().__init__(path, schema, mode, ".parquet")

    def encoder(self, columns: Any = None) -> Encoder:
        return ParquetEncoder(self._schema, columns)

    @property
    def agreement(self) -> Agreement | None:
        return ParquetAgreement() if self._schema is None else None
