"""What a process and its companion tell each other."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

INLET = "«"


@dataclass(frozen=True)
class Answer:
    """What came of a chunk."""

    given: tuple[tuple[int, list[Any]], ...]
    """By output port of the cell."""
    counts: dict[str, tuple[int, int, int, float]]
    """What each operator received, emitted and failed on, and how long it was busy."""
    error: bytes | None = None


def send(connection: Connection, value: Any) -> None:
    """A pickle, and behind it the buffers that it does not hold (arrays, record batches), uncopied."""
    buffers: list[pickle.PickleBuffer] = []
    data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    connection.send_bytes(len(buffers).to_bytes(4, "big") + data)
    for buffer in buffers:
        connection.send_bytes(buffer.raw())


def receive(connection: Connection) -> Any:
    data = memoryview(connection.recv_bytes())
    buffers = [connection.recv_bytes() for _ in range(int.from_bytes(data[:4], "big"))]
    return pickle.loads(data[4:], buffers=buffers)
