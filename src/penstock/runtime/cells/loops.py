"""Driver loops at run time: one coroutine, or one for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.flow.nodes import Loops, Node
from penstock.operators.kept import Changed, Kept
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.loop_kernel import LoopRunner, put_back, waiting_in
from penstock.runtime.keyed_loops import loop_snapshots
from penstock.runtime.loop import DriverLoop, Ended
from penstock.runtime.ports import Port
from penstock.runtime.surroundings import Surroundings


class LoopCell(Cell):
    """Moves tuples from the ports into the loop's hands, resumes it, and gives what it has emitted.

    The loop holds a chunk of each input at the most, or as many as it waits for: the rest stays in the bounded ports.
    """

    def __init__(self, run: Surroundings, place: float, node: Node, ports: Sequence[Port]) -> None:
        super().__init__(run, place, [node], ports)
        assert isinstance(node.kind, Loops)
        self._node = node
        self._kind = node.kind
        self._runner = LoopRunner(
            run, node, self.tally, self.failing, self.ports.give, lambda: run.scheduler.preempts(self)
        )
        self._loops: dict[bytes, DriverLoop] = {}
        self._ended_loops: dict[bytes, Ended] = {}
        """Where there is one for each key: those that have returned."""
        self._touched: set[bytes] = set()
        """Where there is one for each key: those that had tuples since changes were asked for."""
        self._taken: list[tuple[int, list[Any]]] = []
        self._ended: set[int] = set()
        self._newly_ended: list[int] = []
        self._born = 0.0
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

    def process(self) -> int:
        processed = 0
        started = self.run.clock.now()
        self._runner.come_in(self._born)
        if self.run.settings.on_loop is not None:
            for _, values in self._taken:
                self.run.settings.on_loop(self._node, values)
        try:
            if self._kind.keys:
                self._run_by_key(started)
            else:
                self._run_one(started)
        finally:
            for _, values in self._taken:
                processed += len(values)
            self._taken = []  # here, for what it takes to let go of them is this operator's time
            self.tally.first.count(processed, 0)
            self._runner.hand_over()
        if self._has_ended():
            self.is_over = True
        return processed

    def waiting(self) -> list[int]:
        held = [
            sum(len(loop.ports[place].waiting()) for loop in self._loops.values()) for place in range(len(self.inputs))
        ]
        return [count + more for count, more in zip(super().waiting(), held, strict=True)]

    def snapshots(self) -> dict[str, Kept]:
        everyone: dict[bytes, DriverLoop | Ended] = {**self._ended_loops, **self._loops}
        return {self._node.name: Kept(loop_snapshots(everyone, everyone), waiting_in(self.inputs))}

    def changed(self) -> dict[str, Changed]:
        touched, self._touched = self._touched if self._kind.keys else set(self._loops), set()
        ended = loop_snapshots(self._ended_loops, touched & self._ended_loops.keys())
        going = loop_snapshots(self._loops, touched & self._loops.keys())
        return {self._node.name: Changed({**ended, **going}, rest=waiting_in(self.inputs))}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        if self._node.name not in kept:
            return
        loops, waiting = kept[self._node.name]
        for identity, (key, snapshot) in loops.items():
            loop = self._loops.get(identity) or self._new_loop(key)
            loop.restore(snapshot)
            if self._kind.keys:
                self._runner.begin(loop)  # a keyed loop is resumed by what comes for its key, and by nothing else
                self._forget_ended(identity, loop)
        self.is_over = self._has_ended()  # it has returned in an earlier life, and takes nothing in this one
        if waiting is not None:
            put_back(self.inputs, waiting, self.run.clock.now())

    def leave(self, has_failed: bool) -> None:
        for loop in self._loops.values():
            loop.close()

    def _run_one(self, started: float) -> None:
        (loop,) = self._loops.values()
        self._runner.begin(loop)
        for place, values in self._taken:
            loop.ports[place].arrive_many(values)
        for place in self._newly_ended:
            loop.ports[place].end()
        self._runner.resume(loop, started)

    def _run_by_key(self, started: float) -> None:
        """A tuple at a time, so that the outputs of different keys keep the order of their inputs."""
        for place, values in self._taken:
            for value in values:
                try:
                    key = self._kind.keys[place].fn(value)
                    identity = key_bytes(key)
                    if identity in self._ended_loops:
                        continue
                    loop = self._loops.get(identity) or self._runner.begin(self._new_loop(key))
                except BaseException as error:
                    self._runner.failed(value, error)
                    continue
                if self.run.settings.knows_changes:
                    self._touched.add(identity)
                loop.ports[place].arrive(value)
                self._runner.resume(loop)
                self._forget_ended(identity, loop)
        for place in self._newly_ended:
            for identity in sorted(self._loops, key=firing_order):
                self._loops[identity].ports[place].end()
                self._runner.resume(self._loops[identity])

    def _forget_ended(self, identity: bytes, loop: DriverLoop) -> None:
        """Keep nothing but a mark of the loop of a key that has returned."""
        if loop.is_done:
            del self._loops[identity]
            self._ended_loops[identity] = Ended(loop.key)

    def _room(self, place: int) -> int:
        if self._kind.keys:
            return self.budget.tuples(len(self.inputs[place]))
        (loop,) = self._loops.values()
        held = loop.ports[place].held
        wanted = loop.context.wanted.get(loop.ports[place], 0)
        return max(self.budget.tuples(len(self.inputs[place])), wanted) - held

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

    def _new_loop(self, key: Any) -> DriverLoop:
        loop = self._runner.make(key)
        for place in self._ended:
            loop.ports[place].end()
        self._loops[key_bytes(key)] = loop
        return loop
