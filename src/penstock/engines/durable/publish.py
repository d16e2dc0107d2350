"""The only code that makes a batch's output visible: after the manifest, in the declared order of sinks, each once."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from penstock.connectors.files.writers import FileSink
from penstock.connectors.memory import Collect
from penstock.connectors.sink import SinkWriter
from penstock.connectors.spark import SparkBatches
from penstock.connectors.spark_session import session as session_of_the_process
from penstock.engines.durable.checkpoint import COLLECTED
from penstock.engines.durable.directory import Directory
from penstock.engines.durable.staging import Staged
from penstock.errors import CheckpointError, FlowError, describe_exception
from penstock.flow.nodes import Graph, Node, Writes
from penstock.runtime.failures import survived, told
from penstock.runtime.own_thread import open_on_one_thread
from penstock.state.files import Files
from penstock.state.manifests import Manifest, Output, Outputs

_MOST_COLLECTED_FILES = 32


def outputs_of(staged: Sequence[Staged]) -> dict[str, list[Output]]:
    """What tasks have staged, as the manifest keeps it."""
    found: dict[str, list[Output]] = {}
    for one in sorted(staged, key=lambda one: (one.operator, one.sort_key)):
        found.setdefault(one.operator, []).append(one.output)
    return found


class Publisher:
    """The sinks of one run; `query` may go on with their directories later; `None` where none will."""

    def __init__(self, graph: Graph, files: Files, query: str | None) -> None:
        self._files = files
        self._sinks = [
            _publication(graph.flow, node, files, query) for node in graph.nodes if isinstance(node.kind, Writes)
        ]
        self._gone: dict[str, Any] = {}
        """What sinks have kept that this flow does not have: another run may have them again."""

    def open(self, latest: Manifest | None, published: Mapping[str, Any]) -> None:
        """Get ready, before anything is read: `published` is what each sink said when it last published."""
        known = {**({} if latest is None else latest.sinks), **published}
        here = {sink.directory for sink in self._sinks}
        self._gone = {kept["directory"]: kept for kept in known.values() if kept["directory"] not in here}
        for sink in self._sinks:  # one that it does not know may be one of those that are gone, moved
            own = [kept for kept in known.values() if kept["directory"] == sink.directory]
            sink.open(latest, own or list(self._gone.values()))

    def agreed(self, batch: int, outputs: Outputs) -> dict[str, Sequence[Output]]:
        """What is to be committed, with the same columns in all files of a sink; `SinkError` where that can't be."""
        found = {sink.name: sink.agreed(batch, outputs[sink.name]) for sink in self._sinks if sink.name in outputs}
        return {**outputs, **found}

    def formats(self) -> dict[str, str]:
        """By sink, what its staged output is made for."""
        return {sink.name: sink.format for sink in self._sinks}

    def recollect(self, latest: Manifest) -> None:
        """Fill what lives in this process alone with what earlier ones have published."""
        for sink in self._sinks:
            sink.recollect(latest)

    def collected(self, before: Outputs, outputs: Outputs) -> dict[str, Sequence[Output]]:
        """What the sinks that are filled again at every start hold after a batch."""
        names = [sink.name for sink in self._sinks if isinstance(sink, _ListPublication)]
        return {name: _appended(self._files, before.get(name, ()), outputs.get(name, ())) for name in names}

    def kept(self) -> dict[str, Any]:
        """What each sink must know to go on, as of now."""
        return {**self._gone, **{sink.name: kept for sink in self._sinks if (kept := sink.kept()) is not None}}

    def publish(self, manifest: Manifest, session: Any) -> None:
        for sink in self._sinks:
            sink.publish(manifest, manifest.outputs.get(sink.name, ()), session)

    def failed(self) -> dict[str, int]:
        return {sink.name: sink.failed for sink in self._sinks}

    def forget(self, manifest: Manifest) -> None:
        """Delete the staged files of a batch that was published for good; a list is filled again from its own.

        Files are named by their content, so one may be several sinks'.
        """
        lists = {sink.name for sink in self._sinks if isinstance(sink, _ListPublication)}
        of_lists = [output for name in lists for output in manifest.outputs.get(name, ())]
        kept = {output.file for output in of_lists}
        kept |= {output.file for outputs in manifest.collected.values() for output in outputs}
        staged = {output.file for name, outputs in manifest.outputs.items() if name not in lists for output in outputs}
        for file in staged - kept:
            self._files.delete(file)

    def close(self, has_failed: bool) -> None:
        with ExitStack() as closing:  # all of them, whatever one of them raises
            for sink in reversed(self._sinks):
                closing.callback(sink.close, has_failed)


def _publication(flow: str, node: Node, files: Files, query: str | None) -> _Publication:
    assert isinstance(node.kind, Writes)
    sink = node.kind.sink
    if isinstance(sink, FileSink):
        return _DirectoryPublication(flow, node, files, Directory(node.name, sink, files, query))
    if isinstance(sink, Collect):
        return _ListPublication(flow, node, files)
    if node.on_error == "dead-letter":
        raise FlowError(
            f"operator {node.name!r}: this sink is called after a batch is done, so it can't have dead letters; say "
            "on_error='skip', or let an operator before it find what can't be written"
        )
    if isinstance(sink, SparkBatches):
        return _FramePublication(flow, node, files, sink)
    return _Publication(flow, node, files)


