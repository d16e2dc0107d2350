"""Cells that run functions: a kernel that is fed from a port, and functions that are awaited."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from penstock.flow.nodes import Applies, Node
from penstock.operators.kept import Changed, Kept
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.chains import ChainKernel
from penstock.runtime.cells.changing import Changing
from penstock.runtime.cells.figures import Figures
from penstock.runtime.cells.kernel import Kernel
from penstock.runtime.event_loop import Raised, enveloped
from penstock.runtime.ports import Port
from penstock.runtime.surroundings import Surroundings


class FunctionCell(Changing):
    """Takes chunks from one port for its kernel, as large as what takes about a millisecond."""

    def __init__(self, run: Surroundings, kernel: Kernel, port: Port) -> None:
        super().__init__(run, kernel.place, kernel.nodes, [port], kernel.tally)
        self.kernel = kernel
        self._port = port
        self._values: list[Any] = []
        self._born = 0.0

    def take(self) -> bool:
        if self.successors and self.has_changed():
            return False
        closed = self._port.closed  # read first: what was written before the end must not be missed
        self._values, self._born = self._port.take(self.budget.tuples(len(self._port)))
        if not self._values and closed:
            self.is_over = True
        return bool(self._values)

    def process(self) -> int:
        values, self._values = self._values, []
        self.kernel.run(values, self._born, self.ports.give)
        return len(values)

    def snapshots(self) -> dict[str, Kept]:
        return self.kernel.snapshots()

    def changed(self) -> dict[str, Changed]:
        return self.kernel.changed()

    def restore(self, kept: Mapping[str, Kept]) -> None:
        self.kernel.restore(kept)


class ChainCell(FunctionCell):
    """A function cell that can be cut in two between any of its operators."""

    kernel: ChainKernel

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

    def _cut(self, at: int) -> None:
        """Everything taken is out, and no other worker is in this cell: swap."""
        settings, ends = self.run.settings, self.nodes[-1].outputs
        outputs, dead_letters = self.outputs[:ends], self.outputs[ends:]
        rest_kernel = self.kernel.cut(at, self.run.registry.place_after(self))
        self.nodes = self.kernel.nodes
        port = settings.port(f"{rest_kernel.nodes[0].name!r}", settings.queue_size)
        rest = ChainCell(self.run, rest_kernel, port)
        port.count_earlier(self.kernel.tally.of[self.nodes[-1].name].emitted, rest_kernel.tally.first.received)
        rest.connect([*outputs, *dead_letters[at:]], self.depth + (rest.place - self.place) / 2)
        self.ports.connect([[port], *dead_letters[:at]])
        for cell in (self, rest):
            tally = cell.kernel.tally
            if tally.first.received:
                cell.budget.learn(tally.busy_seconds / tally.first.received)
        self.run.registry.add(rest)


class AsyncCell(Cell):
    """Awaits a function for several tuples at once, on the run's event loop; results leave in order."""

    def __init__(self, run: Surroundings, place: float, node: Node, port: Port) -> None:
        super().__init__(run, place, [node], [port])
        assert isinstance(node.kind, Applies)
        self._kind = node.kind
        self._port = port
        self._flight: deque[tuple[Any, float, Future[Any]]] = deque()
        self._values: list[Any] = []
        self._born = 0.0
        self._awaited_seconds = 0.0
        """Written on the event loop."""
        self._charged_seconds = 0.0
        """How much of that the operator was charged with."""

    @cached_property
    def figures(self) -> Figures:
        return AwaitedFigures(
            self.tally, self.inputs, self.ports, self.run.logbook.share_of_time, self.budget, self._kind.concurrency
        )

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

    def process(self) -> int:
        (node,) = self.nodes
        self.tally.first.count(len(self._values), 0)
        for value in self._values:
            future = self.run.event_loop.submit(self._await(value))
            self._flight.append((value, self._born, future))
            future.add_done_callback(lambda _: self.notify())
        self._values = []
        emitted = 0
        try:
            while self._flight and self._flight[0][2].done():
                value, born, future = self._flight.popleft()
                try:
                    result = future.result()
                except Raised as raised:
                    self.failing.failed(node, value, raised.error, born, self.ports.give)
                else:
                    emitted += 1
                    self.ports.give(0, [result], born)
        finally:
            self.tally.first.count(0, emitted)
        return 0  # what a tuple costs is not known from the time in here

    def account(self, seconds: float, cpu_seconds: float, processed: int) -> None:
        """What counts is the time that was awaited, not what it takes to begin and to end it."""
        self.budget.account(seconds, cpu_seconds, processed)
        before, self._charged_seconds = self._charged_seconds, self._awaited_seconds
        self.tally.charge(self._charged_seconds - before, cpu_seconds)

    async def _await(self, value: Any) -> Any:
        loop = asyncio.get_running_loop()
        started = loop.time()
        result = await enveloped(partial(self._kind.fn, value), self._kind.timeout_seconds)
        self._awaited_seconds += loop.time() - started
        return result

    def leave(self, has_failed: bool) -> None:
        for _, _, future in self._flight:
            future.cancel()


@dataclass(frozen=True)
class AwaitedFigures(Figures):
    """Of a cell that awaits several tuples at once."""

    concurrency: int

    def pace(self, threads: int) -> float | None:
        (one,) = self.tally.counts().values()
        return one.busy_seconds / one.emitted / self.concurrency if one.emitted else None
