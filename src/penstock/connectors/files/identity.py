"""The only code that says whether a file is still the one that was read: by its bytes, never by its name or its times.

A file is known by how many of its bytes were read, and by the first and the last of these. A copy of it, or one that
has only grown, is the same file. Inode and times are no more than a hint that it is worth looking at the bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import SourceError

_EDGE_BYTES = 4096

Identity = dict[str, Any]


def beginning_identity(path: str, position: int) -> Identity:
    """What a file is known by that was read up to a position, and may grow."""
    with _opened(path) as file:
        return _identity(file, position)


def whole_identity(path: str) -> Identity:
    """What a file is known by that may not change at all."""
    with _opened(path) as file:
        return _identity(file, os.fstat(file).st_size)


def beginning_changed(path: str, position: int, identity: Any) -> str | None:
    """What is different about a file that was read up to a position."""
    with _opened(path) as file:
        size = os.fstat(file).st_size
        if size < position:
            return f"it has {size:,} bytes, and had {position:,} or more"
        if identity is not None and _identity(file, position) != identity:
            return f"its first {position:,} bytes are not what they were"
    return None


def whole_changed(path: str, identity: Any) -> str | None:
    """What is different about a file that may not change at all."""
    if identity is None or (now := whole_identity(path)) == identity:
        return None
    if now["bytes"] != identity["bytes"]:
        return f"it had {identity['bytes']:,} bytes and has {now['bytes']:,}"
    return "it holds other bytes"


class Watched:
    """A file that is being read, and must stay what it was when it was opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise SourceError(f"{path}: the file is gone; it was there when the run began") from None
        self._status = os.fstat(self._file)
        self._last = b""
        """The last bytes that were read, to find them again when more are read."""

    def read(self, position: int, size: int) -> bytes:
        """Up to so many bytes from a position on, which is where the last ones ended."""
        data = _read(self._file, position, size)
        last, self._last = self._last, (self._last + data[-_EDGE_BYTES:])[-_EDGE_BYTES:]
        if _read(self._file, position - len(last), len(last)) != last:
            raise self.error("was written over while it was read")
        status = os.fstat(self._file)
        if status.st_size < position + len(data):
            raise self.error("became shorter while it was read")
        self._check_path(position)
        return data

    def identity(self, position: int) -> Identity:
        return _identity(self._file, position)

    def whole_identity(self) -> Identity:
        return _identity(self._file, self._status.st_size)

    def check_whole(self, identity: Identity) -> None:
        """`SourceError` if anything at all has changed since it was opened."""
        status = self._path_status()
        if _hint(status) != _hint(self._status):
            if (what := whole_changed(self._path, identity)) is not None:
                raise self.error(f"has changed while it was read: {what}")
            self._status = status

    def _check_path(self, position: int) -> None:
        """Another file under the same name is the same if what was read is at its beginning."""
        status = self._path_status()
        if (status.st_dev, status.st_ino) != (self._status.st_dev, self._status.st_ino):
            if (what := beginning_changed(self._path, position, self.identity(position))) is not None:
                raise self.error(f"was replaced while it was read: {what}")
            self._status = status

    def _path_status(self) -> os.stat_result:
        try:
            return os.stat(self._path)
        except FileNotFoundError:
            raise self.error("is gone; it was there when the run began") from None

    def error(self, what: str) -> SourceError:
        return SourceError(f"{self._path}: the file {what}; write new data to new files, or to the end of this one")

    def close(self) -> None:
        os.close(self._file)


def _hint(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror}") from None
    try:
        yield file
    finally:
        os.close(file)


def _identity(file: int, position: int) -> Identity:
    first = _read(file, 0, min(position, _EDGE_BYTES))
    start = max(0, position - _EDGE_BYTES)
    last = _read(file, start, position - start)
    return {"bytes": position, "first": _digest(first), "last": _digest(last)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _read(file: int, position: int, size: int) -> bytes:
    """All of these bytes, unless the file ends before."""
    data = os.pread(file, size, position)
    while len(data) < size and (more := os.pread(file, size - len(data), position + len(data))):
        data += more
    return data
