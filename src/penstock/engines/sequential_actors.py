"""The actors of the sequential engine: what each kind of operator does with one tuple."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.connectors.reached import read, resume
from penstock.connectors.source import Unreadable
from penstock.flow.nodes import Applies, Loops, Node, Reads, Remembers, Waits, Writes
from penstock.observe.report import OperatorReport
from penstock.operators.functions import Form, batch_of_rows, listed, outputs_of, rows_of_batch
from penstock.operators.state import StateTable
from penstock.operators.timed import Fired, LateTuple, TimedTable
from penstock.operators.times import checked_time
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.context import LoopContext
from penstock.runtime.failures import dead_letter, survived
from penstock.runtime.loop import DriverLoop

if TYPE_CHECKING:
    from penstock.engines.sequential import SequentialRun

_CLOSED: Any = object()
"""Travels behind the last tuple of a stream."""


class Actor:
    """One operator of a run: an inbox of what has come, and what to do with it."""

    def __init__(self, run: SequentialRun, number: int, node: Node) -> None:
        self.run = run
        self.number = number
        self.node = node
        self.targets: list[list[tuple[Actor, int]]] = [[] for _ in range(node.outputs + 1)]
        self.writers: list[Actor] = []
        self.is_done = False
        self.has_ended = False
        """Only for sources: there is nothing more to read."""
        self._inbox: deque[tuple[int, Any]] = deque()
        self._open_inputs = len(node.inputs)
        self._received = self._emitted = self._failed = self._late = 0
        self._busy_seconds = 0.0

    # What a kind of operator does

    def open(self) -> None:
        """Get ready."""

    def handle(self, port: int, value: Any) -> None:
        """Process one tuple."""

    def ended(self, port: int) -> None:
        """An input has ended."""
        self._open_inputs -= 1
        if self._open_inputs == 0:
            self.complete()

    def leave(self, has_failed: bool) -> None:
        """The run is over, well or not."""

    def turn(self) -> float:
        """Only for sources: read a tuple, or say how many seconds it is worth waiting for one."""
        raise NotImplementedError

    def close_controls(self) -> None:
        """Nothing more will come to the control inputs."""

    # What all of them do

    def put(self, port: int, value: Any) -> None:
        if not self.is_done:
            self._inbox.append((port, value))
            self.run.wake(self)

    def step(self) -> None:
        """Process the next thing that has come."""
        if not self._inbox:
            return
        port, value = self._inbox.popleft()
        started = self.run.clock.now()
        if value is _CLOSED:
            self.ended(port)
        else:
            self._received += 1
            self.handle(port, value)
        self._busy_seconds += self.run.clock.now() - started

    def send(self, port: int, value: Any) -> None:
        self._emitted += port < self.node.outputs
        for actor, to_port in self.targets[port]:
            actor.put(to_port, value)

    def complete(self) -> None:
        """Nothing more comes from here: tell the readers, and let go of writers that have no other reader."""
        if self.is_done:
            return
        self.is_done = True
        self._inbox.clear()
        for readers in self.targets:
            for actor, to_port in readers:
                actor.put(to_port, _CLOSED)
        for writer in self.writers:
            if all(actor.is_done for readers in writer.targets for actor, _ in readers):
                writer.complete()

    def failed(self, value: Any, error: BaseException) -> None:
        """An operator's own `on_error` decides."""
        letter = survived(self.run.graph.flow, self.node, value, error)
        self._failed += 1
        if letter is not None:
            self.send(self.node.outputs, letter)

    def counts(self) -> OperatorReport:
        return OperatorReport(self._received, self._emitted, self._busy_seconds, failed=self._failed, late=self._late)


