"""The program of a companion process: it runs operators on chunks that come through a pipe.

python -m penstock.runtime.companion <to read from> <to write to> <lifeline> <last words> <process that has started it>

The first four are descriptors. It ends when the first pipe is closed; and whatever users' code does meanwhile, it ends
when the lifeline is, which only the process that has started it holds: so it never outlives that one.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from penstock.connectors.source import Chunk
from penstock.flow.nodes import Graph, Writes
from penstock.observe.report import OperatorReport
from penstock.runtime.companion_protocol import INLET, Answer, Packet, packed, receive, send, unpacked
from penstock.runtime.inlets import Outlet
from penstock.runtime.portable import portable
from penstock.runtime.quiescence import Part

_LOOK_SECONDS = 1.0


class LoadedProgram:
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


def _answered(programs: dict[int, LoadedProgram], packet: Packet) -> Packet:
    """What came of a chunk; or why that is not known: it can't be read, or what came of it can't be written."""
    try:
        number, graph, values = unpacked(packet)
        if graph is not None:
            programs[number] = LoadedProgram(pickle.loads(graph))
        return packed(programs[number].run(values))
    except BaseException as error:
        return packed(Answer((), {}, portable(error), is_of_chunk=True))


def _watch(lifeline: int, parent: int) -> None:
    """End this process when the other one is gone, whatever the main thread does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # which asks where the main thread stands
    while os.getppid() == parent and not select.select([lifeline], [], [], _LOOK_SECONDS)[0]:
        pass
    os._exit(1)


def _hold(lifeline: int, parent: int) -> None:
    """Once by a thread; and, for code that never lets go of the GIL, by the system, where that does so."""
    threading.Thread(target=_watch, args=(lifeline, parent), daemon=True).start()
    if sys.platform == "linux":
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)  # which is to end
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has started it decides what ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reads, writes = (Connection(int(descriptor)) for descriptor in sys.argv[1:3])
    lifeline, words, parent = map(int, sys.argv[3:6])
    _hold(lifeline, parent)
    faulthandler.enable(words, all_threads=False)
    faulthandler.register(signal.SIGUSR1, words, all_threads=False)
    programs: dict[int, LoadedProgram] = {}
    try:
        sys.path[:] = unpacked(receive(reads))
        while True:
            send(writes, _answered(programs, receive(reads)))
    except (EOFError, OSError):
        pass


if __name__ == "__main__":
    main()
