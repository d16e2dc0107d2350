"""Cells that run functions: fused chains, batches, event-time logic, and functions that are awaited."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import wall_time
from penstock.flow.nodes import Applies, Node, Remembers
from penstock.observe.report import OperatorReport
from penstock.operators.functions import Form, batch_of_rows, listed, rows_of_batch
from penstock.operators.kept import Changed, Kept
from penstock.runtime.cells import Cell, Failed
from penstock.runtime.chain import Part, changed_in, compile_chain, kept_of, make_part, restore_part
from penstock.runtime.changing import Changing
from penstock.runtime.event_loop import Raised, enveloped
from penstock.runtime.ports import Port

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.runtime.run import Run

_CHUNKS_PER_STAGED = 64
_MOST_STAGED = 512


class FunctionCell(Changing):
    """Takes chunks from one port, as large as what takes about a millisecond."""

    def __init__(self, run: Run, place: float, nodes: Sequence[Node], port: Port) -> None:
        super().__init__(run, place, nodes, [port])
        self._port = port
        self._values: list[Any] = []
        self._born = 0.0

    def take(self) -> bool:
        if self.has_changed():
            return False
        closed = self._port.closed  # read first: what was written before the end must not be missed
        self._values, self._born = self._port.take(self.budget(len(self._port)))
        if not self._values and closed:
            self.is_over = True
        return bool(self._values)

    def process(self) -> None:
        values, self._values = self._values, []
        self.processed = len(values)
        self.run_chunk(values)

    def run_chunk(self, values: list[Any]) -> None:
        raise NotImplementedError


class ChainCell(FunctionCell):
    """One or more function operators as one generated loop."""

    def __init__(
        self, run: Run, place: float, nodes: Sequence[Node], port: Port, parts: Sequence[Part] | None = None
    ) -> None:
        super().__init__(run, place, nodes, port)
        if parts is None:
            parts = [make_part(node, wall_time(run.clock), run.settings.knows_changes) for node in nodes]
        self._use(parts)
        self._cut_at: int | None = None
        self._chunks = 0

    def _use(self, parts: Sequence[Part]) -> None:
        self._chain = compile_chain(self.nodes, parts)
        self._shares = [1 / len(self.nodes)] * len(self.nodes)
        self._waits = [0.0] * len(self.nodes)
        """How long each has run without a core where they were measured one by one."""
        self._busy_seconds = sum(counters.busy_seconds for counters in self.counters.values())
        # Totals of whole loops; what they mean for each operator is worked out when somebody asks.
        self._received = self._emitted = 0
        self._passed = [0] * len(self.nodes)
        self._failures = [0] * len(self.nodes)

    def cut_before(self, node: Node) -> None:
        """From its next chunk on, let this node and those after it be a cell of their own."""
        self._cut_at = self.nodes.index(node)
        self.notify()

    def change(self) -> bool:
        if self._cut_at:
            self._cut(self._cut_at)
        self._cut_at = None
        return super().change()

    @property
    def is_to_change(self) -> bool:
        return self._cut_at is not None or super().is_to_change

    def isolate(self, nodes: Sequence[Node]) -> bool:
        if nodes[0] not in self.nodes:  # it was cut off just now
            return False
        at = self.nodes.index(nodes[0])
        if at:
            self._cut(at)
            return False
        if len(self.nodes) > len(nodes):
            self._cut(len(nodes))
        return True

    def _cut(self, at: int) -> ChainCell:
        """Everything taken is out, and nobody else is in this cell: swap."""
        for node, (received, emitted, busy_seconds) in zip(self.nodes, self._counts(), strict=True):
            counters = self.counters[node.name]
            counters.received, counters.emitted, counters.busy_seconds = received, emitted, busy_seconds
        port = self.run.settings.port(f"{self.nodes[at].name!r}", self.run.settings.queue_size)
        ends = self.nodes[-1].outputs
        dead_letters = self.outputs[ends:]
        parts = self._chain.parts
        rest = ChainCell(self.run, self.run.place_after(self), self.nodes[at:], port, parts[at:])
        rest.depth = self.depth + (rest.place - self.place) / 2
        rest.counters = {node.name: self.counters.pop(node.name) for node in rest.nodes}
        rest.outputs = self.outputs[:ends] + dead_letters[at:]
        for targets in rest.outputs:
            for target in targets:
                target.writer = rest
        port.writer = self
        # As if it had been there from the start.
        port.total_given = self.counters[self.nodes[at - 1].name].emitted
        port.total_taken = rest.counters[rest.name].received
        self.outputs = [[port], *dead_letters[:at]]
        self.nodes = self.nodes[:at]
        self._use(parts[:at])
        rest._use(parts[at:])
        for cell in (self, rest):
            if received := cell.counters[cell.name].received:
                cell.learn(cell._busy_seconds / received)
        self.run.add(rest)
        return rest

    def snapshots(self) -> dict[str, Kept]:
        return {name: kept_of(part) for name, part in self._remembering()}

    def _changed(self) -> dict[str, Changed]:
        return {name: changed_in(part) for name, part in self._remembering()}

    def _remembering(self) -> list[tuple[str, Part]]:
        parts = zip(self.nodes, self._chain.parts, strict=True)
        return [(node.name, part) for node, part in parts if isinstance(node.kind, Remembers)]

    def restore(self, kept: Mapping[str, Kept]) -> None:
        for node, part in zip(self.nodes, self._chain.parts, strict=True):
            if node.name in kept:
                restore_part(part, kept[node.name])

    def run_chunk(self, values: list[Any]) -> None:
        self._chunks += 1
        if len(self.nodes) > 1 and self._chunks % _CHUNKS_PER_STAGED == 2:
            self._run_staged(values[:_MOST_STAGED])
            values = values[_MOST_STAGED:]
        self._run_whole(values)

    def _run_whole(self, values: list[Any]) -> None:
        outputs: list[list[Any]] = [[] for _ in range(self.nodes[-1].outputs)]
        try:
            self._chain.whole(values, outputs, self._fail, self._passed)
        finally:
            self._received += len(values)
            for port, output in enumerate(outputs):
                self._emitted += len(output)
                self.give(port, output, self._born)

    def _run_staged(self, values: list[Any]) -> None:
        """Operator by operator, to learn how the time is shared out among them."""
        seconds = [0.0] * len(self.nodes)
        failure: Failed | None = None
        outputs: list[list[Any]] = [values]
        for place, (node, step) in enumerate(zip(self.nodes, self._chain.steps, strict=True)):
            (values,) = outputs
            outputs = [[] for _ in range(node.outputs)]
            started, cpu_before = self.run.clock.now(), self.run.clock.thread_cpu()
            try:
                step(values, outputs, partial(self._fail_alone, place), [])
            except Failed as failed:
                # What it let through came before: a later operator may fail on that, and is then the first to fail.
                failure = failed
            seconds[place] = self.run.clock.now() - started
            self._waits[place] += seconds[place] - (self.run.clock.thread_cpu() - cpu_before)
            counters = self.counters[node.name]
            counters.received += len(values)
            counters.emitted += sum(map(len, outputs))
        for port, output in enumerate(outputs):
            self.give(port, output, self._born)
        if total := sum(seconds):
            news = 1.0 if self._chunks == 2 else 0.3
            self._shares = [
                (1 - news) * share + news * part / total for share, part in zip(self._shares, seconds, strict=True)
            ]
        if failure is not None:
            raise failure

    def _counts(self) -> list[tuple[int, int, float]]:
        """For each operator, what it received and emitted, and how long it was busy."""
        counted = self._chain.counts(self._received, self._emitted, self._passed, self._failures)
        counts = []
        for node, share, (received, emitted) in zip(self.nodes, self._shares, counted, strict=True):
            counters = self.counters[node.name]
            counts.append((counters.received + received, counters.emitted + emitted, self._busy_seconds * share))
        return counts

    def _cpu_seconds(self, busy: Sequence[float]) -> list[float]:
        """How long each operator has used a core: all of the time, less its share of what the loop has waited."""
        waited = sum(busy) * max(0.0, 1 - self.cpu_seconds / self.total_seconds) if self.total_seconds else 0.0
        weights = [max(0.0, wait) for wait in self._waits]
        if not any(weights):
            weights = list(busy)
        whole = sum(weights) or 1.0
        return [max(0.0, seconds - waited * weight / whole) for seconds, weight in zip(busy, weights, strict=True)]

    def _fail(self, place: int, value: Any, error: BaseException) -> None:
        self._failures[place] += 1
        self.failed(self.nodes[place], value, error, self._born)

    def _fail_alone(self, place: int, _step: int, value: Any, error: BaseException) -> None:
        self.failed(self.nodes[place], value, error, self._born)

    def charge(self, seconds: float) -> None:
        self._busy_seconds += seconds

    def passed(self) -> tuple[int, int]:
        received, emitted = super().passed()
        return received + self._received, emitted + self._emitted

    def reports(self) -> dict[str, OperatorReport]:
        counts = self._counts()
        cpu = self._cpu_seconds([busy_seconds for _, _, busy_seconds in counts])
        return {
            name: replace(report, received=received, emitted=emitted, busy_seconds=busy_seconds, cpu_seconds=seconds)
            for (name, report), (received, emitted, busy_seconds), seconds in zip(
                super().reports().items(), counts, cpu, strict=True
            )
        }


class BatchCell(FunctionCell):
    """A function of a list or of a record batch; one that fails gets its tuples one by one, to find the bad one."""

    def run_chunk(self, values: list[Any]) -> None:
        (node,) = self.nodes
        counters = self.counters[node.name]
        counters.received += len(values)
        outputs: list[Any] = []
        try:
            outputs = self._apply(node, values)
        except BaseException as error:
            if len(values) == 1:
                self.failed(node, values[0], error, self._born)
            else:
                self._one_by_one(node, values, outputs)
        counters.emitted += len(outputs)
        self.give(0, outputs, self._born)

    def _one_by_one(self, node: Node, values: list[Any], outputs: list[Any]) -> None:
        for value in values:
            try:
                outputs += self._apply(node, [value])
            except BaseException as error:
                try:
                    self.failed(node, value, error, self._born)
                except Failed:
                    self.give(0, outputs, self._born)
                    raise

    @staticmethod
    def _apply(node: Node, values: list[Any]) -> list[Any]:
        kind = node.kind
        assert isinstance(kind, Applies)
        if kind.form is Form.ARROW:
            return rows_of_batch(kind.fn(batch_of_rows(values, kind.input_schema)), kind.schema)
        # A copy: other readers of the stream have the same list, and the function may change what it is given.
        return listed(kind.form, kind.fn, kind.fn(list(values)))


class AsyncCell(Cell):
    """Awaits a function for several tuples at once, on the run's event loop; results leave in order."""

    def __init__(self, run: Run, place: float, node: Node, port: Port) -> None:
        super().__init__(run, place, [node], [port])
        assert isinstance(node.kind, Applies)
        self._kind = node.kind
        self._port = port
        self._flight: deque[tuple[Any, float, Future[Any]]] = deque()
        self._values: list[Any] = []
        self._born = 0.0

    @property
    def waits_for_outside(self) -> bool:
        return bool(self._flight)

    def take(self) -> bool:
        closed = self._port.closed
        room = self._kind.concurrency - len(self._flight)
        self._values, self._born = self._port.take(room) if room > 0 else ([], 0.0)
        if not self._values and not self._flight and closed and not len(self._port):
            self.is_over = True
        return bool(self._values) or bool(self._flight and self._flight[0][2].done())

    def process(self) -> None:
        (node,) = self.nodes
        counters = self.counters[node.name]
        counters.received += len(self._values)
        for value in self._values:
            future = self.run.event_loop.submit(self._await(value))
            self._flight.append((value, self._born, future))
            future.add_done_callback(lambda _: self.notify())
        self._values = []
        while self._flight and self._flight[0][2].done():
            value, born, future = self._flight.popleft()
            try:
                result = future.result()
            except Raised as raised:
                self.failed(node, value, raised.error, born)
            else:
                counters.emitted += 1
                self.give(0, [result], born)

    def pace(self, threads: int) -> float | None:
        counters = self.counters[self.name]
        return counters.busy_seconds / counters.emitted / self._kind.concurrency if counters.emitted else None

    def charge(self, seconds: float) -> None:
        """What counts is the time that was awaited, not what it takes to begin and to end it."""

    async def _await(self, value: Any) -> Any:
        loop = asyncio.get_running_loop()
        started = loop.time()
        result = await enveloped(partial(self._kind.fn, value), self._kind.timeout_seconds)
        self.counters[self.name].busy_seconds += loop.time() - started
        return result

    def leave(self, has_failed: bool) -> None:
        for _, _, future in self._flight:
            future.cancel()
