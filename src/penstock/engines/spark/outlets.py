"""How sinks' tuples leave a task: as a file's bytes, as lines of one, or pickled for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.clock import SystemClock
from penstock.connectors.files.encoders import LineEncoder
from penstock.connectors.files.writers import FileSink, encode
from penstock.connectors.sink import Rejected, Sink, SinkWriter
from penstock.engines.spark.pickling import dumps
from penstock.engines.spark.wire import Slice
from penstock.flow.nodes import Node, Writes
from penstock.runtime.failures import survived

_LINE_BREAK = ord("\n")


class FileStage(Sink):
    """Turns tuples into the bytes of one file for each slice."""

    name = "files"

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self._data: list[bytes] = []
        self._rows = 0

    def open(self) -> SinkWriter:
        self._encoder = self._sink.encoder()
        return _StageWriter(self)

    def write(self, values: Sequence[Any]) -> Rejected | None:
        rejected = encode(self._encoder, values)
        self._rows += len(values) if rejected is None else rejected.position
        self._data.append(self._encoder.take_bytes())
        return rejected

    def take(self) -> tuple[bytes, int]:
        """A whole file, and how many tuples are in it."""
        if not self._rows:
            return b"", 0
        data, rows = b"".join([*self._data, self._encoder.finish()]), self._rows
        self._encoder, self._data, self._rows = self._sink.encoder(), [], 0
        return data, rows


class ValueStage(Sink):
    """Keeps tuples for the driver, which hands them to the sink itself."""

    name = "values"

    def __init__(self) -> None:
        self._values: list[Any] = []

    def open(self) -> SinkWriter:
        return _StageWriter(self)

    def write(self, values: Sequence[Any]) -> Rejected | None:
        self._values.extend(values)
        return None

    def take(self) -> tuple[bytes, int]:
        values, self._values = self._values, []
        return dumps(values), len(values)


class _StageWriter(SinkWriter):
    def __init__(self, stage: FileStage | ValueStage) -> None:
        self._stage = stage

    def write(self, values: Sequence[Any]) -> Rejected | None:
        return self._stage.write(values)


class LineWriter:
    """Writes a sink's lines where its tuples come from, before they are put in order."""

    def __init__(self, flow: str, node: Node) -> None:
        assert isinstance(node.kind, Writes)
        assert isinstance(node.kind.sink, FileSink)
        encoder = node.kind.sink.encoder()
        assert isinstance(encoder, LineEncoder)
        self.operator = node.name
        self.failed = 0
        self.failed_at = 0
        self.busy_seconds = 0.0
        self._flow = flow
        self._node = node
        self._encoder = encoder
        self._clock = SystemClock()

    def written(self, part: Slice) -> Slice:
        """The lines of a slice, in its place."""
        began = self._clock.now()
        try:
            lines = self._lines(part.values)
        except Exception:
            part, lines = self._one_by_one(part)
        self.busy_seconds += self._clock.now() - began
        return part.with_values(lines)

    def _lines(self, values: list[Any]) -> pa.Array:
        """Arrow's view of them: where each line ends, and all of them as they are."""
        data = self._encoder.lines(values)
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _LINE_BREAK) + 1
        offsets = np.concatenate([[0], ends])
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    def _one_by_one(self, part: Slice) -> tuple[Slice, pa.Array]:
        good, lines = [], []
        for number, value in enumerate(part.values):
            try:
                lines.append(self._lines([value]))
                good.append(number)
            except Exception as error:
                self.failed_at = part.position(number)
                survived(self._flow, self._node, value, error)
                self.failed += 1
        positions = None if part.positions is None else tuple(column[good] for column in part.positions)
        return Slice(part.place, [], positions), pa.concat_arrays(lines) if lines else self._lines([])


def joined(lines: pa.Array) -> bytes:
    """Lines as the bytes of a file: they are that already, one behind the other."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return bytes(memoryview(data)[first:last])
