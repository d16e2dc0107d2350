"""Sources of line-oriented files: text and JSON lines."""

from __future__ import annotations

import base64
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.clock import Clock
from penstock.connectors.files.discover import Paths, checked_on_change, checked_paths, find_files
from penstock.connectors.files.identity import (
    Identity,
    beginning_changed,
    beginning_identity,
    whole_changed,
    whole_identity,
)
from penstock.connectors.files.lines import (
    Block,
    Limits,
    is_compressed,
    last_line_end,
    next_line,
    parse_lines,
    read_blocks,
    size_of,
)
from penstock.connectors.source import Chunk, OnChange, Source, Split
from penstock.errors import FlowError
from penstock.schema import Row, Schema, ddl_type

try:
    import msgspec

    # Not in the source, which is pickled.
    _DECODERS = {None: msgspec.json.Decoder(), Decimal: msgspec.json.Decoder(float_hook=Decimal)}
except ImportError:  # there is none for a Python 3.13 without a GIL
    _DECODERS = {}


class LineFiles(Source):
    """Files whose lines are tuples; a position counts bytes, decompressed."""

    reads_anywhere = True
    _has_quoted_newlines = False

    def __init__(self, paths: Paths, schema: str | None, limits: Limits, on_change: OnChange) -> None:
        self._paths = checked_paths(self.name, paths)
        self._limits = limits
        self.schema = None if schema is None else Schema.parse(schema)
        self.on_change = checked_on_change(self.name, on_change)
        self._seen: tuple[tuple[str, int, Identity], ...] = ()
        """What the files were known by that were read last, while they were open."""

    def splits(self) -> Sequence[Split]:
        self._seen = ()
        return [Split(path, 0, size_of(path)) for path in find_files(self.name, self._paths)]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        for block in read_blocks(split.partition, split.start, split.end, self._limits):
            yield self._chunk(block, self._parse)

    def _chunk(self, block: Block, parse: Callable[[list[bytes]], list[Any]]) -> Chunk:
        self._seen = (*self._seen[-1:], (block.path, block.end, block.identity))
        return parse_lines(block, parse, self._limits)

    def cut(self, split: Split, near: int) -> int | None:
        """After the next end of a line."""
        return None if is_compressed(split.partition) else next_line(split.partition, near)

    def settled(self, split: Split) -> int | None:
        """Behind the last line that has an end: the rest of another may still be written."""
        if split.end is None:
            return None
        return last_line_end(split.partition, split.start, split.end, self._has_quoted_newlines)

    def identity(self, partition: str, position: int) -> Any:
        """As it was when it was read, where that was in this process: by now another may have its name."""
        for path, end, identity in reversed(self._seen):
            if (path, end) == (partition, position):
                return identity
        return whole_identity(partition) if is_compressed(partition) else beginning_identity(partition, position)

    def changed(self, partition: str, position: int, identity: Any) -> str | None:
        if is_compressed(partition):
            return whole_changed(partition, identity)
        return beginning_changed(partition, position, identity)

    @abstractmethod
    def _parse(self, lines: list[bytes]) -> list[Any]:
        """The values of some lines, all of them or a `ValueError`."""

    def describe(self) -> str:
        return ", ".join(self._paths)


class TextFiles(LineFiles):
    """Each line is a `str`, without its end."""

    name = "text"

    def __init__(self, paths: Paths, limits: Limits, on_change: OnChange) -> None:
        super().__init__(paths, None, limits, on_change)

    def _parse(self, lines: list[bytes]) -> list[Any]:
        text = b"".join(lines).decode()
        found = text.removesuffix("\n").split("\n") if lines else []
        return [line.removesuffix("\r") for line in found] if "\r" in text else found