class SourceActor(Actor):
    def open(self) -> None:
        assert isinstance(self.node.kind, Reads)
        source = self.node.kind.source
        splits = list(resume(source, closes=self.run.closes))
        self._chunks = read(source, splits, lambda split: source.read(split, self.run.clock))
        self._waiting: deque[Any] = deque()

    def turn(self) -> float:
        if not self._waiting:
            _, chunk = next(self._chunks, ("", None))
            if chunk is None:
                self.has_ended = True
                return 0
            if not chunk.values:
                return chunk.idle_seconds
            self._waiting.extend(chunk.values)
        value = self._waiting.popleft()
        self._received += 1
        if isinstance(value, Unreadable):
            self.failed(value.raw, value.error)
        else:
            self.send(0, value)
        return 0

    def leave(self, has_failed: bool) -> None:
        if hasattr(self, "_chunks"):
            self._chunks.close()


class FunctionActor(Actor):
    def handle(self, port: int, value: Any) -> None:
        kind = self.node.kind
        assert isinstance(kind, Applies)
        try:
            outputs = self._outputs(kind, value)
        except BaseException as error:
            self.failed(value, error)
            return
        for to_port, values in enumerate(outputs):
            for output in values:
                self.send(to_port, output)

    def _outputs(self, kind: Applies, value: Any) -> Any:
        match kind.form:
            case Form.BATCH:
                result = kind.fn([value])
            case Form.ARROW:
                result = rows_of_batch(kind.fn(batch_of_rows([value], kind.input_schema)), kind.schema)
                return (result,)
            case Form.ASYNC:
                result = self.run.wait_for(lambda: kind.fn(value), kind.timeout_seconds)
            case _:
                result = kind.fn(value)
        return outputs_of(kind.form, kind.fn, value, result)


class StateActor(Actor):
    def open(self) -> None:
        assert isinstance(self.node.kind, Remembers)
        self._states = StateTable(self.node.kind.init, self.node.kind.ttl)

    def handle(self, port: int, value: Any) -> None:
        kind = self.node.kind
        assert isinstance(kind, Remembers)
        try:
            key = None if kind.key is None else kind.key.fn(value)
            identity = key_bytes(key)
            now = self.run.clock.now() if kind.time is None else checked_time(kind.time(value))
            state, output = kind.fn(self._states.get(identity, now), value)
            outputs = listed(Form.FLAT_MAP, kind.fn, output) if kind.many else [output]
        except BaseException as error:
            self.failed(value, error)
            return
        self._states.put(identity, state, now)
        for output in outputs:
            self.send(0, (key, output) if kind.with_key else output)


class TimedActor(Actor):
    def open(self) -> None:
        assert isinstance(self.node.kind, Waits)
        self._table = TimedTable(self.node.kind.logic, self.node.kind.lateness)

    def handle(self, port: int, value: Any) -> None:
        kind = self.node.kind
        assert isinstance(kind, Waits)
        try:
            key, time = kind.keys[port].fn(value), kind.times[port](value)
            fired = self._table.advance(port, time)
        except BaseException as error:
            self.failed(value, error)
            return
        self._let_out(fired)
        try:
            self._send_all(self._table.add(port, key, value, time))
        except LateTuple as late:
            self._late += 1
            self._came_late(kind, value, late)
        except BaseException as error:
            self.failed(value, error)

    def _came_late(self, kind: Waits, value: Any, late: LateTuple) -> None:
        if kind.on_late == "dead-letter":
            self.send(self.node.outputs, dead_letter(self.node, value, late))
        elif callable(kind.on_late):
            try:
                kind.on_late(value)
            except BaseException as error:
                self.failed(value, error)

    def ended(self, port: int) -> None:
        self._let_out(self._table.close(port))
        super().ended(port)

    def _let_out(self, fired: list[Fired]) -> None:
        for one in fired:
            self._send_all(one.outputs)
            if one.error is not None:
                self.failed(one.key, one.error)

    def _send_all(self, outputs: Any) -> None:
        for output in outputs:
            self.send(0, output)


class SinkActor(Actor):
    def open(self) -> None:
        assert isinstance(self.node.kind, Writes)
        self._writer = self.node.kind.sink.open()

    def handle(self, port: int, value: Any) -> None:
        if rejected := self._writer.write([value]):
            self.failed(value, rejected.error)

    def leave(self, has_failed: bool) -> None:
        if hasattr(self, "_writer"):
            self._writer.abandon() if has_failed else self._writer.close()


