"""Driver loops on private memory: made, resumed, restarted after a failure; what they emit is given in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock.flow.nodes import Loops, Node
from penstock.ordering.keys import key_bytes
from penstock.runtime.cells.kernel import Kernel
from penstock.runtime.cells.tally import Failing, Give, Tally
from penstock.runtime.context import LoopContext
from penstock.runtime.failures import popped_value
from penstock.runtime.fast_context import FastContext
from penstock.runtime.loop import DriverLoop
from penstock.runtime.ports import Port
from penstock.runtime.surroundings import Surroundings

_TUPLES_PER_CHUNK = 1024


class LoopRunner:
    """Runs the loops of one operator; used by one worker at a time."""

    def __init__(
        self,
        run: Surroundings,
        node: Node,
        tally: Tally,
        failing: Failing,
        give: Give,
        preempts: Callable[[], bool] = lambda: True,
    ) -> None:
        assert isinstance(node.kind, Loops)
        self._run = run
        self._node = node
        self._operator = node.kind.operator
        self._is_source = not node.inputs
        self._has_ports = bool(node.inputs or node.controls)
        self._counters = tally.first
        self._failing = failing
        self._give = give
        self._preempts = preempts
        """Whether a loop that has used up its quantum must let others run, or gets another one."""
        self._outboxes: list[list[Any]] = [[] for _ in range(node.outputs)]
        self._born = 0.0
        self._given = 0
        """Tuples given since the worker came in."""
        self._most_given = run.settings.largest_chunk

    def come_in(self, born: float) -> None:
        """A worker begins with a chunk whose oldest tuple entered the flow at `born`."""
        self._born = born
        self._given = 0

    def make(self, key: Any) -> DriverLoop:
        """A new loop, for a key where each has its own."""
        node, run = self._node, self._run
        options: dict[str, Any] = {
            "key": key,
            "has_state": self._operator.kind != "stateless",
            "is_stopping": lambda: run.is_stopping,
        }
        ports = (node.name, len(node.inputs), len(node.controls))
        context: LoopContext
        if run.settings.record_arrivals:
            history = node.name if key is None else f"{node.name}#{key_bytes(key).hex()}"
            options["record"] = run.logbook.arrivals.setdefault(history, []).append
            context = LoopContext(*ports, self._send, node.outputs, **options)
        elif node.on_error == "dead-letter":
            context = LoopContext(*ports, self._send, node.outputs, **options)
        else:
            # A source may block between two tuples, so each of them leaves at once.
            chunk = 1 if self._is_source else _TUPLES_PER_CHUNK
            context = FastContext(*ports, self._outboxes, chunk, **options)
        return DriverLoop(node.name, self._operator, context)

    def _send(self, port: int, value: Any) -> None:
        self._outboxes[port].append(value)

    def begin(self, loop: DriverLoop) -> DriverLoop:
        """Let a new loop run to its first wait: what has arrived is seen by waiting, not before."""
        if not loop.has_begun and not self._is_source:
            self.resume(loop)
        return loop

    def resume(self, loop: DriverLoop, started: float | None = None) -> None:
        """Let a loop run until it must wait; or, where it began at `started`, until its quantum is used up."""
        quantum_seconds = self._run.settings.quantum_seconds
        due = math.inf if started is None else started + quantum_seconds
        while not loop.is_done and loop.context.can_go_on():
            try:
                loop.resume()
            except BaseException as error:
                self.hand_over()
                self.failed(_last_taken(loop), _explained(error, loop))
                loop.context.popped.clear()
                loop.restart()
            if started is None:
                continue
            if self.hand_over() or self._is_source:
                return
            if (now := self._run.clock.now()) >= due:
                if self._preempts():
                    return
                due = now + quantum_seconds

    def failed(self, value: Any, error: BaseException) -> None:
        self._failing.failed(self._node, value, error, self._born, self._give)

    def hand_over(self) -> bool:
        """Give what the loops have emitted; whether that is enough for now."""
        born = self._born if self._has_ports else self._run.clock.now()
        for port, box in enumerate(self._outboxes):
            if box:
                self._counters.count(0, len(box))
                self._given += len(box)
                self._give(port, list(box), born)
                box.clear()
        return self._given >= self._most_given


class LoopKernel(Kernel):
    """A stateless driver loop: what it emits between two waits belongs to the tuple that it has taken."""

    def __init__(self, run: Surroundings, place: float, node: Node) -> None:
        super().__init__(run.flow, place, [node])
        self._on_loop = run.settings.on_loop
        self._give: Give
        self._runner = LoopRunner(run, node, self.tally, self.failing, self._pass_on)
        self._loop = self._runner.make(None)

    @property
    def is_done(self) -> bool:
        """Whether the loop has returned: it takes no more."""
        return self._loop.is_done

    def run(self, values: list[Any], born: float, give: Give) -> None:
        self._give = give
        self._runner.come_in(born)
        self.tally.first.count(len(values), 0)
        if self._on_loop is not None:
            self._on_loop(self.nodes[0], values)
        try:
            self._runner.begin(self._loop)
            self._loop.ports[0].arrive_many(values)
            self._runner.resume(self._loop)
        finally:
            self._runner.hand_over()

    def end(self, born: float, give: Give) -> None:
        """The stream has ended: say what there is to say."""
        self._loop.ports[0].end()
        self.run([], born, give)

    def _pass_on(self, port: int, values: list[Any], born: float) -> None:
        self._give(port, values, born)

    def leave(self, has_failed: bool) -> None:
        self._loop.close()


def waiting_in(inputs: list[Port]) -> list[list[Any]]:
    """The tuples in each of some ports, which stay."""
    return [port.waiting() for port in inputs]


def put_back(inputs: list[Port], waiting: list[list[Any]], now: float) -> None:
    """Let tuples that an earlier life has left be the first in their ports."""
    for port, values in zip(inputs, waiting, strict=True):
        port.restore(values, now)


def _last_taken(loop: DriverLoop) -> Any:
    return popped_value(loop.context.popped or loop.context.last_popped())


def _explained(error: BaseException, loop: DriverLoop) -> BaseException:
    """A port's `pop` is a deque's in the fast path: say what the deque can't."""
    if isinstance(error, IndexError) and error.args == ("pop from an empty deque",):
        empty = next((port for port in loop.ports if not len(port)), None)
        if empty is not None:
            return IndexError(f"{empty.label} holds no tuple; wait for one first").with_traceback(error.__traceback__)
    return error
