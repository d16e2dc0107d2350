"""The meaning of a flow: one tuple at a time, in one thread; every other engine is compared with this one.

A tuple of a source goes all the way through before the next one is read; sources take turns. An operator runs only when
everything after it is at rest.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

from penstock.clock import Clock, SystemClock
from penstock.connectors.source import Unreadable, splits_from
from penstock.engines.base import AtEnd, Engine, Job
from penstock.errors import FlowError, OperatorError, PenstockError, describe_exception, short_repr
from penstock.flow.nodes import (
    Applies,
    DeadLetter,
    Graph,
    Loops,
    Node,
    PortRef,
    Reads,
    Remembers,
    Waits,
    Writes,
)
from penstock.observe.arrivals import Arrivals, Sight
from penstock.observe.report import Latency, OperatorReport, Report
from penstock.operators.functions import Form, batch_of_rows, listed, outputs_of, rows_of_batch
from penstock.operators.state import StateTable
from penstock.operators.timed import LateTuple, TimedTable
from penstock.operators.times import checked_time
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.background import Background, StopSignal
from penstock.runtime.context import LoopContext
from penstock.runtime.loop import Loop

_CLOSED: Any = object()
"""Travels behind the last tuple of a stream."""
_TUPLES_PER_SAMPLE = 16
_LONGEST_SLEEP_SECONDS = 0.05


class Sequential(Engine):
    """One tuple at a time, in one thread.

    `restart="every-wait"` restarts driver loops whenever they wait, to show that they keep what they need in
    `ctx.state`; `arrivals` repeats the order of arrival of another run; `record_arrivals` puts that of this one into
    the report.
    """

    name = "sequential"

    def __init__(
        self,
        *,
        restart: Literal["never", "every-wait"] = "never",
        arrivals: Arrivals | None = None,
        record_arrivals: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if restart not in ("never", "every-wait"):
            raise FlowError(f"engine 'sequential': restart= is 'never' or 'every-wait', not {restart!r}")
        if arrivals is not None and restart != "never":
            raise FlowError(
                "engine 'sequential': restarted loops wait more often, so arrivals= can't be repeated to them"
            )
        self.restart = restart
        self.arrivals = arrivals or Arrivals({})
        self.record_arrivals = record_arrivals
        self.clock = clock or SystemClock()

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        return _SequentialJob(self, graph, at_end or "close")


class _SequentialJob(Job):
    def __init__(self, engine: Sequential, graph: Graph, at_end: AtEnd) -> None:
        self._stop = StopSignal()
        self._run = _Run(engine, graph, at_end, self._stop)
        self._background = Background(self._run.to_the_end, name=f"penstock-{graph.flow}")

    def wait(self, timeout: float | None = None) -> Report:
        if not self._background.join(timeout):
            raise TimeoutError(f"the flow is still running after {timeout} seconds")
        return self._background.result()

    def stop(self, drain: bool = True) -> None:
        self._stop.request(drain)
        self._background.join()

    def metrics(self) -> Mapping[str, OperatorReport]:
        return self._run.counts()

    @property
    def is_running(self) -> bool:
        return not self._background.join(0)


class _Run:
    """Everything that one run needs; owned by its thread."""

    def __init__(self, engine: Sequential, graph: Graph, at_end: AtEnd, stop: StopSignal) -> None:
        self.engine = engine
        self.graph = graph
        self.clock = engine.clock
        self.stop = stop
        self.recorded: dict[str, list[Sight]] = {}
        self._at_end = at_end
        self._ready: list[int] = []
        self._latencies: deque[float] = deque(maxlen=100_000)
        self._tuples_read = 0
        self._async_runner: asyncio.Runner | None = None
        self.cells = [_cell_of(self, place, node) for place, node in enumerate(graph.nodes)]
        by_name = {cell.node.name: cell for cell in self.cells}
        for cell in self.cells:
            for port, targets in enumerate(cell.targets):
                for reader in graph.readers.get(PortRef(cell.node.name, port), ()):
                    targets.append((by_name[reader.node], reader.port))
                    by_name[reader.node].writers.append(cell)

    def to_the_end(self) -> Report:
        started = self.clock.now()
        opened: list[_Cell] = []
        has_failed = False
        try:
            for cell in reversed(self.cells):  # sinks first: what can't be written need not be read
                opened.append(cell)
                cell.open()
            self._read_everything()
            if not self.stop.at_once:
                self._let_everything_out()
        except BaseException:
            has_failed = True
            raise
        finally:
            for cell in opened:
                cell.leave(has_failed)
            if self._async_runner is not None:
                self._async_runner.close()
        return Report(
            self.graph.flow,
            self.engine.name,
            self.clock.now() - started,
            self.counts(),
            Latency.of(self._latencies),
            arrivals=Arrivals({loop: tuple(sights) for loop, sights in self.recorded.items()})
            if self.engine.record_arrivals
            else None,
        )

    def counts(self) -> dict[str, OperatorReport]:
        return {cell.node.name: cell.counts() for cell in self.cells}

    def wake(self, cell: _Cell) -> None:
        heapq.heappush(self._ready, -cell.place)

    def wait_for(self, awaitable: Callable[[], Any], timeout_seconds: float | None) -> Any:
        """Run a coroutine to its end on this run's event loop."""
        if self._async_runner is None:
            self._async_runner = asyncio.Runner()
        return self._async_runner.run(_limited(awaitable, timeout_seconds))

    def _read_everything(self) -> None:
        self._settle()
        sources = [cell for cell in self.cells if not cell.node.inputs]
        while sources and not self.stop.requested:
            idle_seconds = min([self._read_one(source) for source in sources])
            sources = [source for source in sources if not (source.is_done or source.has_ended)]
            if idle_seconds == math.inf:
                return  # all that is left waits for control inputs, and nobody will send anything
            if sources and idle_seconds > 0:
                self.clock.sleep(min(idle_seconds, _LONGEST_SLEEP_SECONDS))
        for source in sources:  # a driver loop sees that it is to stop, and gets its last say
            self._read_one(source)

    def _read_one(self, source: _Cell) -> float:
        """Read a tuple and let it through; returns how long to wait if there was none."""
        started = self.clock.now()
        idle_seconds = source.turn()
        self._settle()
        self._tuples_read += 1
        if self._tuples_read % _TUPLES_PER_SAMPLE == 0:
            self._latencies.append(self.clock.now() - started)
        return idle_seconds

    def _settle(self) -> None:
        """Run whoever has something to do, the last in the flow first, until nobody has."""
        while self._ready and not self.stop.at_once:
            cell = self.cells[-heapq.heappop(self._ready)]
            if not cell.is_done:
                cell.step()

    def _let_everything_out(self) -> None:
        """The sources have ended: close their streams; what rests then waits for control inputs only."""
        if self._at_end == "keep":
            return
        for cell in self.cells:
            if not cell.node.inputs and not cell.is_done:
                cell.complete()
        self._settle()
        for cell in self.cells:
            if not cell.is_done:
                cell.close_controls()
                self._settle()
        if stuck := [cell.node.name for cell in self.cells if not cell.is_done]:
            if self.stop.at_once:
                return
            raise FlowError(
                f"flow {self.graph.flow!r}: {', '.join(stuck)} waits for what never came; do the arrivals= to be "
                "repeated belong to this flow?"
            )


