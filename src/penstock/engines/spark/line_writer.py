"""A sink's lines, written by the tasks that its tuples come from, before they are put in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.clock import SystemClock
from penstock.connectors.files.encoders import LineEncoder
from penstock.connectors.files.writers import FileSink
from penstock.engines.spark.wire import Slice
from penstock.flow.nodes import Node, Writes
from penstock.runtime.failures import survived

_LINE_BREAK = ord("\n")


class LineWriter:
    """Writes the lines of one sink, slice by slice."""

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
        """The slice with its lines for values."""
        began = self._clock.now()
        try:
            lines = self._lines(part.values)
        except BaseException:
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
            except BaseException as error:
                self.failed_at = part.position(number)
                survived(self._flow, self._node, value, error)
                self.failed += 1
        positions = None if part.positions is None else tuple(column[good] for column in part.positions)
        return Slice(part.sort_key, [], positions), pa.concat_arrays(lines) if lines else self._lines([])


def joined(lines: pa.Array) -> bytes:
    """Lines as the bytes of a file: they are that already, one behind the other."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return bytes(memoryview(data)[first:last])