class JsonFiles(LineFiles):
    """Each line is a JSON value; with a schema, an object whose fields are checked and converted."""

    name = "json"

    def __init__(self, paths: Paths, schema: str | None, limits: Limits, on_change: OnChange) -> None:
        super().__init__(paths, schema, limits, on_change)
        self._convert = None if self.schema is None else row_converter(self.schema)
        # A float keeps 17 digits, a decimal column all of them. (A column of that name costs time, nothing else.)
        self._parse_float = Decimal if self.schema is not None and "decimal" in str(self.schema.arrow) else None

    def _parse(self, lines: list[bytes]) -> list[Any]:
        values = [self._value(line) for line in lines if not line.isspace()]
        return values if self._convert is None else [self._convert(value) for value in values]

    def _value(self, line: bytes) -> Any:
        if line.count(b"[") + line.count(b"{") > self._limits.nesting and self._depth(line) > self._limits.nesting:
            raise ValueError(f"nested more than {self._limits.nesting} deep; if right, raise limits=Limits(nesting=…)")
        try:
            return _DECODERS[self._parse_float].decode(line)
        except Exception:  # the standard library takes some more, and tells better what it does not take
            return self._decode_slowly(line)

    def _decode_slowly(self, line: bytes) -> Any:
        try:
            return json.loads(line.decode(), parse_float=self._parse_float)
        except json.JSONDecodeError as error:
            column = min(error.pos, len(error.doc.rstrip())) + 1  # not in the next line, where JSON looks for more
            raise ValueError(f"not JSON: {error.msg} at column {column}") from None

    @staticmethod
    def _depth(line: bytes) -> int:
        depth = deepest = 0
        in_string = escaped = False
        for byte in line:
            if in_string:
                in_string = escaped or byte != ord('"')
                escaped = byte == ord("\\") and not escaped
            elif byte == ord('"'):
                in_string = True
            elif byte in b"[{":
                depth += 1
                deepest = max(deepest, depth)
            elif byte in b"]}":
                depth -= 1
        return deepest


Converter = Callable[[Any], Any]


def row_converter(schema: Schema) -> Callable[[Any], Row]:
    """A function from a parsed JSON object to a row of the schema; fields that the schema lacks are left out."""
    columns = [(field.name, _converter(field.type), field.nullable) for field in schema.arrow]

    def convert(value: Any) -> Row:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object with the fields {', '.join(schema.names)}, found {value!r:.60}")
        row = {}
        for name, converter, nullable in columns:
            field = value.get(name)
            if field is None and not nullable:
                raise ValueError(f"column {name!r} is NOT NULL and has no value")
            try:
                row[name] = None if field is None else converter(field)
            except (ValueError, TypeError, ArithmeticError):
                expected = ddl_type(schema.arrow.field(name).type)
                raise ValueError(f"column {name!r}: {field!r:.60} is not a {expected}") from None
        return row

    return convert


def _converter(kind: pa.DataType) -> Converter:
    types = pa.types
    if types.is_boolean(kind):
        return _instance_of(bool)
    if types.is_integer(kind):
        return _integer(kind.bit_width)
    if types.is_floating(kind):
        return _float
    if types.is_string(kind):
        return _instance_of(str)
    if types.is_binary(kind):
        return lambda value: base64.b64decode(_text(value), validate=True)
    if types.is_date(kind):
        return lambda value: date.fromisoformat(_text(value))
    if types.is_timestamp(kind):
        return _instant if kind.tz else _local_time
    if types.is_decimal(kind):
        return lambda value: pa.scalar(Decimal(str(value)), kind).as_py()
    if types.is_list(kind):
        element = _nullable(_converter(kind.value_type))
        return lambda values: [element(value) for value in _instance_of(list)(values)]
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise FlowError(f"json source: the keys of JSON objects are strings, so there is no {ddl_type(kind)}")
        item = _nullable(_converter(kind.item_type))
        return lambda value: {key: item(part) for key, part in _instance_of(dict)(value).items()}
    assert types.is_struct(kind), kind
    return row_converter(Schema(pa.schema(list(kind))))


def _nullable(converter: Converter) -> Converter:
    return lambda value: None if value is None else converter(value)


def _instance_of(kind: type) -> Converter:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return check


_text = _instance_of(str)


def _integer(bits: int) -> Converter:
    limit = 1 << (bits - 1)

    def check(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise TypeError
        return value

    return check


def _float(value: Any) -> float:
    if type(value) not in (float, int, Decimal):
        raise TypeError
    return float(value)


def _instant(value: Any) -> datetime:
    time = datetime.fromisoformat(_text(value))
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _local_time(value: Any) -> datetime:
    time = datetime.fromisoformat(_text(value))
    if time.tzinfo is not None:
        raise ValueError
    return time
