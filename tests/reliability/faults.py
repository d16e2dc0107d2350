"""A disk that fails: the only code that gets between a process under test and its file system.

Every call that touches a watched folder is counted, in this process and in those that share its `control` folder; the
so-many-th one, or the first behind it that can, fails in one of the ways of `FAULTS`.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITES = frozenset({"open to write", "write", "replace", "rename", "link", "mkdir"})
_REMOVES = frozenset({"unlink", "rmdir"})
_RENAMES = frozenset({"replace", "rename", "link"})
_READS = frozenset({"open", "read", "scandir", "listdir"})
SLOW_SECONDS = 0.3

FAULTS = {
    "no space": _WRITES,
    "stays full": _WRITES,
    "I/O error": _WRITES | _REMOVES | _READS,
    "torn write": frozenset({"write"}),
    "torn write, killed": frozenset({"write"}),
    "lost rename, killed": _RENAMES,
    "killed": (_WRITES | _REMOVES) - _RENAMES - {"write"},
    "slow": _WRITES | _REMOVES | _READS,
}
"""What can happen, and to which operations."""


@dataclass(frozen=True)
class Operation:
    """One call that touched a watched folder."""

    number: int
    call: str
    path: str

    def can(self, fault: str) -> bool:
        return self.call in FAULTS[fault]


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and from which operation on."""

    kind: str
    at: int


def operations(control: Path) -> list[Operation]:
    """What was done on a disk that was watched."""
    try:
        lines = (control / "log").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Operation(i, *line.split("\t")) for i, line in enumerate(lines, 1)]


def struck(control: Path) -> Operation | None:
    """The operation that has failed, if any came to that."""
    try:
        return Operation(0, *(control / "struck").read_text().split("\t"))
    except FileNotFoundError:
        return None


@contextmanager
def failing_disk(
    control: Path, roots: Sequence[Path], fault: Fault | None = None, only_others: bool = False
) -> Iterator[None]:
    """Watch these folders, and let an operation fail: of this process, or only of those that it has infected."""
    control.mkdir(parents=True, exist_ok=True)
    plan = {
        "roots": [str(root) for root in roots],
        "fault": None if fault is None else [fault.kind, fault.at],
        "spared": os.getpid() if only_others else 0,
    }
    (control / "plan.json").write_text(json.dumps(plan))
    disk = Disk(str(control))
    disk.install()
    try:
        yield
    finally:
        disk.remove()
        (control / "plan.json").unlink()


def infect(control: str) -> None:
    """Called in a worker of Spark's, again and again: from the first time on its disk is watched as well.

    Workers outlive a test, and the next one has a folder of its own.
    """
    if not hasattr(os, "penstock_disk"):
        os.penstock_disk = Disk(control)  # type: ignore[attr-defined]
        os.penstock_disk.install()  # type: ignore[attr-defined]
    os.penstock_disk.is_told_by(control)  # type: ignore[attr-defined]


