"""What a process and its companion tell each other."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

INLET = "«"

Packet = Sequence[bytes | memoryview]
"""A pickle, and behind it the buffers that it does not hold (arrays, record batches), uncopied."""


@dataclass(frozen=True)
class Answer:
    """What came of a chunk."""

    given: tuple[tuple[int, list[Any]], ...]
    """By output port of the cell."""
    counts: dict[str, tuple[int, int, int, float]]
    """What each operator received, emitted and failed on, and how long it was busy."""
    error: bytes | None = None
    is_of_chunk: bool = False
    """The error is about something in the chunk, and it is not known what: its tuples, one by one, will tell."""


def merged(answers: Sequence[Answer]) -> Answer:
    """What came of chunks one behind the other; only the last may have failed."""
    given: dict[int, list[Any]] = defaultdict(list)
    counts: dict[str, tuple[int, int, int, float]] = {}
    for answer in answers:
        for port, values in answer.given:
            given[port] += values
        for name, more in answer.counts.items():
            received, emitted, failed, seconds = counts.get(name, (0, 0, 0, 0.0))
            counts[name] = received + more[0], emitted + more[1], failed + more[2], seconds + more[3]
    return Answer(tuple(given.items()), counts, answers[-1].error if answers else None)


def packed(value: Any) -> Packet:
    """A value as it is sent; raises whatever pickling it raises."""
    buffers: list[pickle.PickleBuffer] = []
    data: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [data, *(buffer.raw() for buffer in buffers)]


def unpacked(packet: Packet) -> Any:
    """The value; raises whatever unpickling it raises."""
    return pickle.loads(packet[0], buffers=packet[1:])


def send(connection: Connection, packet: Packet) -> None:
    """`OSError` if the other process is gone."""
    connection.send_bytes(len(packet).to_bytes(4, "big"))
    for part in packet:
        connection.send_bytes(part)


def receive(connection: Connection) -> Packet:
    """`EOFError` or `OSError` if the other process is gone."""
    return [connection.recv_bytes() for _ in range(int.from_bytes(connection.recv_bytes(), "big"))]
