"""The only code that writes and reads a checkpoint's files: what appears there appears whole, and what is read back is
checked first.

A *sealed* file carries a digest of its own name and content: nothing else vouches for it. A *blob* carries none: its
digest stands in a sealed file. With a key, digests are HMACs, so that only its owner can write what will be read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from pyarrow import fs

from penstock.errors import CheckpointError, describe_exception

KEY_VARIABLE = "PENSTOCK_CHECKPOINT_KEY"
SYNC_VARIABLE = "PENSTOCK_FSYNC"
"""Where it is set, what is written outlives a power cut as well, and takes as long as the disk takes."""
FORMAT = 3
"""What this version writes, and the only one that it reads. 1 had no seals."""
_SEAL = re.compile(rb"penstock (\d{1,9}) ([0-9a-f]{64})\n")
_HASHED_BYTES = 1 << 20


@dataclass(frozen=True)
class Sealed:
    """What a sealed file holds, and its digest."""

    body: bytes
    seal: str


@dataclass(frozen=True)
class Blob:
    """A file, or a part of one, that is known by its digest."""

    file: str
    digest: str
    offset: int = 0
    length: int | None = None


class Files:
    """The files under one root, a local path or a URI, by their names relative to it.

    The key is that of the environment, if none is given; `b""` is none.

    >>> import tempfile
    >>> files = Files(tempfile.mkdtemp())
    >>> files.create("log/1", b"mine"), files.create("log/1", b"yours"), files.unseal("log/1").body
    (True, False, b'mine')
    >>> files.names("log")
    ['log/1']
    >>> files.fetch(files.keep("some/", b"bytes"), "what they are")
    b'bytes'
    """

    def __init__(self, root: str, key: bytes | None = None) -> None:
        self.root = root
        self._key = os.environ.get(KEY_VARIABLE, "").encode() if key is None else key
        self._store = _connect(root)

    def __reduce__(self) -> tuple[Any, ...]:
        return Files, (self.root, self._key)

    def digest(self, data: bytes) -> str:
        """What a file's content is known by: its SHA-256, or its HMAC-SHA256 where there is a key."""
        if self._key:
            return hmac.new(self._key, data, hashlib.sha256).hexdigest()
        return hashlib.sha256(data).hexdigest()

    def seal(self, name: str, body: bytes) -> str:
        """Make or replace a sealed file, whole or not at all, and return its seal."""
        seal = self._seal(name, body)
        self._write(name, _sealed(seal, body))
        return seal

    def create(self, name: str, body: bytes) -> bool:
        """Make a sealed file unless there is one of that name, and say whether we did."""
        with self._reporting("write", name):
            return self._store.put_if_absent(_checked(name), _sealed(self._seal(name, body), body))

    def unseal(self, name: str) -> Sealed:
        """What a sealed file holds; `FileNotFoundError` where there is none, `CheckpointError` where it is damaged."""
        data = self._read(name)
        header = _SEAL.match(data)
        if header is None:
            raise self.damaged(name)
        if int(header[1]) != FORMAT:
            raise CheckpointError(
                f"{self.path(name)} has format {int(header[1])}, and this version of Penstock reads format {FORMAT}: "
                "use the version that wrote it, or start with a new checkpoint"
            )
        body, seal = data[header.end() :], header[2].decode()
        if not hmac.compare_digest(self._seal(name, body), seal):
            raise self.damaged(name)
        return Sealed(body, seal)

    def keep(self, prefix: str, data: bytes) -> Blob:
        """Write a blob, whose name ends with its digest: the same bytes are the same file, in every process."""
        digest = self.digest(data)
        self._write(prefix + digest, data)
        return Blob(prefix + digest, digest)

    def fetch(self, blob: Blob, what: str) -> bytes:
        """The bytes of a blob; `CheckpointError` where they are not those that were written."""
        try:
            data = self._read(blob.file, blob.offset, blob.length)
        except FileNotFoundError:
            raise self.missing(blob.file, what) from None
        if not hmac.compare_digest(self.digest(data), blob.digest):
            raise self.damaged(blob.file, what)
        return data

    def copy(self, name: str, to: Files) -> None:
        """Write the same file elsewhere."""
        to._write(name, self._read(name))

    def check(self, blob: Blob, what: str) -> None:
        """`CheckpointError` where the bytes of a whole blob are not those that were written; holds few in memory."""
        running = self._hash()
        position = 0
        try:
            while data := self._read(blob.file, position, _HASHED_BYTES):
                running.update(data)
                position += len(data)
        except FileNotFoundError:
            raise self.missing(blob.file, what) from None
        if not hmac.compare_digest(running.hexdigest(), blob.digest):
            raise self.damaged(blob.file, what)

    def path(self, name: str) -> str:
        """The whole path of a file, for people."""
        return f"{self.root.rstrip('/')}/{name}"

    def damaged(self, name: str, what: str = "") -> CheckpointError:
        """What to raise where a file is not what was written."""
        return CheckpointError(
            f"{self.path(name)}{what and f', with {what},'} is damaged, was swapped with another, or was written with "
            f"another key: restore it from a copy of this checkpoint, set {KEY_VARIABLE} as it was, or start with a "
            "new checkpoint"
        )

    def missing(self, name: str, what: str) -> CheckpointError:
        """What to raise where a file is gone that is needed."""
        return CheckpointError(
            f"{self.path(name)}, with {what}, is missing; a checkpoint can't be used without any of its files: restore "
            "it from a copy of this checkpoint, or start with a new one"
        )

    def _seal(self, name: str, body: bytes) -> str:
        """Of its name as well: under another name it would mean something else."""
        return self.digest(name.encode() + b"\0" + body)

    def _hash(self) -> Any:
        return hmac.new(self._key, digestmod=hashlib.sha256) if self._key else hashlib.sha256()

    def _read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._reporting("read", name):
            return self._store.read(_checked(name), offset, length)

    def _write(self, name: str, data: bytes) -> None:
        with self._reporting("write", name):
            self._store.put(_checked(name), data)

    def names(self, folder: str, *, temporary: bool = False) -> list[str]:
        """The files directly in a folder, sorted; or those that a dead process has left half written there."""
        with self._reporting("list", folder):
            found = self._store.list(_checked(folder))
        return sorted(f"{folder}/{name}" for name in found if name.startswith(".") == temporary)

    def local_path(self, name: str) -> str | None:
        """Where a file lies on the local disk; `None` where the root is elsewhere."""
        return f"{self._store.root}/{_checked(name)}" if isinstance(self._store, _LocalStore) else None

    def modified(self, name: str) -> float:
        """When the file was last written, in Unix time."""
        with self._reporting("read", name):
            return self._store.modified(_checked(name))

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._reporting("delete", name), suppress(FileNotFoundError):
            self._store.delete(_checked(name))

    def delete_folder(self, name: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with self._reporting("delete", name), suppress(FileNotFoundError):
            self._store.delete_folder(_checked(name))

    @contextmanager
    def _reporting(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"can't {verb} {self.path(name)}: {describe_exception(error)}; "
                f"{self.root!r} must be a folder that this user may read and write, on a disk with space left"
            ) from error


class _Store(Protocol):
    """What `Files` needs of a disk or an object store."""

    def read(self, name: str, offset: int, length: int | None) -> bytes: ...
    def put(self, name: str, data: bytes) -> None: ...
    def put_if_absent(self, name: str, data: bytes) -> bool: ...
    def list(self, folder: str) -> list[str]: ...
    def modified(self, name: str) -> float: ...
    def delete(self, name: str) -> None: ...
    def delete_folder(self, name: str) -> None: ...


def _connect(root: str) -> _Store:
    if "://" not in root:
        return _LocalStore(os.path.abspath(root))
    try:
        filesystem, path = fs.FileSystem.from_uri(root)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"can't open the checkpoint at {root}: {describe_exception(error)}") from error
    return _LocalStore(path) if isinstance(filesystem, fs.LocalFileSystem) else _RemoteStore(filesystem, path)