class _Publication:
    """A sink that the driver writes to: its function is called here, at least once for each tuple."""

    directory = ""
    """Where its files are, if it has any."""

    def __init__(self, flow: str, node: Node, files: Files) -> None:
        assert isinstance(node.kind, Writes)
        self.name = node.name
        self.format = type(node.kind.sink).__name__
        self.failed = 0
        self._flow = flow
        self._node = node
        self._files = files
        self._writer: SinkWriter | None = None

    def open(self, latest: Manifest | None, known: Sequence[Any]) -> None:
        assert isinstance(self._node.kind, Writes)
        try:
            self._writer = open_on_one_thread(self._node.kind.sink)
        except BaseException as error:
            found = told(self._flow, [self._node], error, " when it was opened")
            raise found from found.__cause__

    def kept(self) -> Any:
        """What a later run must know, in JSON's types; `None` where there is nothing."""
        return None

    def publish(self, manifest: Manifest, staged: Sequence[Output], session: Any) -> None:
        for output in staged:
            for values in self._values(output):
                self._write(values)
        if staged and self._writer is not None:
            self._writer.flush()  # from here on the batch counts as published

    def agreed(self, batch: int, staged: Sequence[Output]) -> Sequence[Output]:
        return staged

    def recollect(self, latest: Manifest) -> None:
        pass

    def close(self, has_failed: bool) -> None:
        if self._writer is not None:
            self._writer.abandon() if has_failed else self._writer.close()

    def _values(self, output: Output) -> Iterator[list[Any]]:
        """The lists that were pickled into a file, one behind the other."""
        data = io.BytesIO(self._files.fetch(output.blob, f"output of sink {self.name!r}"))
        size = data.getbuffer().nbytes
        try:
            while data.tell() < size:
                yield pickle.load(data)
        except Exception as error:  # whatever a user's __setstate__ raises
            raise CheckpointError(
                f"output of sink {self.name!r} can't be read back: {describe_exception(error)}; its classes must be "
                "importable, and able to read what they have written"
            ) from error

    def _write(self, values: list[Any]) -> None:
        assert self._writer is not None
        while values and (rejected := self._writer.write(values)):
            survived(self._flow, self._node, values[rejected.position], rejected.error)
            self.failed += 1
            values = values[rejected.position + 1 :]


class _ListPublication(_Publication):
    """A list: filled again from the checkpoint when a run goes on."""

    _reached = -1

    def publish(self, manifest: Manifest, staged: Sequence[Output], session: Any) -> None:
        if manifest.batch > self._reached:
            super().publish(manifest, staged, session)
            self._reached = manifest.batch

    def recollect(self, latest: Manifest) -> None:
        super().publish(latest, latest.collected.get(self.name, ()), None)
        self._reached = latest.batch


class _FramePublication(_Publication):
    """A user's own writer of DataFrames: called with every batch that has rows."""

    def __init__(self, flow: str, node: Node, files: Files, sink: SparkBatches) -> None:
        super().__init__(flow, node, files)
        self._sink = sink

    def open(self, latest: Manifest | None, known: Sequence[Any]) -> None:
        pass

    def publish(self, manifest: Manifest, staged: Sequence[Output], session: Any) -> None:
        values = [value for output in staged for some in self._values(output) for value in some]
        if values:
            self._sink.hand_over(values, manifest.batch, session or session_of_the_process())


class _DirectoryPublication(_Publication):
    """A directory of files."""

    def __init__(self, flow: str, node: Node, files: Files, directory: Directory) -> None:
        super().__init__(flow, node, files)
        self._directory = directory
        self.directory = directory.resolved

    def open(self, latest: Manifest | None, known: Sequence[Any]) -> None:
        self._directory.open(latest, known)

    def kept(self) -> Any:
        return self._directory.kept()

    def agreed(self, batch: int, staged: Sequence[Output]) -> Sequence[Output]:
        return self._directory.agreed(batch, staged)

    def publish(self, manifest: Manifest, staged: Sequence[Output], session: Any) -> None:
        self._directory.publish(manifest, staged)

    def close(self, has_failed: bool) -> None:
        if not has_failed:
            self._directory.close()


def _appended(files: Files, before: Sequence[Output], new: Sequence[Output]) -> list[Output]:
    """The files of a list with some more behind them; where there are many, small ones at the end become one.

    Only those are merged that aren't larger than all that follow them, so each byte is copied as often as what is
    behind it doubles.
    """
    found = [*before, *new]
    if len(found) <= _MOST_COLLECTED_FILES:
        return found
    rows = [output.rows for output in found]
    first = next(index for index in range(len(rows)) if rows[index] <= sum(rows[index + 1 :]) or index == len(rows) - 2)
    data = b"".join(files.fetch(output.blob, "what a list holds") for output in found[first:])
    blob = files.keep(f"{COLLECTED}/", data)
    return [*found[:first], Output(blob.file, blob.digest, sum(rows[first:]))]
