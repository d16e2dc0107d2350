"""The program of a companion process: it runs operators on chunks that come through a pipe.

python -m penstock.runtime.companion <descriptor to read from> <descriptor to write to>

It ends when the pipe is closed, so it never outlives the process that has started it.
"""

from __future__ import annotations

import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from penstock.connectors.source import Chunk
from penstock.flow.nodes import Graph, Writes
from penstock.observe.report import OperatorReport
from penstock.runtime.companion_protocol import INLET, Answer, receive, send
from penstock.runtime.inlets import Outlet
from penstock.runtime.portable import portable
from penstock.runtime.quiescence import Part


class Program:
    """A graph between an inlet and outlets that are named by the ports of the cell they stand for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._begin()

    def _begin(self) -> None:
        self._part = Part(self._graph)
        self._outlets = {
            int(node.name): node.kind.sink
            for node in self._graph.nodes
            if isinstance(node.kind, Writes) and isinstance(node.kind.sink, Outlet)
        }
        self._before: dict[str, OperatorReport] = self._part.counts()

    def run(self, values: list[Any]) -> Answer:
        self._part.feed(INLET, Chunk(values, 0))
        given = tuple((port, outlet.take()) for port, outlet in self._outlets.items())
        now = self._part.counts()
        counts = {
            name: (
                after.received - before.received,
                after.emitted - before.emitted,
                after.failed - before.failed,
                after.busy_seconds - before.busy_seconds,
            )
            for (name, after), before in zip(now.items(), self._before.values(), strict=True)
        }
        self._before = now
        failure = self._part.failure
        if failure is None:
            return Answer(given, counts)
        self._begin()  # what failed takes no more
        return Answer(given, counts, portable(failure))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who has started it decides what ends
    reads, writes = (Connection(int(descriptor)) for descriptor in sys.argv[1:3])
    programs: dict[int, Program] = {}
    try:
        sys.path[:] = receive(reads)
        while True:
            number, graph, values = receive(reads)
            try:
                if graph is not None:
                    programs[number] = Program(pickle.loads(graph))
                send(writes, programs[number].run(values))
            except Exception as error:
                send(writes, Answer((), {}, portable(error)))
    except (EOFError, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