class LoopActor(Actor):
    """A driver loop, or one for each key of a keyed operator."""

    def open(self) -> None:
        assert isinstance(self.node.kind, Loops)
        self._kind = self.node.kind
        self._loops: dict[bytes, DriverLoop] = {}
        self._agenda: deque[DriverLoop] = deque()
        """Loops that can go on; the first may be in the middle of what it emits."""
        self._ended_ports: set[int] = set()
        if self._kind.operator.kind != "keyed":
            loop = self._new_loop(None)
            if self.node.inputs:
                self._agenda.append(loop)
                self.run.wake(self)

    def handle(self, port: int, value: Any) -> None:
        try:
            key = self._kind.keys[port].fn(value) if self._kind.keys else None
            loop = self._loops.get(key_bytes(key)) or self._new_loop(key)
        except BaseException as error:
            self.failed(value, error)
            return
        loop.ports[port].arrive(value)
        self._agenda.append(loop)

    def ended(self, port: int) -> None:
        self._ended_ports.add(port)
        for identity in sorted(self._loops, key=firing_order):
            self._loops[identity].ports[port].end()
            self._agenda.append(self._loops[identity])

    def step(self) -> None:
        """One resumption of a loop, or, when none can go on, the next thing that has come."""
        if self._agenda:
            started = self.run.clock.now()
            if not self._resume(self._agenda[0]):
                self._agenda.popleft()
            self._busy_seconds += self.run.clock.now() - started
        else:
            super().step()
        if self._agenda or self._inbox:
            self.run.wake(self)
        elif self._is_over():
            self.complete()

    def turn(self) -> float:
        """A loop without inputs is a source: its turn ends when it has emitted something."""
        (loop,) = self._loops.values()
        self._resume(loop)
        self.has_ended = loop.is_done
        return 0 if loop.context.can_go_on() else math.inf

    def close_controls(self) -> None:
        for port in range(len(self.node.inputs), len(self.node.inputs) + len(self.node.controls)):
            if port not in self._ended_ports:
                self.put(port, _CLOSED)

    def leave(self, has_failed: bool) -> None:
        for loop in getattr(self, "_loops", {}).values():
            loop.close()

    def _resume(self, loop: DriverLoop) -> bool:
        """Let a loop run to its next trap; whether it could go on from there."""
        if loop.is_done or not loop.context.can_go_on():
            return False
        loop.resume_or_restart(self.failed)
        return not loop.is_done and loop.context.can_go_on()

    def _is_over(self) -> bool:
        if not all(loop.is_done for loop in self._loops.values()):
            return False
        return not self._kind.keys or self._ended_ports >= set(range(len(self.node.inputs)))

    def _new_loop(self, key: Any) -> DriverLoop:
        operator, engine = self._kind.operator, self.run.engine
        identity = key_bytes(key)
        history = self.node.name if key is None else f"{self.node.name}#{identity.hex()}"
        context = LoopContext(
            self.node.name,
            len(self.node.inputs),
            len(self.node.controls),
            self.send,
            self.node.outputs,
            key=key,
            has_state=operator.kind != "stateless",
            is_stopping=lambda: self.run.stop.requested,
            replay=engine.arrivals.sights.get(history, ()),
            record=self.run.recorded.setdefault(history, []).append if engine.record_arrivals else None,
        )
        loop = DriverLoop(self.node.name, operator, context, engine.restart == "every-wait")
        for port in self._ended_ports:
            loop.ports[port].end()
        self._loops[identity] = loop
        return loop


def actor_of(run: SequentialRun, number: int, node: Node) -> Actor:
    match node.kind:
        case Reads():
            return SourceActor(run, number, node)
        case Applies():
            return FunctionActor(run, number, node)
        case Remembers():
            return StateActor(run, number, node)
        case Waits():
            return TimedActor(run, number, node)
        case Loops():
            return LoopActor(run, number, node)
        case Writes():
            return SinkActor(run, number, node)
