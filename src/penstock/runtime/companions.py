"""Companion processes: pure Python on more than one core under a GIL, for functions without state.

Each worker thread has its own, started when it first needs one. A thread that waits for its companion leaves the GIL
to the others.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from penstock.errors import FlowError, OperatorError
from penstock.flow.nodes import Graph, Node, PortRef, Reads, Writes
from penstock.runtime.companion_protocol import INLET, Answer, receive, send
from penstock.runtime.inlets import Inlet, Outlet

_MOST_DEATHS = 3
_LEAVE_SECONDS = 2.0
_numbers = itertools.count()


class Program:
    """What companions run for a cell: pickled once, and sent to each of them once."""

    def __init__(self, flow: str, nodes: Sequence[Node]) -> None:
        self.number = next(_numbers)
        self.operator = nodes[0]
        try:
            self.graph: bytes = cloudpickle.dumps(_between(flow, nodes))
        except Exception as error:
            raise FlowError(
                f"flow {flow!r}: {nodes[0].name!r} ({nodes[0].where}) can't be sent to a companion process, because "
                f"something it refers to can't be pickled ({type(error).__name__}: {error}); make connections, locks "
                "and files inside the function, or use workers='threads'"
            ) from error


def _between(flow: str, nodes: Sequence[Node]) -> Graph:
    """The nodes of a cell as a graph of their own; its outlets are named by the cell's output ports."""
    first, last = nodes[0], nodes[-1]
    inlet = Node(INLET, Reads(Inlet()), (), (), 1, "fail", first.where)
    members = [replace(first, inputs=(PortRef(INLET),)), *nodes[1:]]
    refs = [PortRef(last.name, port) for port in range(last.outputs)]
    refs += [PortRef(node.name, node.outputs) for node in nodes]
    outlets = [Node(str(port), Writes(Outlet()), (ref,), (), 0, "fail", first.where) for port, ref in enumerate(refs)]
    return Graph(flow, (inlet, *members, *outlets))


class Companion:
    """One process, and the pipes to and from it."""

    def __init__(self) -> None:
        reads, its_writes = os.pipe()
        its_reads, writes = os.pipe()
        command = [sys.executable, "-m", "penstock.runtime.companion", str(its_reads), str(its_writes)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(its_reads, its_writes))
        os.close(its_reads)
        os.close(its_writes)
        self._reads, self._writes = Connection(reads, writable=False), Connection(writes, readable=False)
        self._known: set[int] = set()
        send(self._writes, sys.path)

    def run(self, program: Program, values: list[Any]) -> Answer:
        """Have a chunk processed; `EOFError` or `OSError` if the process has died."""
        graph = None if program.number in self._known else program.graph
        send(self._writes, (program.number, graph, values))
        self._known.add(program.number)
        answer: Answer = receive(self._reads)
        return answer

    def leave(self) -> None:
        self._writes.close()
        self._reads.close()
        try:
            self.process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Companions:
    """The companions of a run's worker threads."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[Companion] = []
        self._lock = threading.Lock()

    def run(self, program: Program, values: list[Any]) -> Answer:
        """Have a chunk processed; if the companion dies, again by a new one."""
        for _ in range(_MOST_DEATHS):
            companion = self._mine()
            try:
                return companion.run(program, values)
            except (EOFError, OSError):
                self._own.companion = None
                companion.leave()
                status = companion.process.returncode
        node = program.operator
        raise OperatorError(
            f"operator {node.name!r} ({node.where}): {_MOST_DEATHS} companion processes have died on a chunk of "
            f"{len(values)} tuples, the last with exit code {status}",
            operator=node.name,
            value=values[0],
        )

    def _mine(self) -> Companion:
        companion: Companion | None = getattr(self._own, "companion", None)
        if companion is None:
            companion = self._own.companion = Companion()
            with self._lock:
                self._all.append(companion)
        return companion

    def leave(self) -> None:
        """End them all."""
        with self._lock:
            companions, self._all = self._all, []
        for companion in companions:
            companion.leave()
