"""The only code that makes output visible: after the manifest, in the declared order of sinks, as often as it takes."""

from __future__ import annotations

import os
import pickle
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.connectors.files.writers import FileSink, part_number
from penstock.connectors.memory import Collect
from penstock.connectors.sink import SinkWriter
from penstock.connectors.spark import SparkBatches
from penstock.engines.durable.staging import Staged
from penstock.errors import FlowError, SinkError
from penstock.flow.nodes import Graph, Node, Writes
from penstock.runtime.failures import survived
from penstock.state.files import Files

_OWNER = ".penstock-query"

Outputs = Mapping[str, Sequence[Sequence[Any]]]
"""For each sink, the staged files of a batch in order: file and number of tuples."""


def outputs_of(staged: Sequence[Staged]) -> dict[str, list[list[Any]]]:
    """What tasks have staged, as the manifest keeps it."""
    found: dict[str, list[list[Any]]] = {}
    for one in sorted(staged, key=lambda one: (one.operator, one.place)):
        found.setdefault(one.operator, []).append([one.file, one.rows])
    return found


class Publisher:
    """The sinks of one run; `query` is who may go on with their directories later, if anybody."""

    def __init__(self, graph: Graph, files: Files, kept: Mapping[str, Any], query: str | None) -> None:
        self._files = files
        self._sinks = [
            _publication(graph.flow, node, files, kept.get(node.name, {}), query)
            for node in graph.nodes
            if isinstance(node.kind, Writes)
        ]

    def open(self) -> dict[str, Any]:
        """Get ready, before anything is read; returns what a later run must know about the sinks."""
        return {sink.name: sink.open() for sink in self._sinks}

    def publish(self, batch: int, outputs: Outputs, session: Any) -> None:
        for sink in self._sinks:
            sink.publish(batch, outputs.get(sink.name, ()), session)

    def recollect(self, batch: int, outputs: Outputs) -> None:
        """Fill what lives in this process alone with what an earlier one has published."""
        for sink in self._sinks:
            sink.recollect(batch, outputs.get(sink.name, ()))

    def failed(self) -> dict[str, int]:
        return {sink.name: sink.failed for sink in self._sinks}

    def forget(self, outputs: Outputs) -> None:
        """Delete the staged files of a batch that was published for good; a list is filled again from its own."""
        for sink in self._sinks:
            if not isinstance(sink, _Collected):
                for file, _ in outputs.get(sink.name, ()):
                    self._files.delete(file)

    def close(self, has_failed: bool) -> None:
        for sink in self._sinks:
            sink.close(has_failed)


def _publication(flow: str, node: Node, files: Files, kept: Mapping[str, Any], query: str | None) -> _Publication:
    assert isinstance(node.kind, Writes)
    sink = node.kind.sink
    if isinstance(sink, FileSink):
        return _Directory(flow, node, files, kept, sink, query)
    if isinstance(sink, Collect):
        return _Collected(flow, node, files, kept)
    if node.on_error == "dead-letter":
        raise FlowError(
            f"operator {node.name!r}: on Spark this sink is called after a batch is done, so it can't have dead "
            "letters; say on_error='skip', or let an operator before it find what can't be written"
        )
    if isinstance(sink, SparkBatches):
        return _Frames(flow, node, files, kept, sink)
    return _Publication(flow, node, files, kept)


class _Publication:
    """A sink that the driver writes to: its function is called here, at least once for each tuple."""

    def __init__(self, flow: str, node: Node, files: Files, kept: Mapping[str, Any]) -> None:
        self.name = node.name
        self.failed = 0
        self._flow = flow
        self._node = node
        self._files = files
        self._kept = kept
        self._writer: SinkWriter | None = None

    def open(self) -> Mapping[str, Any]:
        assert isinstance(self._node.kind, Writes)
        self._writer = self._node.kind.sink.open()
        return {}

    def publish(self, batch: int, staged: Sequence[Sequence[Any]], session: Any) -> None:
        for file, _ in staged:
            self._write(pickle.loads(self._files.read(file)))

    def recollect(self, batch: int, staged: Sequence[Sequence[Any]]) -> None:
        pass

    def close(self, has_failed: bool) -> None:
        if self._writer is not None:
            self._writer.abandon() if has_failed else self._writer.close()

    def _write(self, values: list[Any]) -> None:
        assert self._writer is not None
        while values and (rejected := self._writer.write(values)):
            survived(self._flow, self._node, values[rejected.position], rejected.error)
            self.failed += 1
            values = values[rejected.position + 1 :]


