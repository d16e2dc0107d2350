"""Several workers in one operator, output in order: a team, its replicas, and the units that they pass on.

The team is what others see: the reader of its input, the writer of its outputs. A replica takes a chunk together with
its serial number, works on it in private, and puts all that came of it into the team's reorder buffer. Whoever does so
sends on what is ready. Nobody waits: who finds no room downstream leaves the rest to the team, which is notified.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.flow.nodes import Node
from penstock.observe.report import Held, OperatorReport
from penstock.ordering.reorder import ReorderBuffer, Unordered
from penstock.runtime.cells import Cell, Failed
from penstock.runtime.function_cells import BatchCell, ChainCell
from penstock.runtime.loop_cell import LoopCell
from penstock.runtime.ports import Helped, Port

if TYPE_CHECKING:
    from penstock.runtime.run import Run


class Unit:
    """A chunk of tuples with its serial number, and what has come of it."""

    __slots__ = ("born", "error", "given", "is_done", "is_last", "replica", "serial", "since", "values")

    def __init__(self, serial: int, values: list[Any], born: float, replica: int, since: float) -> None:
        self.serial = serial
        self.values = values
        self.born = born
        self.replica = replica
        """Who has taken it, and when."""
        self.since = since
        self.given: list[tuple[int, list[Any], float]] = []
        """What is to be sent, by output port; what has been sent is taken off the front."""
        self.error: Failed | None = None
        """It ends here: what was given before is let out, and nothing after it."""
        self.is_done = False
        """Somebody has done the work before it came here."""
        self.is_last = False
        """The operator has ended with it, whatever else there is."""


class Replica(Cell):
    """One of the workers' places in a team; a mixin before the kind of cell that does the work."""

    team: Team
    number = 0
    is_retired = False
    _unit: Unit | None = None
    _values: list[Any]
    _born: float
    help_seconds = 0.0001  # it is there to be helped

    def _attach(self, inputs: Sequence[Port]) -> None:
        """The team is who reads them."""

    @property
    def has_given_all(self) -> bool:
        return self._unit is None

    @property
    def is_source(self) -> bool:
        return False

    def take(self) -> bool:
        unit = None if self.is_retired else self.team.next_unit(self)
        if unit is None:
            return False
        self._unit = unit
        return True

    def process(self) -> None:
        unit = self._unit
        assert unit is not None
        self.processed = 0
        if not unit.is_done:
            self.work_on(unit)

    def work_on(self, unit: Unit) -> None:
        """Do it: all that comes of a unit is then in it."""
        kept, self._unit, self._values, self._born = self._unit, unit, unit.values, unit.born
        try:
            super().process()  # type: ignore[safe-super]
        except Failed as failed:
            unit.error = failed
        finally:
            self._unit = kept

    def give(self, port: int, values: list[Any], born: float) -> None:
        if values:
            assert self._unit is not None
            self._unit.given.append((port, values, born))

    def flush(self) -> bool:
        unit, self._unit = self._unit, None
        if unit is not None:
            self.team.finished(unit)
        return True

    @property
    def workers(self) -> int:
        return self.team.workers

    @property
    def most_workers(self) -> int:
        return self.team.wanted

    def selectivity(self) -> float:
        return self.team.selectivity()

    def busy_seconds(self) -> float:
        return self.team.busy_seconds()

    def hand_over(self) -> Cell | None:
        return None

    def has_more(self) -> bool:
        return not self.is_retired and self.team.has_work(self)

    def release(self, has_more: bool) -> None:
        super().release(has_more)
        # Who brings work wakes one that is idle, if there is one; so who has just become idle looks again.
        if self.has_more():
            self.notify()


class ChainReplica(Replica, ChainCell):
    """Runs a function."""


class BatchReplica(Replica, BatchCell):
    """Runs a function of lists or record batches."""


class LoopReplica(Replica, LoopCell):
    """Runs a stateless driver loop: what it emits between two waits belongs to the tuple that it has taken."""

    def process(self) -> None:
        (node,) = self.nodes
        unit = self._unit
        assert unit is not None
        (loop,) = self._loops.values()
        self.processed = len(unit.values)
        self.counters[node.name].received += self.processed
        try:
            self._begin(loop)
            loop.ports[0].arrive_many(unit.values)
            self._resume(loop, None)
        except Failed as failed:
            unit.error = failed
        finally:
            self._hand_over()
        unit.is_last = loop.is_done

    def end(self, unit: Unit) -> None:
        """The stream has ended, and one of the replicas says what there is to say."""
        self._unit = unit
        (loop,) = self._loops.values()
        loop.ports[0].ended = True
        self.process()
        self._unit = None