class Disk:
    """Stands before the functions of `os` and `open`."""

    def __init__(self, control: str) -> None:
        self._control = control
        self._real: list[tuple[Any, str, Any]] = []
        self._open = builtins.open
        self._os = {name: getattr(os, name) for name in ("open", "write", "close", "lseek", "readlink", "read")}

    def is_told_by(self, control: str) -> None:
        """The plan is in this folder from now on."""
        self._control = control

    def install(self) -> None:
        for module in builtins, io:
            self._replace(module, "open", self._opened)
        self._replace(os, "open", self._os_opened)
        self._replace(os, "write", self._os_written)
        for name in "replace", "rename", "link":
            self._replace(os, name, self._before(name, path_at=1))
        for name in "unlink", "remove", "rmdir", "mkdir", "scandir", "listdir":
            self._replace(os, name, self._before("unlink" if name == "remove" else name))

    def remove(self) -> None:
        for module, name, real in self._real:
            setattr(module, name, real)

    def strike(self, call: str, path: Any, dir_fd: int | None = None) -> str | None:
        """Count an operation; the fault that is to befall it, unless that has happened here: an error or a death."""
        full = self._full(path, dir_fd)
        if full is None or full.startswith(self._control + "/"):
            return None
        plan = self._plan()
        if plan is None or plan["spared"] == os.getpid():
            return None
        if not any(full == root or full.startswith(root + "/") for root in plan["roots"]):
            return None
        number = self._count(call, full)
        if plan["fault"] is None:
            return None
        kind, at = plan["fault"]
        if number < at or call not in FAULTS[kind] or not (self._is_first(call, full) or kind == "stays full"):
            return None
        if kind == "slow":
            time.sleep(SLOW_SECONDS)
            return None
        if kind in ("killed", "lost rename, killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind.startswith("torn"):
            return str(kind)
        code = errno.EIO if kind == "I/O error" else errno.ENOSPC
        raise OSError(code, os.strerror(code), full)

    def torn(self, kind: str, path: str) -> OSError:
        """Half of a write has been done: die, or say so."""
        if kind.endswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _full(self, path: Any, dir_fd: int | None) -> str | None:
        try:
            if isinstance(path, int):
                return str(self._os["readlink"](f"/proc/self/fd/{path}"))
            name = os.fsdecode(path)
            if dir_fd is not None:
                name = f"{self._os['readlink'](f'/proc/self/fd/{dir_fd}')}/{name}"
        except (OSError, TypeError, ValueError):
            return None
        return os.path.abspath(name)

    def _plan(self) -> Any:
        """Read anew each time, past our own hooks: workers outlive the run that infected them."""
        try:
            file = self._os["open"](f"{self._control}/plan.json", os.O_RDONLY)
        except OSError:
            return None
        try:
            data = self._os["read"](file, 1 << 16)
        finally:
            self._os["close"](file)
        try:
            return json.loads(data)
        except ValueError:  # just being written
            return None

    def _count(self, call: str, path: str) -> int:
        """A number that no other thread or process gets: where in a file our byte has landed."""
        line = f"{call}\t{path}\n".encode()
        file = self._os["open"](f"{self._control}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._os["write"](file, line)
        self._os["close"](file)
        file = self._os["open"](f"{self._control}/count", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._os["write"](file, b".")
            return int(self._os["lseek"](file, 0, os.SEEK_CUR))
        finally:
            self._os["close"](file)

    def _is_first(self, call: str, path: str) -> bool:
        """Whether the fault has not happened yet; then it happens now, and is written down."""
        try:
            file = self._os["open"](f"{self._control}/struck", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        self._os["write"](file, f"{call}\t{path}".encode())
        self._os["close"](file)
        return True

    def _replace(self, module: Any, name: str, instead: Callable[..., Any]) -> None:
        self._real.append((module, name, getattr(module, name)))
        setattr(module, name, instead)

    def _before(self, call: str, path_at: int = 0) -> Callable[..., Any]:
        real = getattr(os, call)

        def struck(*args: Any, **options: Any) -> Any:
            path = args[path_at] if len(args) > path_at else options.get("dst", options.get("path", "."))
            self.strike(call, path, options.get("dst_dir_fd") or options.get("dir_fd"))
            return real(*args, **options)

        return struck

    def _os_opened(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        self.strike("open to write" if writes else "open", path, dir_fd)
        return int(self._os["open"](path, flags, mode, dir_fd=dir_fd))

    def _os_written(self, file: int, data: Any) -> int:
        if torn := self.strike("write", file):
            self._os["write"](file, bytes(data)[: len(data) // 2])
            raise self.torn(torn, str(self._full(file, None)))
        return int(self._os["write"](file, data))

    def _opened(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
        plan = None if isinstance(file, int) else self._plan()
        full = None if plan is None else self._full(file, None)
        if full is None or not any(full.startswith(root + "/") for root in plan["roots"]):
            return self._open(file, mode, buffering, *args, **options)
        writes = not set("wxa+").isdisjoint(mode)
        self.strike("open to write" if writes else "open", full)
        raw = _File(full, mode.replace("b", "").replace("t", ""))
        raw.disk = self
        if buffering == 0:
            return raw
        layer = io.BufferedRandom if "+" in mode else io.BufferedWriter if writes else io.BufferedReader
        buffered: Any = layer(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **options)


class _File(io.FileIO):
    """A file whose reads and writes are operations of their own."""

    disk: Disk

    def write(self, data: Any) -> int:
        path = str(self.name)
        if torn := self.disk.strike("write", path):
            super().write(bytes(data)[: len(data) // 2])
            raise self.disk.torn(torn, path)
        return super().write(data)

    def read(self, size: int | None = -1) -> Any:
        self.disk.strike("read", str(self.name))
        return super().read(-1 if size is None else size)

    def readall(self) -> Any:
        self.disk.strike("read", str(self.name))
        return super().readall()

    def readinto(self, buffer: Any) -> Any:
        self.disk.strike("read", str(self.name))
        return super().readinto(buffer)