class _Collected(_Publication):
    """A list: filled again from the checkpoint when a run goes on."""

    _reached = -1

    def publish(self, batch: int, staged: Sequence[Sequence[Any]], session: Any) -> None:
        if batch > self._reached:
            self.recollect(batch, staged)

    def recollect(self, batch: int, staged: Sequence[Sequence[Any]]) -> None:
        super().publish(batch, staged, None)
        self._reached = batch


class _Frames(_Publication):
    """A user's own writer of DataFrames: called with every batch that has rows."""

    def __init__(self, flow: str, node: Node, files: Files, kept: Mapping[str, Any], sink: SparkBatches) -> None:
        super().__init__(flow, node, files, kept)
        self._sink = sink

    def open(self) -> Mapping[str, Any]:
        return {}

    def publish(self, batch: int, staged: Sequence[Sequence[Any]], session: Any) -> None:
        values = [value for file, _ in staged for value in pickle.loads(self._files.read(file))]
        if values:
            self._sink.hand_over(values, batch, session)


class _Directory(_Publication):
    """A directory of files: each staged file gets a name that says its place in the whole output."""

    def __init__(
        self, flow: str, node: Node, files: Files, kept: Mapping[str, Any], sink: FileSink, query: str | None
    ) -> None:
        super().__init__(flow, node, files, kept)
        self._sink = sink
        self._query = query
        self._first = 0
        self._old: list[str] = []

    def open(self) -> Mapping[str, Any]:
        owner = self._owner()
        if self._kept:
            if owner not in (None, self._query):
                raise SinkError(
                    f"{self._sink.name} sink: another query has written to {str(self._sink.directory)!r} since this "
                    "one did, so their files would mix; give each a directory of its own"
                )
            self._sink.directory.mkdir(parents=True, exist_ok=True)
            self._first, self._old = self._kept["first"], list(self._kept["old"])
        else:
            writer = self._sink.open()
            # Its own name is there if a run ended before it could remember that: nothing is published by then.
            if owner not in (None, self._query) and self._sink.mode == "error":
                raise SinkError(
                    f"{self._sink.name} sink: {str(self._sink.directory)!r} belongs to another query, which may still "
                    "write to it; write elsewhere, or say mode='append' or mode='overwrite'"
                )
            self._old = [path.name for path in writer.old]
            # Never a name that is to be overwritten: when a batch is published again, old files go once more.
            self._first = max([writer.first, *(1 + part_number(path) for path in writer.old)])
        if self._query is not None and owner != self._query:
            self._own(self._query)
        return {"first": self._first, "old": self._old}

    def _owner(self) -> str | None:
        """The query that has written here last."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self._sink.directory / _OWNER).read_text()
        return None

    def _own(self, query: str) -> None:
        """In one step: half a name would be somebody else's."""
        temporary = self._sink.directory / f".{uuid.uuid4().hex}.tmp"
        temporary.write_text(query)
        os.replace(temporary, self._sink.directory / _OWNER)

    def publish(self, batch: int, staged: Sequence[Sequence[Any]], session: Any) -> None:
        if not staged:
            return
        directory = self._sink.directory
        try:
            for number, (file, _) in enumerate(staged):
                self._place(file, directory / f"part-{self._first + batch:08d}-{number:05d}{self._sink.suffix}")
            self._remove_old()
        except OSError as error:
            raise SinkError(f"{self._sink.name} sink: can't write to {str(directory)!r}: {error.strerror}") from error

    def close(self, has_failed: bool) -> None:
        if not has_failed:
            self._remove_old()

    def _place(self, file: str, path: Path) -> None:
        temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
        local = self._files.local_path(file)
        try:
            if local is None:
                temporary.write_bytes(self._files.read(file))
            else:
                try:
                    os.link(local, temporary)
                except OSError:  # another disk
                    shutil.copyfile(local, temporary)
            os.replace(temporary, path)
            # Renaming a link over another link of the same file does nothing, and leaves it.
            temporary.unlink(missing_ok=True)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _remove_old(self) -> None:
        """What is overwritten goes when there is something in its place."""
        for name in self._old:
            (self._sink.directory / name).unlink(missing_ok=True)
        self._old = []
