"""The only reader of line-oriented files: blocks of whole lines, with their byte positions and line numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connectors.source import Chunk, Unreadable
from penstock.errors import SourceError

_BLOCK_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Limits:
    """What a reader accepts before it calls the input broken."""

    line_bytes: int = 16 << 20
    fields: int = 10_000
    nesting: int = 64
    decompressed_bytes: int = 1 << 40


@dataclass(frozen=True)
class Block:
    """Whole lines of one file; `start` counts bytes, decompressed."""

    path: str
    start: int
    data: bytes

    def lines(self) -> list[bytes]:
        """Split at newlines alone: `splitlines` would also split at a lone carriage return."""
        *lines, last = self.data.split(b"\n")
        whole = [line + b"\n" for line in lines]
        return [*whole, last] if last else whole


def is_compressed(path: str) -> bool:
    return path.endswith((".gz", ".bz2", ".zst", ".lz4"))


def size_of(path: str) -> int | None:
    """The size in bytes that positions count, known without reading only where nothing is compressed."""
    return None if is_compressed(path) else os.path.getsize(path)


def read_blocks(
    path: str, start: int, end: int | None, limits: Limits, quoted_newlines: bool = False
) -> Iterator[Block]:
    """The lines between two positions, in blocks that end at a line's end (or outside quotes)."""
    position, rest = start, b""
    for data in _raw_blocks(path, start, end, limits):
        data = rest + data
        cut = _last_line_end(data, quoted_newlines)
        if cut:
            yield Block(path, position, data[:cut])
            position += cut
        rest = data[cut:]
        if len(rest) > limits.line_bytes:
            raise SourceError(
                f"{path}, line {line_number(path, position)}: longer than {limits.line_bytes:,} bytes; "
                "if that is right, raise limits=Limits(line_bytes=…)"
            )
    if rest:
        yield Block(path, position, rest)


def _last_line_end(data: bytes, quoted_newlines: bool) -> int:
    cut = data.rfind(b"\n") + 1
    if quoted_newlines:
        while cut and data.count(b'"', 0, cut) % 2:
            cut = data.rfind(b"\n", 0, cut - 1) + 1
    return cut


def _raw_blocks(path: str, start: int, end: int | None, limits: Limits) -> Iterator[bytes]:
    try:
        with pa.input_stream(path, compression="detect") as stream:
            _skip(stream, start, path)
            position = start
            while end is None or position < end:
                data = stream.read(_BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - position))
                if not data:
                    return
                position += len(data)
                if is_compressed(path) and position > limits.decompressed_bytes:
                    raise SourceError(
                        f"{path}: more than {limits.decompressed_bytes:,} bytes when decompressed; "
                        "if that is right, raise limits=Limits(decompressed_bytes=…)"
                    )
                yield data
    except FileNotFoundError:
        raise SourceError(f"{path}: the file is gone; it was there when the run began") from None
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error}") from error


def _skip(stream: Any, start: int, path: str) -> None:
    if not is_compressed(path):
        stream.seek(start)
        return
    while start > 0:
        skipped = len(stream.read(min(start, _BLOCK_BYTES)))
        if not skipped:
            raise SourceError(f"{path}: shorter than the position {start:,} it was read to; has it changed?")
        start -= skipped


def line_number(path: str, position: int) -> int:
    """The number of the line at a byte position, found by reading up to it: only errors ask."""
    number, left = 1, position
    with pa.input_stream(path, compression="detect") as stream:
        while left > 0 and (data := stream.read(min(left, _BLOCK_BYTES))):
            number += data.count(b"\n")
            left -= len(data)
    return number


def parse_lines(block: Block, parse: Callable[[list[bytes]], list[Any]], quoted_newlines: bool = False) -> Chunk:
    """Parse a block at once; where that fails, halve it until each bad line stands alone as `Unreadable`."""
    lines = records(block.lines()) if quoted_newlines else block.lines()
    values: list[Any] = []
    position = block.start
    if position == 0 and lines and lines[0].startswith(_BYTE_ORDER_MARK):
        lines[0] = lines[0][len(_BYTE_ORDER_MARK) :]
        position = len(_BYTE_ORDER_MARK)

    def parse_range(lines: list[bytes]) -> None:
        nonlocal position
        try:
            values.extend(parse(lines))
        except (ValueError, RecursionError) as error:
            if len(lines) > 1:
                middle = len(lines) // 2
                parse_range(lines[:middle])
                parse_range(lines[middle:])
                return
            number = line_number(block.path, position)
            text = lines[0].decode("utf-8", "replace").rstrip("\r\n")
            values.append(Unreadable(text, SourceError(f"{block.path}, line {number}: {error}")))
        position += sum(map(len, lines))

    parse_range(lines)
    return Chunk(values, block.start + len(block.data))


def records(lines: list[bytes]) -> list[bytes]:
    """Lines joined where a newline stands inside quotes."""
    joined: list[bytes] = []
    is_open = False
    for line in lines:
        if is_open:
            joined[-1] += line
        else:
            joined.append(line)
        is_open ^= bool(line.count(b'"') % 2)
    return joined