def _sealed(seal: str, body: bytes) -> bytes:
    return b"penstock %d %s\n%s" % (FORMAT, seal.encode(), body)


def _checked(name: str) -> str:
    """A name that can't lead out of the root."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise CheckpointError(f"{name!r} is not a name inside the checkpoint: no '..', no absolute paths")
    return name


def _temporary(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name[:64]}.{uuid.uuid4().hex}"


class _LocalStore:
    """A folder on a local disk, and below it only folders that no other user may enter."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, name: str, offset: int, length: int | None) -> bytes:
        with open(f"{self.root}/{name}", "rb", buffering=0) as file:
            if offset:
                file.seek(offset)
            return file.read() if length is None else _read_exactly(file, length)

    def put(self, name: str, data: bytes) -> None:
        with self._written(name, data) as temporary:
            os.replace(temporary, f"{self.root}/{name}")
        sync_folder(os.path.dirname(f"{self.root}/{name}"))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if os.path.exists(f"{self.root}/{name}"):
            return False
        with self._written(name, data) as temporary:
            try:
                os.link(temporary, f"{self.root}/{name}")
            except FileExistsError:
                return False
        sync_folder(os.path.dirname(f"{self.root}/{name}"))
        return True

    def list(self, folder: str) -> list[str]:
        try:
            with os.scandir(f"{self.root}/{folder}") as entries:
                return [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []

    def modified(self, name: str) -> float:
        return os.stat(f"{self.root}/{name}").st_mtime

    def delete(self, name: str) -> None:
        os.unlink(f"{self.root}/{name}")

    def delete_folder(self, name: str) -> None:
        shutil.rmtree(f"{self.root}/{name}")

    @contextmanager
    def _written(self, name: str, data: bytes) -> Iterator[str]:
        """A hidden file with the data, for as long as it takes to give it its name.

        Without fsync, unless that is asked for: this is against processes that die, not against power cuts.
        """
        temporary = _temporary(f"{self.root}/{name}")
        _make_folder(os.path.dirname(temporary))
        try:
            with open(temporary, "xb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                if os.environ.get(SYNC_VARIABLE):
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def sync_folder(path: str) -> None:
    """Let the names in a folder outlive a power cut, where that is asked for."""
    if os.environ.get(SYNC_VARIABLE):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read_exactly(file: Any, length: int) -> bytes:
    """So many bytes, or those up to the end: one call of the system may bring fewer."""
    data: bytes = file.read(length)
    while len(data) < length and (more := file.read(length - len(data))):
        data += more
    return data


def _make_folder(path: str) -> None:
    if not os.path.isdir(path):
        _make_folder(os.path.dirname(path))
        try:
            os.mkdir(path, stat.S_IRWXU)
        except FileExistsError:
            if not os.path.isdir(path):
                raise


class _RemoteStore:
    """A folder in any other file system that pyarrow reaches, where putting if absent is a check, then a move."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")

    def read(self, name: str, offset: int, length: int | None) -> bytes:
        with self._fs.open_input_file(f"{self._root}/{name}") as file:
            size = file.size()
            data: bytes = file.read_at(max(0, size - offset) if length is None else length, min(offset, size))
            return data

    def put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        temporary = _temporary(path)
        self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        try:
            with self._fs.open_output_stream(temporary) as stream:
                stream.write(data)
            self._fs.move(temporary, path)
        except BaseException:
            with suppress(OSError):
                self._fs.delete_file(temporary)
            raise

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self._fs.get_file_info(f"{self._root}/{name}").type != fs.FileType.NotFound:
            return False
        self.put(name, data)
        return True

    def list(self, folder: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector) if info.type == fs.FileType.File]

    def modified(self, name: str) -> float:
        info = self._fs.get_file_info(f"{self._root}/{name}")
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{self._root}/{name}")
        return float(info.mtime_ns or 0) / 1e9

    def delete(self, name: str) -> None:
        self._fs.delete_file(f"{self._root}/{name}")

    def delete_folder(self, name: str) -> None:
        self._fs.delete_dir(f"{self._root}/{name}")