class _Cell:
    """One operator of the run: a queue of what has come, and what to do with it."""

    def __init__(self, run: _Run, place: int, node: Node) -> None:
        self.run = run
        self.place = place
        self.node = node
        self.targets: list[list[tuple[_Cell, int]]] = [[] for _ in range(node.outputs + 1)]
        self.writers: list[_Cell] = []
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
        """Nobody will send anything to the control inputs any more."""

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
        for cell, place in self.targets[port]:
            cell.put(place, value)

    def complete(self) -> None:
        """Nothing more comes from here: tell the readers, and let go of writers that write for nobody else."""
        if self.is_done:
            return
        self.is_done = True
        self._inbox.clear()
        for readers in self.targets:
            for cell, place in readers:
                cell.put(place, _CLOSED)
        for writer in self.writers:
            if all(cell.is_done for readers in writer.targets for cell, _ in readers):
                writer.complete()

    def failed(self, value: Any, error: Exception) -> None:
        """An operator's own `on_error` decides."""
        if isinstance(error, FlowError):
            raise type(error)(f"operator {self.node.name!r}: {error} ({self.node.where})") from error
        if self.node.on_error == "fail":
            if isinstance(error, PenstockError):
                raise error
            raise OperatorError(
                f"operator {self.node.name!r} of flow {self.run.graph.flow!r} ({self.node.where}) failed on "
                f"{short_repr(value)}: {describe_exception(error)}",
                operator=self.node.name,
                value=value,
            ) from error
        self._failed += 1
        if self.node.on_error == "dead-letter":
            self.send_dead_letter(value, error)

    def send_dead_letter(self, value: Any, error: Exception) -> None:
        self.send(self.node.outputs, DeadLetter(self.node.name, value, describe_exception(error)))

    def counts(self) -> OperatorReport:
        return OperatorReport(self._received, self._emitted, self._busy_seconds, failed=self._failed, late=self._late)


