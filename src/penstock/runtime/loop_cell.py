"""Driver loops at run time: one coroutine, or one for each key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.flow.nodes import Loops, Node
from penstock.operators.kept import Changed, Kept
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.cells import Cell
from penstock.runtime.context import LoopContext
from penstock.runtime.failures import popped_value
from penstock.runtime.fast_context import FastContext
from penstock.runtime.keyed_loops import loop_snapshots
from penstock.runtime.loop import Ended, Loop
from penstock.runtime.ports import Port

if TYPE_CHECKING:
    from penstock.runtime.run import Run


_TUPLES_PER_CHUNK = 1024


class LoopCell(Cell):
    """Moves tuples from the ports into the loop's hands, resumes it, and gives what it has emitted.

    The loop holds a chunk of each input at the most, or as many as it waits for: the rest stays in the bounded ports.
    """

    def __init__(self, run: Run, place: float, node: Node, ports: Sequence[Port]) -> None:
        super().__init__(run, place, [node], ports)
        assert isinstance(node.kind, Loops)
        self._node = node
        self._kind = node.kind
        self._outboxes: list[list[Any]] = [[] for _ in range(node.outputs)]
        self._loops: dict[bytes, Loop] = {}
        self._ended_loops: dict[bytes, Ended] = {}
        """Where there is one for each key: those that have returned."""
        self._touched: set[bytes] = set()
        """Where there is one for each key: those that had tuples since somebody asked for changes."""
        self._taken: list[tuple[int, list[Any]]] = []
        self._ended: set[int] = set()
        self._newly_ended: list[int] = []
        self._born = 0.0
        self._given = 0
        """Tuples put into the outbox since the worker came in."""
        self._has_had_its_last_say = False
        """Only for loops without inputs: it was resumed once since the flow was asked to stop."""

    @property
    def is_source(self) -> bool:
        return not self._node.inputs

    def open(self) -> None:
        if not self._kind.keys:
            self._new_loop(None)

    def take(self) -> bool:
        self._taken, self._newly_ended = [], []
        oldest = None
        for place, port in enumerate(self.inputs):
            closed = port.closed
            room = self._room(place)
            values, born = port.take(room) if room > 0 else ([], 0.0)
            if values:
                self._taken.append((place, values))
                oldest = born if oldest is None else min(oldest, born)
            elif closed and not len(port) and place not in self._ended:
                self._ended.add(place)
                self._newly_ended.append(place)
        if oldest is not None:
            self._born = oldest
        return bool(self._taken or self._newly_ended) or self._can_go_on()

    def has_more(self) -> bool:
        return super().has_more() or self._can_go_on()

    def process(self) -> None:
        counters = self.counters[self._node.name]
        started = self.run.clock.now()
        self._given = 0
        if self.run.settings.on_loop is not None:
            for _, values in self._taken:
                self.run.settings.on_loop(self._node, values)
        try:
            if self._kind.keys:
                self._run_by_key(started)
            else:
                self._run_one(started)
        finally:
            self.processed = sum(len(values) for _, values in self._taken)
            self._taken = []  # here, for what it takes to let go of them is this operator's time
            counters.received += self.processed
            self._hand_over()
        if self._has_ended():
            self.is_over = True

    def waiting(self) -> list[int]:
        held = [
            sum(len(loop.ports[place].waiting()) for loop in self._loops.values()) for place in range(len(self.inputs))
        ]
        return [count + more for count, more in zip(super().waiting(), held, strict=True)]

    def snapshots(self) -> dict[str, Kept]:
        everyone: dict[bytes, Loop | Ended] = {**self._ended_loops, **self._loops}
        return {self._node.name: Kept(loop_snapshots(everyone, everyone), self._tuples())}

    def _changed(self) -> dict[str, Changed]:
        touched, self._touched = self._touched if self._kind.keys else set(self._loops), set()
        ended = loop_snapshots(self._ended_loops, touched & self._ended_loops.keys())
        going = loop_snapshots(self._loops, touched & self._loops.keys())
        return {self._node.name: Changed({**ended, **going}, rest=self._tuples())}

    def _tuples(self) -> list[list[Any]]:
        return [port.waiting() for port in self.inputs]

    def restore(self, kept: Mapping[str, Kept]) -> None:
        if self._node.name not in kept:
            return
        loops, waiting = kept[self._node.name]
        for identity, (key, snapshot) in loops.items():
            loop = self._loops.get(identity) or self._new_loop(key)
            loop.restore(snapshot)
            if self._kind.keys:
                self._begin(loop)  # a keyed loop is resumed by what comes for its key, and by nothing else
                self._forget_ended(identity, loop)
        self.is_over = self._has_ended()  # it has returned in an earlier life, and takes nothing in this one
        for port, values in zip(self.inputs, waiting or (), strict=waiting is not None):
            port.grow(max(port.capacity, len(values)))
            if values:
                port.total_restored += len(values)
                port.offer(values, self.run.clock.now())

    def close_controls(self) -> None:
        for port in self.inputs[len(self._node.inputs) :]:
            port.closed = True

    def leave(self, has_failed: bool) -> None:
        for loop in self._loops.values():
            loop.close()

    def _run_one(self, started: float) -> None:
        (loop,) = self._loops.values()
        self._begin(loop)
        for place, values in self._taken:
            loop.ports[place].arrive_many(values)
        for place in self._newly_ended:
            loop.ports[place].ended = True
        self._resume(loop, started)

    def _run_by_key(self, started: float) -> None:
        """A tuple at a time, so that the outputs of different keys keep the order of their inputs."""
        for place, values in self._taken:
            for value in values:
                try:
                    key = self._kind.keys[place].fn(value)
                    identity = key_bytes(key)
                    if identity in self._ended_loops:
                        continue
                    loop = self._loops.get(identity) or self._begin(self._new_loop(key))
                except BaseException as error:
                    self.failed(self._node, value, error, self._born)
                    continue
                if self.run.settings.knows_changes:
                    self._touched.add(identity)
                loop.ports[place].arrive(value)
                self._resume(loop, None)
                self._forget_ended(identity, loop)
        for place in self._newly_ended:
            for identity in sorted(self._loops, key=firing_order):
                self._loops[identity].ports[place].ended = True
                self._resume(self._loops[identity], None)

    def _forget_ended(self, identity: bytes, loop: Loop) -> None:
        """Keep nothing but a mark of the loop of a key that has returned."""
        if loop.is_done:
            del self._loops[identity]
            self._ended_loops[identity] = Ended(loop.key)

    def _begin(self, loop: Loop) -> Loop:
        """Let a new loop run to its first wait: what has arrived is seen by waiting, not before."""
        if not loop.has_begun and not self.is_source:
            self._resume(loop, None)
        return loop

    def _resume(self, loop: Loop, started: float | None) -> None:
        """Let a loop run until it must wait; or, where it began at `started`, until its quantum is used up.

        Then the policy decides whether it gets another one.
        """
        quantum_seconds = self.run.settings.quantum_seconds
        due = math.inf if started is None else started + quantum_seconds
        while not loop.is_done and loop.context.can_go_on():
            try:
                loop.resume()
            except BaseException as error:
                self._hand_over()
                self.failed(self._node, self._last_taken(loop), _explained(error, loop), self._born)
                loop.context.popped.clear()
                loop.restart()
            if started is None:
                continue
            if self._hand_over() or self.is_source:
                return
            if (now := self.run.clock.now()) >= due:
                if self.run.scheduler.preempts(self):
                    return
                due = now + quantum_seconds

    @staticmethod
    def _last_taken(loop: Loop) -> Any:
        return popped_value(loop.context.popped or loop.context.last_popped())

    def _hand_over(self) -> bool:
        """Put what the loops have emitted into the outbox; whether that is enough for now."""
        now = self._born if self.inputs else self.run.clock.now()
        before = self.counters[self._node.name].emitted
        for port, box in enumerate(self._outboxes):
            if box:
                self.counters[self._node.name].emitted += len(box)
                self.give(port, list(box), now)
                box.clear()
        self._given += self.counters[self._node.name].emitted - before
        return self._given >= self.run.largest_chunk

    def _room(self, place: int) -> int:
        if self._kind.keys:
            return self.budget(len(self.inputs[place]))
        (loop,) = self._loops.values()
        held = loop.ports[place].held
        wanted = loop.context.wanted.get(loop.ports[place], 0)
        return max(self.budget(len(self.inputs[place])), wanted) - held

    def _can_go_on(self) -> bool:
        if self.is_source and (self.run.is_failing or self._has_had_its_last_say):
            self.is_over = self.is_over or self._has_had_its_last_say
            return False
        self._has_had_its_last_say = self.is_source and self.run.is_stopping
        return any(not loop.is_done and loop.context.can_go_on() for loop in self._loops.values())

    def _has_ended(self) -> bool:
        if not self._kind.keys:
            (loop,) = self._loops.values()
            return loop.is_done
        return self._ended >= set(range(len(self.inputs))) and all(loop.is_done for loop in self._loops.values())

    def _new_loop(self, key: Any) -> Loop:
        operator, node, run = self._kind.operator, self._node, self.run
        identity = key_bytes(key)
        options: dict[str, Any] = {
            "key": key,
            "has_state": operator.kind != "stateless",
            "is_stopping": lambda: run.is_stopping,
        }
        ports = (node.name, len(node.inputs), len(node.controls))
        context: LoopContext
        if run.settings.record_arrivals:
            history = node.name if key is None else f"{node.name}#{identity.hex()}"
            options["record"] = run.recorded.setdefault(history, []).append
            context = LoopContext(*ports, self._send, node.outputs, **options)
        elif node.on_error == "dead-letter":
            context = LoopContext(*ports, self._send, node.outputs, **options)
        else:
            # A source may block between two tuples, so each of them leaves at once.
            chunk = 1 if self.is_source else _TUPLES_PER_CHUNK
            context = FastContext(*ports, self._outboxes, chunk, **options)
        loop = Loop(node.name, operator, context)
        for place in self._ended:
            loop.ports[place].ended = True
        self._loops[identity] = loop
        return loop

    def _send(self, port: int, value: Any) -> None:
        self._outboxes[port].append(value)


def _explained(error: BaseException, loop: Loop) -> BaseException:
    """A port's `pop` is a deque's in the fast path: say what the deque can't."""
    if isinstance(error, IndexError) and error.args == ("pop from an empty deque",):
        empty = next((port for port in loop.ports if not len(port)), None)
        if empty is not None:
            return IndexError(f"{empty.label} holds no tuple; wait for one first").with_traceback(error.__traceback__)
    return error
