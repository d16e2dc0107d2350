"""The only code that touches the checkpoint's disk or object store; whatever appears there appears whole."""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, Protocol

from pyarrow import fs

from penstock.errors import CheckpointError, describe_exception

KEY_VARIABLE = "PENSTOCK_CHECKPOINT_KEY"


class Files:
    """The files under one root, a local path or a URI, by their names relative to it.

    With a key, digests are HMACs, so that only who has the key can write what will be unpickled.

    >>> import tempfile
    >>> files = Files(tempfile.mkdtemp())
    >>> files.create("log/1", b"mine"), files.create("log/1", b"yours"), files.read("log/1")
    (True, False, b'mine')
    >>> files.names("log")
    ['log/1']
    """

    def __init__(self, root: str, key: bytes | None = None) -> None:
        self.root = root
        self._key = key or os.environ.get(KEY_VARIABLE, "").encode()
        self._store = _connect(root)

    def __reduce__(self) -> tuple[Any, ...]:
        return Files, (self.root, self._key)

    def digest(self, data: bytes) -> str:
        """What a file's content is known by: its SHA-256, or its HMAC-SHA256 where there is a key."""
        if self._key:
            return hmac.new(self._key, data, hashlib.sha256).hexdigest()
        return hashlib.sha256(data).hexdigest()

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """The file's bytes, or so many of them from an offset on; `FileNotFoundError` where there is none."""
        with self._reporting("read", name):
            return self._store.read(_checked(name), offset, length)

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, whole or not at all."""
        with self._reporting("write", name):
            self._store.put(_checked(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Make a file unless it is there, and say whether we did."""
        with self._reporting("write", name):
            return self._store.put_if_absent(_checked(name), data)

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
                f"can't {verb} {self.root.rstrip('/')}/{name}: {describe_exception(error)}; "
                "the checkpoint must be a folder that this user may read and write, on a disk with space left"
            ) from error


class _Store(Protocol):
    """What `Files` needs of a place that keeps files."""

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

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if os.path.exists(f"{self.root}/{name}"):
            return False
        with self._written(name, data) as temporary:
            try:
                os.link(temporary, f"{self.root}/{name}")
            except FileExistsError:
                return False
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

        Without fsync, like Spark's own logs beside it: this is against processes that die, not against power cuts.
        """
        temporary = _temporary(f"{self.root}/{name}")
        _make_folder(os.path.dirname(temporary))
        try:
            with open(temporary, "xb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


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
