"""Companion processes: pure Python on more than one core under a GIL, for functions without state.

Each worker thread has its own, started when it first needs one. A thread that waits for its companion leaves the GIL
to the others.
"""

from __future__ import annotations

import itertools
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from penstock.errors import FlowError, OperatorError, PenstockError, caused_by, describe_exception, short_repr
from penstock.flow.nodes import Graph, Node, PortRef, Reads, Writes
from penstock.observe.report import LeftBehind
from penstock.runtime.companion_protocol import INLET, Answer, merged, packed, receive, send, unpacked
from penstock.runtime.inlets import Inlet, Outlet
from penstock.runtime.portable import portable, revived
from penstock.runtime.standing import is_users

_MOST_DEATHS = 3
_LEAVE_SECONDS = 2.0
_WORDS_SECONDS = 0.5
_QUIET_SECONDS = 0.1
_MOST_WORDS = 1 << 16
_FRAME = re.compile(r'File "(?P<file>.*?)", line (?P<line>\d+) in (?P<name>.*)')
_numbers = itertools.count()


class Interrupted(PenstockError):
    """The run is over, and so is the companion that was at work: no user hears of this."""


class _Died(Exception):
    """A companion has died: in which way, and where."""


class Program:
    """What companions run for a cell: pickled once, and sent to each of them once."""

    def __init__(self, flow: str, nodes: Sequence[Node]) -> None:
        self.number = next(_numbers)
        self.operator = " + ".join(node.name for node in nodes)
        self.name = f"operator {' or '.join(repr(node.name) for node in nodes)} of flow {flow!r} ({nodes[0].where})"
        try:
            self.graph: bytes = cloudpickle.dumps(_between(flow, nodes))
        except BaseException as error:
            raise FlowError(
                f"flow {flow!r}: {nodes[0].name!r} ({nodes[0].where}) can't be sent to a companion process, because "
                f"something it refers to can't be pickled ({describe_exception(error)}); make connections, locks "
                "and files inside the function, or use workers='threads'"
            ) from error

    def failed_on(self, value: Any, why: str, cause: BaseException | None = None) -> Answer:
        """That the operator can't be run on a tuple."""
        error = OperatorError(f"{self.name} failed on {short_repr(value)}: {why}", operator=self.operator, value=value)
        return Answer((), {}, portable(caused_by(error, cause)))


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
        its_lifeline, self._lifeline = os.pipe()
        self._words, its_words = os.pipe()
        its_own = (its_reads, its_writes, its_lifeline, its_words)
        command = [sys.executable, "-m", "penstock.runtime.companion", *map(str, its_own), str(os.getpid())]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=its_own)
        finally:
            for descriptor in its_own:
                os.close(descriptor)
        self._reads, self._writes = Connection(reads, writable=False), Connection(writes, readable=False)
        self._known: set[int] = set()
        self._leaving = threading.Lock()
        self._has_left = False
        self.program: Program | None = None
        """What it is running at the moment."""
        send(self._writes, packed(sys.path))

    def run(self, program: Program, values: list[Any]) -> Answer:
        """Have a chunk processed; `EOFError` or `OSError` if the process has died."""
        graph = None if program.number in self._known else program.graph
        try:
            packet = packed((program.number, graph, values))
        except BaseException as error:
            return Answer((), {}, portable(error), is_of_chunk=True)
        self.program = program
        send(self._writes, packet)
        packet = receive(self._reads)
        self.program = None
        try:
            answer: Answer = unpacked(packet)
        except BaseException as error:
            return Answer((), {}, portable(error), is_of_chunk=True)
        if not answer.is_of_chunk:
            self._known.add(program.number)
        return answer

    def standing(self) -> str:
        """The line that it stands at, as it says itself, even while it is stuck."""
        with suppress(OSError):
            self.process.send_signal(signal.SIGUSR1)
        return self._last_words(_WORDS_SECONDS) or "a place that is not known"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self, seconds: float = _LEAVE_SECONDS) -> None:
        """Let it end; if it does not in time, end it."""
        with self._leaving:
            if self._has_left:
                return
            self._has_left = True
            self._writes.close()
            self._reads.close()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
            self._at = self._last_words(0.0)
            os.close(self._lifeline)
            os.close(self._words)

    def death(self) -> str:
        """How it has died, after it has left."""
        code = self.process.returncode
        where = f", at {self._at}" if self._at else ""
        if code >= 0:
            return f"with exit code {code}{where}"
        with suppress(ValueError):
            hint = (
                "; unless it was killed from outside, the system was out of memory" if -code == signal.SIGKILL else ""
            )
            return f"by {signal.Signals(-code).name}{where}{hint}"
        return f"by signal {-code}{where}"

    def _last_words(self, seconds: float) -> str:
        """The user's line in the traceback that it has left, if there is one in so many seconds."""
        frames = list(_FRAME.finditer(self._said(seconds)))
        for frame in [one for one in frames if is_users(one["file"])] or frames[:1]:
            return f"{frame['file']}:{frame['line']} in {frame['name']}"
        return ""

    def _said(self, seconds: float) -> str:
        """All that it says once it has begun: a traceback comes in pieces, and has no mark at its end."""
        said = b""
        while len(said) < _MOST_WORDS and select.select([self._words], [], [], seconds)[0]:
            piece = os.read(self._words, _MOST_WORDS)
            if not piece:  # it has died
                break
            said += piece
            seconds = _QUIET_SECONDS
        return said.decode(errors="replace")


