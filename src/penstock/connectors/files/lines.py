"""The only reader of line-oriented files: blocks of whole lines, with their byte positions and line numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.connectors.files.identity import Identity, Watched
from penstock.connectors.source import Chunk, Unreadable
from penstock.errors import SourceError

_BLOCK_BYTES = 1 << 20
_END_BYTES = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Limits:
    """What a reader accepts before it calls the input broken."""

    line_bytes: int = 16 << 20
    fields: int = 10_000
    nesting: int = 64
    decompressed_bytes: int = 1 << 40

    def check_lines(self, lines: Sequence[bytes]) -> None:
        if max(map(len, lines), default=0) > self.line_bytes:
            raise ValueError(
                f"longer than {self.line_bytes:,} bytes; if that is right, raise limits=Limits(line_bytes=…)"
            )

    def unreadable(self, line: bytes, message: str) -> Unreadable:
        text = line[: self.line_bytes].decode("utf-8", "replace").rstrip("\r\n")
        return Unreadable(text, SourceError(message))


class LineCutter:
    """Cuts bytes into whole lines as they come; of a line that is too long it keeps only the beginning.

    With `quoted_newlines` a line goes on where a newline stands inside quotes.
    """

    def __init__(self, limits: Limits, quoted_newlines: bool = False) -> None:
        self._limits = limits
        self._quoted_newlines = quoted_newlines
        self._rest = b""
        self._dropped = 0

    def feed(self, data: bytes) -> tuple[list[bytes], int]:
        """The lines that are whole now, and how many bytes they took."""
        lines: list[bytes] = []
        length = 0
        if len(self._rest) > self._limits.line_bytes:
            end = data.find(b"\n")
            if end < 0:
                self._dropped += len(data)
                return [], 0
            self._dropped += end
            self._rest += b"\n"
            lines, length = self.finish()
            data = data[end + 1 :]
        data = self._rest + data
        cut = _last_line_end(data, self._quoted_newlines)
        self._rest = data[cut:]
        return [*lines, *_split(data[:cut], self._quoted_newlines)], length + cut

    def finish(self) -> tuple[list[bytes], int]:
        """The last line, if it has no end."""
        lines, length = [self._rest] if self._rest else [], len(self._rest) + self._dropped
        self._rest, self._dropped = b"", 0
        return lines, length


def _last_line_end(data: bytes, quoted_newlines: bool, quotes: int = 0) -> int:
    """Where the last line ends, so many quotes into a line or not."""
    cut = data.rfind(b"\n") + 1
    if quoted_newlines:
        quotes += data.count(b'"', 0, cut)
        while quotes % 2 and cut:
            previous = data.rfind(b"\n", 0, cut - 1) + 1
            quotes -= data.count(b'"', previous, cut)
            cut = previous
    return cut


def _split(data: bytes, quoted_newlines: bool) -> list[bytes]:
    """Split at newlines alone: `splitlines` would also split at a lone carriage return."""
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    if not quoted_newlines:
        return lines
    joined: list[bytes] = []
    is_open = False
    for line in lines:
        if is_open:
            joined[-1] += line
        else:
            joined.append(line)
        is_open ^= bool(line.count(b'"') % 2)
    return joined


class Beginning:
    """Where a read began; the number of that line is found by reading up to it, once, and only errors ask."""

    def __init__(self, path: str, position: int) -> None:
        self._path = path
        self._position = position

    @cached_property
    def line(self) -> int:
        number, left = 1, self._position
        with pa.input_stream(self._path, compression="detect") as stream:
            while left > 0 and (data := stream.read(min(left, _BLOCK_BYTES))):
                number += data.count(b"\n")
                left -= len(data)
        return number


@dataclass(frozen=True)
class Block:
    """Whole lines of one file; `start` and `end` count bytes, decompressed."""

    path: str
    start: int
    end: int
    lines: list[bytes]
    beginning: Beginning
    lines_before: int
    """How many lines of the file lie between the beginning and this block."""
    identity: Identity
    """What the file is known by, read up to the end of this block."""

    @cached_property
    def line_numbers(self) -> list[int]:
        """The number of each line in the file; only errors ask."""
        first = self.beginning.line + self.lines_before
        return list(accumulate((line.count(b"\n") for line in self.lines), initial=first))


def is_compressed(path: str) -> bool:
    return path.endswith((".gz", ".bz2", ".zst", ".lz4"))


def size_of(path: str) -> int | None:
    """The size in bytes that positions count, known without reading only where nothing is compressed."""
    return None if is_compressed(path) else os.path.getsize(path)


def next_line(path: str, position: int) -> int:
    """Where the first line begins that begins at a position or behind it; however long the one before is."""
    if position == 0:
        return 0
    with open(path, "rb") as file:
        offset = position - 1
        file.seek(offset)
        while data := file.read(_BLOCK_BYTES):
            if (end := data.find(b"\n")) >= 0:
                return offset + end + 1
            offset += len(data)
    return offset


def last_line_end(path: str, start: int, end: int, quoted_newlines: bool) -> int:
    """Where the last line ends that has an end (outside quotes), between two positions."""
    with open(path, "rb") as file:
        return (_last_end_outside_quotes if quoted_newlines else _last_end)(file, start, end)


def _last_end(file: BinaryIO, start: int, end: int) -> int:
    while end > start:
        first = max(start, end - min(_BLOCK_BYTES, _END_BYTES))
        file.seek(first)
        if (found := file.read(end - first).rfind(b"\n")) >= 0:
            return first + found + 1
        end = first
    return start


def _last_end_outside_quotes(file: BinaryIO, start: int, end: int) -> int:
    """Only who has read everything before knows which newlines stand inside quotes."""
    last, quotes = start, 0
    file.seek(start)
    while start < end and (data := file.read(min(_BLOCK_BYTES, end - start))):
        if cut := _last_line_end(data, quoted_newlines=True, quotes=quotes):
            last = start + cut
        quotes += data.count(b'"')
        start += len(data)
    return last


def read_blocks(
    path: str, start: int, end: int | None, limits: Limits, quoted_newlines: bool = False
) -> Iterator[Block]:
    """The lines between two positions, in blocks that end at a line's end (or outside quotes)."""
    beginning = Beginning(path, start)
    cutter = LineCutter(limits, quoted_newlines)
    position, lines_before = start, 0
    with _readable(path), closing(Watched(path)) as file:
        whole = file.whole_identity() if is_compressed(path) else None
        pieces = (
            _plain_pieces(file, start, end) if whole is None else _decompressed(path, file, whole, start, end, limits)
        )
        for lines, length in _cut(pieces, cutter):
            block_end = position + length
            identity = file.identity(block_end) if whole is None else whole
            block = Block(path, position, block_end, lines, beginning, lines_before, identity)
            lines_before += sum(line.count(b"\n") for line in lines) if quoted_newlines else len(lines)
            position = block.end
            if block.start == 0 and lines[0].startswith(BYTE_ORDER_MARK):
                lines[:1] = filter(None, [lines[0][len(BYTE_ORDER_MARK) :]])
            yield block


