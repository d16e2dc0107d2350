"""A checkpoint's directory: whose it is, which process holds it, and which of its files are still needed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from penstock.clock import WallClock
from penstock.engines.durable.fingerprint import changes_to_tell, fingerprint
from penstock.errors import CheckpointError, FlowError, shown_command
from penstock.flow.nodes import Graph
from penstock.state.buckets import FOLDER as STATE
from penstock.state.files import Files
from penstock.state.manifests import FOLDER as MANIFESTS
from penstock.state.manifests import Manifest, Manifests, manifest_name

ABOUT = "penstock.json"
OUTPUTS, COLLECTED, SPOOL, ADMITTED, BATCHES = "outputs", "collected", "spool", "admitted", "batches"
_SWEPT = (STATE, OUTPUTS, COLLECTED)
_PER_BATCH = (SPOOL, ADMITTED, BATCHES)
"""Folders of what only the batch under way needs, by its number."""
_BATCHES_PER_SWEEP = 50
_GRACE_SECONDS = 60.0


class Root:
    """The directory that a query keeps everything in, held by one process at a time, or only looked at."""

    def __init__(self, root: str, is_held: bool = True) -> None:
        self.root = str(root)
        self.files = Files(self.root)
        self.manifests = Manifests(self.files)
        self._lock: int | None = None
        if is_held:
            self._hold()

    @property
    def is_local(self) -> bool:
        return self.files.local_path("lock") is not None

    @property
    def latest(self) -> Manifest | None:
        """The last batch that is done."""
        return self.manifests.latest()

    @property
    def next_batch(self) -> int:
        latest = self.latest
        return 0 if latest is None else latest.batch + 1

    def about(self) -> dict[str, Any] | None:
        """What is true of it for life; `None` where there is no checkpoint."""
        try:
            about: dict[str, Any] = json.loads(self.files.unseal(ABOUT).body)
        except FileNotFoundError:
            if self.files.names(MANIFESTS):
                raise self.files.missing(ABOUT, "what the checkpoint is") from None
            return None
        return about

    def create(self, flow: str) -> dict[str, Any]:
        """Make an empty checkpoint."""
        about = {"flow": flow, "query": uuid.uuid4().hex, "created": WallClock().now(), "penstock": _version()}
        self.files.seal(ABOUT, json.dumps(about, indent=1).encode())
        return about

    def leave(self) -> None:
        """Let other processes have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _hold(self) -> None:
        path = self.files.local_path("lock")
        if path is None:
            return
        folder = os.path.dirname(path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self.check_owner()
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.root!r} can't be written: {error.strerror}; give a directory that can be"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.leave()
            raise CheckpointError(
                f"checkpoint {self.root!r} is in use by another run; stop that one first, or give this one another"
            ) from None

    def check_owner(self) -> None:
        """What is in a checkpoint is run as code: no other user may put anything there."""
        path = self.files.local_path("lock")
        if path is None:
            return
        status = os.stat(os.path.dirname(path))
        if status.st_uid != os.geteuid():
            raise CheckpointError(
                f"checkpoint {self.root!r} belongs to another user (id {status.st_uid}), who could make this process "
                "run anything: give a directory of your own, or take it over with 'chown'"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CheckpointError(
                f"checkpoint {self.root!r} can be written by other users (mode {stat.S_IMODE(status.st_mode):o}), who "
                f"could make this process run anything: say {shown_command('chmod', 'go-w', self.root)}, or give "
                "another directory"
            )


class Checkpoint(Root):
    """The checkpoint of one flow on one engine; a temporary one where none was given."""

    def __init__(self, root: str | None, graph: Graph, engine: str, buckets: int) -> None:
        self.is_temporary = root is None
        super().__init__(tempfile.mkdtemp(prefix="penstock-") if root is None else root)
        try:
            about = self.about() or self.create(graph.flow)
            self.query = str(about["query"])
            self.operators = fingerprint(graph)
            self.engine = engine
            self._check(about, graph)
            self.buckets = buckets if self.latest is None else self.latest.buckets
        except BaseException:
            self.leave()
            raise

    @property
    def offsets(self) -> Mapping[str, Any]:
        """How far each source was read."""
        latest = self.latest
        return {} if latest is None else latest.offsets

    def commit(self, manifest: Manifest, is_whole: bool = False) -> Manifest:
        """A batch is done: from here on its states and its output count. Now and then, old ones are swept out."""
        if not self.manifests.write(manifest, is_whole):
            raise CheckpointError(
                f"checkpoint {self.root!r}: batch {manifest.batch} was written by another driver; only one may run"
            )
        written = self.latest
        assert written is not None
        self.buckets = written.buckets
        if written.batch and written.batch % _BATCHES_PER_SWEEP == 0:
            self.sweep(written.batch)
        return written

    def sweep(self, batch: int) -> None:
        """Delete what neither this batch nor the one before needs; called between batches, for what is being written
        isn't in any manifest yet."""
        needed = self.manifests.forget(batch - 1)
        now = self.files.modified(manifest_name(batch))
        found = [name for folder in _SWEPT for name in self.files.names(folder) if name not in needed]
        found += [name for folder in _PER_BATCH for name in self.files.names(folder) if _batch_of(name) < batch]
        found += [
            name for folder in (*_SWEPT, *_PER_BATCH, MANIFESTS) for name in self.files.names(folder, temporary=True)
        ]
        for name in found:
            with suppress(FileNotFoundError):
                # A task that was given up may still write; what it writes is never needed, but may be half there.
                if now - self.files.modified(name) > _GRACE_SECONDS:
                    self.files.delete(name)

    def refuse_to_go_on(self) -> NoReturn:
        """A run has let out its last words: none can follow."""
        raise FlowError(
            f"checkpoint {self.root!r} belongs to a run that has ended: its windows and last words are out; give a new "
            "checkpoint, or run with at_end='keep' the next time"
        )

    def leave(self) -> None:
        super().leave()
        if self.is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)

    def _check(self, about: Mapping[str, Any], graph: Graph) -> None:
        if about["flow"] != graph.flow:
            raise CheckpointError(
                f"checkpoint {self.root!r} belongs to the flow {about['flow']!r}, not to {graph.flow!r}; give each "
                "flow a checkpoint of its own"
            )
        latest = self.latest
        if latest is None:
            return
        if latest.query != self.query:
            raise self.files.damaged(manifest_name(latest.batch))
        if told := changes_to_tell(self.root, latest.operators, self.operators):
            raise CheckpointError(
                f"checkpoint {self.root!r} was made by another version of flow {graph.flow!r}: {told}. Function "
                "bodies, stateless operators and sinks may change between runs as you like"
            )


def _batch_of(name: str) -> int:
    digits = name.rpartition("/")[2].split("-")[0]
    return int(digits) if digits.isdigit() else -1


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"