class _SourceCell(_Cell):
    def open(self) -> None:
        assert isinstance(self.node.kind, Reads)
        source = self.node.kind.source
        splits = list(splits_from(source))
        self._chunks = (chunk for split in splits for chunk in source.read(split, self.run.clock))
        self._waiting: deque[Any] = deque()

    def turn(self) -> float:
        if not self._waiting:
            chunk = next(self._chunks, None)
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


class _FunctionCell(_Cell):
    def handle(self, port: int, value: Any) -> None:
        kind = self.node.kind
        assert isinstance(kind, Applies)
        try:
            outputs = self._outputs(kind, value)
        except Exception as error:
            self.failed(value, error)
            return
        for place, values in enumerate(outputs):
            for output in values:
                self.send(place, output)

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


class _StateCell(_Cell):
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
        except Exception as error:
            self.failed(value, error)
            return
        self._states.put(identity, state, now)
        for output in outputs:
            self.send(0, (key, output) if kind.with_key else output)


class _TimedCell(_Cell):
    def open(self) -> None:
        assert isinstance(self.node.kind, Waits)
        self._table = TimedTable(self.node.kind.logic, self.node.kind.lateness)

    def handle(self, port: int, value: Any) -> None:
        kind = self.node.kind
        assert isinstance(kind, Waits)
        try:
            key, time = kind.keys[port].fn(value), kind.times[port](value)
            self._send_all(self._table.advance(port, time))
            self._send_all(self._table.add(port, key, value, time))
        except LateTuple as late:
            self._late += 1
            self._came_late(kind, value, late)
        except Exception as error:
            self.failed(value, error)

    def _came_late(self, kind: Waits, value: Any, late: LateTuple) -> None:
        if kind.on_late == "dead-letter":
            self.send_dead_letter(value, late)
        elif callable(kind.on_late):
            try:
                kind.on_late(value)
            except Exception as error:
                self.failed(value, error)

    def ended(self, port: int) -> None:
        try:
            self._send_all(self._table.close(port))
        except Exception as error:
            self.failed(None, error)
        super().ended(port)

    def _send_all(self, outputs: Any) -> None:
        for output in outputs:
            self.send(0, output)


class _SinkCell(_Cell):
    def open(self) -> None:
        assert isinstance(self.node.kind, Writes)
        self._writer = self.node.kind.sink.open()

    def handle(self, port: int, value: Any) -> None:
        if rejected := self._writer.write([value]):
            self.failed(value, rejected.error)

    def leave(self, has_failed: bool) -> None:
        if hasattr(self, "_writer"):
            self._writer.abandon() if has_failed else self._writer.close()


class _LoopCell(_Cell):
    """A driver loop, or one for each key of a keyed operator."""

    def open(self) -> None:
        assert isinstance(self.node.kind, Loops)
        self._kind = self.node.kind
        self._loops: dict[bytes, Loop] = {}
        self._agenda: deque[Loop] = deque()
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
        except Exception as error:
            self.failed(value, error)
            return
        loop.ports[port].arrive(value)
        self._agenda.append(loop)

    def ended(self, port: int) -> None:
        self._ended_ports.add(port)
        for identity in sorted(self._loops, key=firing_order):
            self._loops[identity].ports[port].ended = True
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

    def _resume(self, loop: Loop) -> bool:
        """Let a loop run to its next trap; whether it could go on from there."""
        if loop.is_done or not loop.context.can_go_on():
            return False
        try:
            loop.resume()
        except Exception as error:
            taken = list(loop.context.popped)
            self.failed(taken[0] if len(taken) == 1 else tuple(taken), error)
            loop.context.popped.clear()
            loop.restart()
        return not loop.is_done and loop.context.can_go_on()

    def _is_over(self) -> bool:
        if not all(loop.is_done for loop in self._loops.values()):
            return False
        return not self._kind.keys or self._ended_ports >= set(range(len(self.node.inputs)))

    def _new_loop(self, key: Any) -> Loop:
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
        loop = Loop(self.node.name, operator, context, engine.restart == "every-wait")
        for port in self._ended_ports:
            loop.ports[port].ended = True
        self._loops[identity] = loop
        return loop


def _cell_of(run: _Run, place: int, node: Node) -> _Cell:
    match node.kind:
        case Reads():
            return _SourceCell(run, place, node)
        case Applies():
            return _FunctionCell(run, place, node)
        case Remembers():
            return _StateCell(run, place, node)
        case Waits():
            return _TimedCell(run, place, node)
        case Loops():
            return _LoopCell(run, place, node)
        case Writes():
            return _SinkCell(run, place, node)


async def _limited(awaitable: Callable[[], Any], timeout_seconds: float | None) -> Any:
    async with asyncio.timeout(timeout_seconds):
        return await awaitable()
