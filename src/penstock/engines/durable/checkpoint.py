"""A checkpoint's root: whose it is, one driver at a time, and what may change between two runs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.errors import CheckpointError, FlowError
from penstock.flow.nodes import Graph, Loops, Node, Reads, Remembers, Waits
from penstock.state.files import Files
from penstock.state.manifests import Manifest, Manifests, manifest_name

_ABOUT = "penstock.json"
_BATCHES_PER_SWEEP = 50


class Checkpoint:
    """The directory that a query keeps everything in; a temporary one where none was given."""

    def __init__(self, root: str | None, graph: Graph, buckets: int) -> None:
        self.is_temporary = root is None
        self.root = tempfile.mkdtemp(prefix="penstock-") if root is None else str(root)
        self.files = Files(self.root)
        self.manifests = Manifests(self.files)
        self._lock: Any = None
        self._take_lock()
        try:
            self.about = self._open(graph, buckets)
        except BaseException:
            self.leave()
            raise

    @property
    def query(self) -> str:
        return str(self.about["query"])

    @property
    def buckets(self) -> int:
        return int(self.about["buckets"])

    @property
    def sinks(self) -> Mapping[str, Any]:
        return dict(self.about["sinks"])

    @property
    def is_local(self) -> bool:
        return self.files.local_path("lock") is not None

    def remember_sinks(self, sinks: Mapping[str, Any]) -> None:
        """What was there before this query wrote: asked once in its life."""
        self.about = {**self.about, "sinks": {**sinks, **self.about["sinks"]}}
        self._write()

    def commit(self, manifest: Manifest) -> None:
        """A batch is done: from here on its states and its output count. Now and then, old ones are swept out."""
        if not self.manifests.write(manifest):
            raise CheckpointError(
                f"checkpoint {self.root!r}: batch {manifest.batch} was written by another driver; only one may run"
            )
        if manifest.batch and manifest.batch % _BATCHES_PER_SWEEP == 0:
            self.manifests.sweep(manifest.batch - 1, now=self.files.modified(manifest_name(manifest.batch)))

    def refuse_to_go_on(self) -> NoReturn:
        """A run has let out its last words: nobody can add to them."""
        raise FlowError(
            f"checkpoint {self.root!r} belongs to a run that has ended: its windows and last words are out; give a new "
            "checkpoint, or run with at_end='keep' the next time"
        )

    def leave(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self.is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)

    def _open(self, graph: Graph, buckets: int) -> dict[str, Any]:
        described = fingerprint(graph)
        try:
            about: dict[str, Any] = json.loads(self.files.read(_ABOUT))
        except FileNotFoundError:
            about = {
                "flow": graph.flow,
                "query": uuid.uuid4().hex,
                "buckets": buckets,
                "operators": described,
                "sinks": {},
            }
            self.about = about
            self._write()
            return about
        except ValueError:
            raise CheckpointError(f"checkpoint {self.root!r}: {_ABOUT} is damaged, so it can't be used") from None
        if about["flow"] != graph.flow:
            raise CheckpointError(
                f"checkpoint {self.root!r} belongs to the flow {about['flow']!r}, not to {graph.flow!r}; give each "
                "flow a checkpoint of its own"
            )
        if difference := _difference(about["operators"], described):
            raise CheckpointError(
                f"checkpoint {self.root!r} was made by another version of flow {graph.flow!r}: {difference}. Function "
                "bodies, stateless operators and sinks may change between runs; sources, stateful operators, their "
                "kinds and keys may not"
            )
        return about

    def _write(self) -> None:
        self.files.write(_ABOUT, json.dumps(self.about, indent=1).encode())

    def _take_lock(self) -> None:
        path = self.files.local_path("lock")
        if path is None:
            return
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.root!r} can't be written: {error.strerror}; give a directory that can be"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise CheckpointError(
                f"checkpoint {self.root!r} is in use by another run; stop that one first, or give this one another"
            ) from None


def fingerprint(graph: Graph) -> dict[str, str]:
    """What must stay the same while a checkpoint is in use: sources, and operators with state."""
    return {node.name: _described(node) for node in graph.nodes if _described(node)}


def _described(node: Node) -> str:
    match node.kind:
        case Reads(source=source):
            return f"source {type(source).__name__}"
        case Remembers(key=key, ttl=ttl):
            by = "no key" if key is None else f"key {', '.join(key.columns) or 'function'}"
            return f"state by {by}" + ("" if ttl is None else " with a ttl")
        case Waits(logic=logic):
            return f"event time: {type(logic).__name__}"
        case Loops(operator=operator) if operator.kind != "stateless":
            return f"driver loop {type(operator).__name__} with {len(node.inputs)} inputs"
    return ""


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    for name in before:
        if name not in now:
            return f"the operator {name!r} ({before[name]}) is gone"
        if before[name] != now[name]:
            return f"the operator {name!r} was {before[name]} and is {now[name]}"
    for name in now:
        if name not in before:
            return f"the operator {name!r} ({now[name]}) is new"
    return ""