class Companions:
    """The companions of a run's worker threads."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[Companion] = []
        self._lock = threading.Lock()
        self._has_ended = False

    def run(self, program: Program, values: list[Any]) -> Answer:
        """Have a chunk processed; if the companion dies, again by a new one, in the end tuple by tuple."""
        if len(values) == 1:
            return self._run_one(program, values[0], _MOST_DEATHS)
        for _ in range(_MOST_DEATHS - 1):
            try:
                answer = self._tried(program, values)
            except _Died:
                continue
            if not answer.is_of_chunk:
                return answer
            return self._one_by_one(program, values, _MOST_DEATHS)
        return self._one_by_one(program, values, 1)

    def _one_by_one(self, program: Program, values: list[Any], lives: int) -> Answer:
        answers: list[Answer] = []
        for value in values:
            answers.append(self._run_one(program, value, lives))
            if answers[-1].error is not None:
                break
        return merged(answers)

    def _run_one(self, program: Program, value: Any, lives: int) -> Answer:
        died = ""
        for _ in range(lives):
            try:
                answer = self._tried(program, [value])
            except _Died as death:
                died = str(death)
                continue
            if answer.is_of_chunk:
                assert answer.error is not None
                error = revived(answer.error)
                why = "it, what came of it, or its function can't be passed between companion processes: "
                return program.failed_on(value, why + describe_exception(error), error)
            return answer
        return program.failed_on(value, f"{_MOST_DEATHS} companion processes have died of it, the last {died}")

    def _tried(self, program: Program, values: list[Any]) -> Answer:
        companion = self._mine()
        try:
            return companion.run(program, values)
        except (EOFError, OSError):
            self._own.companion = None
            with self._lock, suppress(ValueError):
                self._all.remove(companion)
            companion.leave()
            if self._has_ended:
                raise Interrupted from None
            raise _Died(companion.death()) from None

    def _mine(self) -> Companion:
        companion: Companion | None = getattr(self._own, "companion", None)
        if self._has_ended:
            raise Interrupted
        if companion is None:
            companion = self._own.companion = Companion()
            with self._lock:
                self._all.append(companion)
                has_ended = self._has_ended
            if has_ended:
                companion.leave(0.0)
                raise Interrupted
        return companion

    def end(self) -> list[LeftBehind]:
        """The run ends at once: kill those that are at work, and say where they stood."""
        with self._lock:
            self._has_ended = True
            busy = [(companion, companion.program) for companion in self._all]
        found = []
        for companion, program in busy:
            if program is not None:
                found.append(LeftBehind(program.operator, companion.standing()))
                companion.kill()
        return found

    def leave(self) -> None:
        """End them all."""
        with self._lock:
            self._has_ended = True
            companions, self._all = self._all, []
        for companion in companions:
            companion.leave()
