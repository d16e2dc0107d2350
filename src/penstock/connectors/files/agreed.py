"""The only code that makes the files of one output have the same columns, where no schema was given.

Files that are written apart, by slices of a batch or by one batch after another, find out by themselves what their
columns are. Files that are out stay as they are, so from then on their columns hold.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from penstock.errors import SinkError


class Agreement(ABC):
    """What columns are in one format, and how files come to the same ones."""

    kind: str

    def of_output(self, files: Sequence[Path]) -> Any:
        """The columns of files that are out, which the newest one tells; `None` where it can't."""
        if not files:
            return None
        try:
            return self.of(files[-1].read_bytes())
        except (OSError, ValueError, pa.ArrowException, csv.Error) as error:
            raise SinkError(
                f"{self.kind} sink: {str(files[-1])!r} can't be read, so it is not known which columns the output has "
                f"({error}); put the file back as it was, or move it away, or give a schema="
            ) from None

    @abstractmethod
    def of(self, data: bytes) -> Any:
        """The columns of a file, as it is staged."""

    @abstractmethod
    def together(self, where: str, known: Any, found: Sequence[Any]) -> Any:
        """The columns that some files have together; those of files that are out, if there are any."""

    def is_ready(self, columns: Any, together: Any) -> bool:
        """Whether a staged file with some columns can be let out as it is."""
        return bool(columns == together)

    @abstractmethod
    def fitted(self, data: bytes, columns: Any) -> bytes:
        """The same rows with all of these columns, as a file that can be let out."""

    @abstractmethod
    def kept(self, columns: Any) -> Any:
        """Columns in JSON's types."""

    @abstractmethod
    def taken_up(self, kept: Any) -> Any:
        """Columns that were kept."""


class ParquetAgreement(Agreement):
    """A column that is missing or `None` in all of a file gets the type that it has in others."""

    kind = "parquet"

    def of(self, data: bytes) -> pa.Schema:
        return pyarrow.parquet.read_schema(pa.BufferReader(data)).remove_metadata()

    def together(self, where: str, known: Any, found: Sequence[Any]) -> pa.Schema:
        try:
            together = pa.unify_schemas([*([] if known is None else [known]), *found], promote_options="default")
        except pa.ArrowException as error:
            raise SinkError(f"parquet sink: {where} would have different columns: {error}; give a schema=") from None
        if known is not None:
            for field in together:
                if field.name not in known.names:
                    raise SinkError(
                        f"parquet sink: {where}: column {field.name!r} is not in the files that are out; give a schema="
                    )
                if field.type != known.field(field.name).type:
                    raise SinkError(
                        f"parquet sink: {where}: column {field.name!r} is {field.type} now, and was None in all rows "
                        "of the files that are out, so they could not be known; give a schema="
                    )
        return together

    def fitted(self, data: bytes, columns: pa.Schema) -> bytes:
        table = pyarrow.parquet.read_table(pa.BufferReader(data))
        arrays = [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
            for field in columns
        ]
        out = pa.BufferOutputStream()
        pyarrow.parquet.write_table(pa.table(arrays, schema=columns), out)
        made: bytes = out.getvalue().to_pybytes()
        return made

    def kept(self, columns: pa.Schema) -> str:
        return base64.b64encode(columns.serialize().to_pybytes()).decode()

    def taken_up(self, kept: str) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kept)))


class CsvAgreement(Agreement):
    """All files have the same columns, in the order of the first file.

    Staged files have a header even where those that are let out have none.

    >>> csv_files = CsvAgreement(",", has_header=True)
    >>> csv_files.fitted(b'"a","b"\\n1,"x,\\n"\\n', ("b", "a"))
    b'"b","a"\\n"x,\\n",1\\n'
    """

    kind = "csv"

    def __init__(self, delimiter: str, has_header: bool) -> None:
        self._delimiter = delimiter
        self._has_header = has_header

    def of_output(self, files: Sequence[Path]) -> Any:
        return super().of_output(files) if self._has_header else None

    def of(self, data: bytes) -> tuple[str, ...] | None:
        with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="") as text:
            return tuple(next(csv.reader(text, delimiter=self._delimiter, strict=True), ())) or None

    def together(self, where: str, known: Any, found: Sequence[Any]) -> Any:
        first = found[0] if known is None else known
        for columns in found:
            if set(columns) != set(first):
                raise other_columns(where, first, columns)
        return first

    def is_ready(self, columns: Any, together: Any) -> bool:
        return self._has_header and bool(columns == together)

    def fitted(self, data: bytes, columns: Sequence[str]) -> bytes:
        # Cells stay as they are: what is quoted is text, and what is not is something else, or nothing.
        delimiter = re.escape(self._delimiter.encode())
        cells = re.findall(rb'("[^"]*"(?:"[^"]*")*|[^"\n' + delimiter + rb"]*)(?:" + delimiter + rb"|\n)", data)
        before = self.of(data) or ()
        order = [before.index(name) for name in columns]
        starts = range(0 if self._has_header else len(before), len(cells), len(before))
        joined = self._delimiter.encode()
        return b"".join(joined.join([cells[start + index] for index in order]) + b"\n" for start in starts)

    def kept(self, columns: Sequence[str]) -> list[str]:
        return list(columns)

    def taken_up(self, kept: Sequence[str]) -> tuple[str, ...]:
        return tuple(kept)


def other_columns(where: str, there: Sequence[str], found: Sequence[str]) -> SinkError:
    """What to raise where the rows of a CSV output have other columns than its files."""
    return SinkError(
        f"csv sink: {where} would have different columns: {', '.join(map(str, there))} in the first, and "
        f"{', '.join(map(str, found))} in another; give a schema=, or write to another directory"
    )
