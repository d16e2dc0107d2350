"""Lines of text from a TCP server."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from penstock.clock import Clock
from penstock.connectors.files.lines import Limits, LineCutter
from penstock.connectors.source import Chunk, Source, Split, Unreadable
from penstock.errors import SourceError

_BLOCK_BYTES = 64 * 1024
_POLL_SECONDS = 0.002
_CONNECT_SECONDS = 10.0


class Socket(Source):
    """Each line that a server sends, without its end; the stream ends when the server closes the connection."""

    name = "socket"
    counts_rows = True
    bounded = False
    replayable = False

    def __init__(self, host: str, port: int, limits: Limits) -> None:
        self._host = host
        self._port = port
        self._limits = limits

    def splits(self) -> Sequence[Split]:
        return [Split(f"{self._host}:{self._port}")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        try:
            connection = socket.create_connection((self._host, self._port), timeout=_CONNECT_SECONDS)
        except (OSError, UnicodeError) as error:  # the latter for a name that can't be a host's
            raise SourceError(f"socket {self._host}:{self._port}: can't connect: {error}") from error
        with connection:
            connection.setblocking(False)
            yield from self._lines(connection, split.start)

    def _lines(self, connection: socket.socket, position: int) -> Iterator[Chunk]:
        cutter = LineCutter(self._limits)
        is_open = True
        while is_open:
            try:
                block = connection.recv(_BLOCK_BYTES)
            except BlockingIOError:
                yield Chunk((), position, idle_seconds=_POLL_SECONDS)
                continue
            except OSError as error:
                raise SourceError(f"socket {self._host}:{self._port}: the connection broke: {error}") from error
            is_open = bool(block)
            lines, _ = cutter.feed(block) if is_open else cutter.finish()
            if lines:
                values = [self._decoded(line, position + number) for number, line in enumerate(lines, 1)]
                position += len(lines)
                yield Chunk(values, position)

    def _decoded(self, line: bytes, number: int) -> str | Unreadable:
        try:
            self._limits.check_lines([line])
            return line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except ValueError as error:
            return self._limits.unreadable(line, f"socket {self._host}:{self._port}, line {number}: {error}")

    def describe(self) -> str:
        return f"{self._host}:{self._port}"