def _cut(pieces: Iterator[bytes], cutter: LineCutter) -> Iterator[tuple[list[bytes], int]]:
    for data in pieces:
        lines, length = cutter.feed(data)
        if lines:
            yield lines, length
    lines, length = cutter.finish()
    if lines:
        yield lines, length


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error}") from error


def _plain_pieces(file: Watched, start: int, end: int | None) -> Iterator[bytes]:
    while end is None or start < end:
        data = file.read(start, _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - start))
        if not data:
            if end is not None:
                raise file.error("became shorter while it was read")
            return
        start += len(data)
        yield data


def _decompressed(
    path: str, file: Watched, identity: Identity, start: int, end: int | None, limits: Limits
) -> Iterator[bytes]:
    with pa.input_stream(path, compression="detect") as stream:
        position = 0
        while (end is None or position < end) and (data := stream.read(_BLOCK_BYTES)):
            file.check_whole(identity)
            first, position = position, position + len(data)
            if position > limits.decompressed_bytes:
                raise SourceError(
                    f"{path}: more than {limits.decompressed_bytes:,} bytes when decompressed; "
                    "if that is right, raise limits=Limits(decompressed_bytes=…)"
                )
            if wanted := data[max(0, start - first) : None if end is None else end - first]:
                yield wanted
        if position < start:
            raise SourceError(f"{path}: shorter than the position {start:,} it was read to; has it changed?")


def parse_lines(block: Block, parse: Callable[[list[bytes]], list[Any]], limits: Limits) -> Chunk:
    """Parse a block at once; where that fails, halve it until each bad line stands alone as `Unreadable`."""
    values: list[Any] = []
    may_be_too_long = block.end - block.start > limits.line_bytes

    def parse_range(first: int, end: int) -> None:
        lines = block.lines[first:end]
        try:
            if may_be_too_long:
                limits.check_lines(lines)
            values.extend(parse(lines))
        except (ValueError, RecursionError) as error:
            if len(lines) > 1:
                middle = (first + end) // 2
                parse_range(first, middle)
                parse_range(middle, end)
                return
            where = f"{block.path}, line {block.line_numbers[first]}"
            values.append(limits.unreadable(lines[0], f"{where}: {error}"))

    parse_range(0, len(block.lines))
    return Chunk(values, block.end)
