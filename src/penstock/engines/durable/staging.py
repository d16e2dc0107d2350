"""How sinks' tuples are kept until they may be seen: as a file's bytes, or pickled for the sink that takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.files.writers import FileSink, encode
from penstock.connectors.sink import Rejected, Sink, SinkWriter
from penstock.engines.durable.checkpoint import OUTPUTS
from penstock.state import pickles
from penstock.state.files import Files
from penstock.state.manifests import Output


@dataclass(frozen=True)
class Staged:
    """Some output of a sink, in a file that only the manifest makes part of the result."""

    operator: str
    sort_key: bytes
    """The slice that it was made of: output is published in this order."""
    output: Output


def stage_file(files: Files, batch: int, data: bytes, rows: int) -> Output:
    """Write output that is not to be seen yet."""
    blob = files.keep(f"{OUTPUTS}/{batch:010d}-", data)
    return Output(blob.file, blob.digest, rows)


def stage_of(sink: Sink, dumps: Callable[[Any], bytes] = pickles.dumps) -> FileStage | ValueStage:
    """What stands for a sink while its output is not to be seen; `dumps` pickles tuples that go to no file."""
    return FileStage(sink) if isinstance(sink, FileSink) else ValueStage(dumps)


class FileStage(Sink):
    """Turns tuples into the bytes of one file for each slice."""

    name = "files"
    any_thread = True

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self._data: list[bytes] = []
        self._rows = 0
        self.size_bytes = 0

    def open(self) -> SinkWriter:
        self._encoder = self._sink.staging_encoder()
        return _StageWriter(self)

    def write(self, values: Sequence[Any]) -> Rejected | None:
        rejected = encode(self._encoder, values)
        self._rows += len(values) if rejected is None else rejected.position
        data = self._encoder.take_bytes()
        self._data.append(data)
        self.size_bytes += len(data)
        return rejected

    def values(self) -> Sequence[Any]:
        """What has not been taken: here they are bytes by now."""
        return ()

    def take(self) -> tuple[bytes, int]:
        """A whole file, and how many tuples are in it."""
        if not self._rows:
            return b"", 0
        data, rows = b"".join([*self._data, self._encoder.finish()]), self._rows
        self._encoder, self._data, self._rows, self.size_bytes = self._sink.staging_encoder(), [], 0, 0
        return data, rows


class ValueStage(Sink):
    """Keeps tuples for the driver, which hands them to the sink itself."""

    name = "values"
    any_thread = True

    def __init__(self, dumps: Callable[[Any], bytes]) -> None:
        self._dumps = dumps
        self._values: list[Any] = []

    def open(self) -> SinkWriter:
        return _StageWriter(self)

    def write(self, values: Sequence[Any]) -> Rejected | None:
        self._values.extend(values)
        return None

    @property
    def size_bytes(self) -> int:
        return 64 * len(self._values)  # by and large: measuring each would cost more than it is worth

    def take(self) -> tuple[bytes, int]:
        values, data = self._values, self._dumps(self._values)
        self._values = []
        return data, len(values)

    def values(self) -> Sequence[Any]:
        """What has not been taken."""
        return self._values


class _StageWriter(SinkWriter):
    def __init__(self, stage: FileStage | ValueStage) -> None:
        self._stage = stage

    def write(self, values: Sequence[Any]) -> Rejected | None:
        return self._stage.write(values)