class Team(Cell):
    """An operator with several replicas."""

    _unit_type = Unit
    can_be_helped = True
    has_last_words = False
    """Whether it may emit something when its input has ended."""

    def __init__(
        self,
        run: Run,
        place: float,
        nodes: Sequence[Node],
        port: Port,
        make_replica: Callable[[], Replica],
        buffer: Callable[[int, Any], ReorderBuffer],
    ) -> None:
        super().__init__(run, place, nodes, [port])
        self._port = port
        self._make_replica = make_replica
        self.buffer = (buffer if nodes[0].ordered else Unordered)(run.settings.reorder_size, self)
        self._admission = threading.Lock()
        self._taken = 0
        """Units so far."""
        self._was_refused = False
        self.wanted = 1
        self._replicas: list[Replica] = []
        self._retired: list[Replica] = []
        self._in_flight: dict[int, Unit] = {}
        self._last: Unit | None = None
        self._has_spoken = not self.has_last_words
        self.earlier: Mapping[str, OperatorReport] = {}
        """What the operator has done before it became a team."""

    # Replicas

    @property
    def members(self) -> Sequence[Replica]:
        return (*self._replicas, *self._retired)

    def _attach(self, inputs: Sequence[Port]) -> None:
        """Not yet: where it takes the place of a running cell, others would call what is half made."""

    def open(self) -> None:
        """Its outputs are connected: begin."""
        self._port.reader = self
        self.set_replicas(self.wanted)

    def set_replicas(self, count: int) -> None:
        """More of them at once; fewer as those who leave are through with what they have."""
        self.wanted = count
        replicas = list(self._replicas)
        for replica in replicas[count:]:
            replica.is_retired = True
        self._retired += replicas[count:]
        del replicas[count:]
        while len(replicas) < count:
            replicas.append(self._retired.pop() if self._retired else self._new_replica())
            replicas[-1].is_retired, replicas[-1].number = False, len(replicas) - 1
        self._replicas = replicas
        self.wake_one()

    def _new_replica(self) -> Replica:
        replica = self._make_replica()
        replica.team, replica.depth = self, self.depth
        replica.open()
        return replica

    def wake_one(self) -> None:
        """Let an idle replica look for work, if there is any for it."""
        for replica in self._replicas:
            if replica.is_idle and replica.has_more():
                replica.notify()
                return

    def notify(self) -> None:
        if self.blocked_on is not None or self.is_over or self._port.closed:
            super().notify()
        self.wake_one()

    @property
    def is_at_rest(self) -> bool:
        return super().is_at_rest and all(replica.is_at_rest for replica in self.members)

    def helped(self, values: list[Any], born: float) -> Helped | None:
        """By a replica that nobody is in: helpers are workers in this operator, and count as such."""
        if not self.can_be_helped or not self.workers or self.is_failed:
            return None
        for replica in self._replicas:
            if replica.claim_idle():
                began = self.run.clock.now()
                unit = Unit(-1, values, born, replica.number, began)
                try:
                    replica.work_on(unit)
                finally:
                    replica.account(self.run.clock.now() - began)
                    replica.release(False)
                return Helped(values, unit)
        return None

    # What replicas ask for

    def next_unit(self, replica: Replica, workers: int = 1) -> Unit | None:
        """A chunk and its serial number, in one step; nothing while too many units wait for an earlier one.

        `workers` is how many will share it.
        """
        with self._admission:
            if self.is_failed or not self._may_take():
                return None
            values, born = self._port.take(workers * replica.budget(len(self._port) // workers))
            if not values:
                return None
            unit = self._unit_type(self._taken, values, born, replica.number, self.run.clock.now())
            if isinstance(values, Helped):
                unit.given, unit.error, unit.is_done = values.done.given, values.done.error, True
            self._in_flight[unit.serial] = unit
            self._taken += 1
        if len(self._port):
            self.wake_one()
        return unit

    def has_work(self, replica: Replica) -> bool:
        return bool(len(self._port)) and not self.is_failed and self._is_admitted()

    def finished(self, unit: Unit) -> None:
        """Everything has come of a unit: send it on, and what was waiting for it."""
        self._in_flight.pop(unit.serial, None)
        self.buffer.add(unit.serial, unit)
        if self._was_refused and self._is_admitted():
            self._was_refused = False
            self.wake_one()
        if self._port.closed:
            super().notify()

    def _is_admitted(self) -> bool:
        return self._taken < self.buffer.next + self.buffer.size

    def _may_take(self) -> bool:
        if self._is_admitted():
            return True
        self._was_refused = True
        return self._is_admitted()  # again, for who has sent something meanwhile and did not see it

    # Sending

    @property
    def is_blocked(self) -> bool:
        return self.blocked_on is not None or self.is_failed or self.is_over

    def send(self, unit: Unit) -> bool:
        """Called by one at a time, in the order of units."""
        for port, values, born in unit.given:
            self._outbox += [(target, values, born) for target in self.outputs[port]]
        unit.given = []
        while full := self._offered():
            # Before it is registered: who makes room clears it, and then somebody looks again.
            self._begin_to_wait(full[0])
            if all(target.await_room(self) for target in full):
                return False
            self._end_waiting()
        if unit.error is not None:
            self.run.fail(self, unit.error)
            return False
        if unit.is_last:
            self.is_over = True
            super().notify()
        return True

    # What the team itself is scheduled for: there is room again, or there is nothing more to come

    @property
    def has_given_all(self) -> bool:
        return self._last is None  # what else has not been sent is the sender's, who may be any replica

    def flush(self) -> bool:
        unit, self._last = self._last, None
        if unit is not None:
            self.finished(unit)
        return True

    def hand_over(self) -> Cell | None:
        return None

    def take(self) -> bool:
        self._end_waiting()
        self.buffer.send_pending()
        if self._was_refused and self._is_admitted():
            self._was_refused = False
        self.wake_one()
        if self._is_through():
            if not self._has_spoken:
                return True
            self.is_over = True
        return False

    def process(self) -> None:
        """Everything is out and nobody works here: the last words."""
        self._has_spoken = True
        self.processed = 0
        self._last = self._unit_type(self._taken, [], self.run.clock.now(), 0, self.run.clock.now())
        self._taken += 1
        self.say_last_words(self._last)

    def say_last_words(self, unit: Unit) -> None:
        """What comes out because the input has ended."""

    def leave(self, has_failed: bool) -> None:
        for member in self.members:
            member.leave(has_failed)

    def has_more(self) -> bool:
        return False

    def _is_through(self) -> bool:
        closed = self._port.closed
        with self._admission:
            return closed and not len(self._port) and self.buffer.next == self._taken

    # Watching

    @property
    def workers(self) -> int:
        return sum(not replica.is_idle and not replica.is_queued for replica in self._replicas)

    @property
    def most_workers(self) -> int:
        return self.wanted

    def busy_seconds(self) -> float:
        return sum(member.total_seconds for member in self.members)

    def passed(self) -> tuple[int, int]:
        passed = [replica.passed() for replica in self.members]
        return sum(received for received, _ in passed), sum(emitted for _, emitted in passed)

    def reports(self) -> dict[str, OperatorReport]:
        done = [self.earlier, *(replica.reports() for replica in self.members)]
        held = self._held()
        return {
            name: replace(
                report,
                received=sum(one[name].received for one in done if name in one),
                emitted=sum(one[name].emitted for one in done if name in one),
                busy_seconds=sum(one[name].busy_seconds for one in done if name in one),
                failed=sum(one[name].failed for one in done if name in one),
                replicas=self.wanted,
                held=held,
            )
            for name, report in super().reports().items()
        }

    def _held(self) -> Held | None:
        """Which unit the others are waiting for."""
        waiting = self.buffer.waiting()
        unit = self._in_flight.get(self.buffer.next)
        if not waiting or unit is None:
            return None
        return Held(unit.serial, self.run.clock.now() - unit.since, waiting, unit.replica)


class LoopTeam(Team):
    """A stateless driver loop with several replicas."""

    can_be_helped = False
    has_last_words = True

    def say_last_words(self, unit: Unit) -> None:
        replica = self._replicas[0]
        assert isinstance(replica, LoopReplica)
        replica.end(unit)
