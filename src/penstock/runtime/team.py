"""Several workers in one operator, output in order.

The team is what others see: the reader of its input, the writer of its outputs. Whoever puts a unit into its reorder
buffer sends on what is ready. Nobody waits: who finds no room downstream leaves the rest to the team, which is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.flow.nodes import Node
from penstock.observe.report import Held, OperatorReport
from penstock.ordering.reorder import ReorderBuffer, Unordered
from penstock.ordering.splits import Lanes
from penstock.runtime.cells import Cell
from penstock.runtime.ports import Helped, Port
from penstock.runtime.replicas import LoopReplica, Replica, Unit

if TYPE_CHECKING:
    from penstock.runtime.run import Run


_INTERVAL_SECONDS = 0.1
"""Over which the loads of replicas are compared."""


class Team(Cell):
    """An operator with several replicas."""

    _unit_type = Unit
    can_be_helped = True
    can_be_split = True
    """Whether a unit is for one replica."""
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
        self._members: tuple[Replica, ...] = ()
        """All of these, and the guests, each once at any moment: others look at them while they change sides."""
        self._guests: list[Replica] = []
        """Places for helpers, which no worker of its own is in."""
        self.most_guests = 0
        self._in_flight: dict[int, Unit] = {}
        self._lanes: Lanes[Unit] | None = None
        """What is meant for which replica; `None` where each takes the next unit when it is free."""
        if self.can_be_split and run.settings.split is not None:
            self._lanes = Lanes(run.settings.split())
        self._interval_since = 0.0
        self._busy_before: list[float] = []
        self._last: Unit | None = None
        self._has_spoken = not self.has_last_words
        self.earlier: Mapping[str, OperatorReport] = {}
        """What the operator has done before it became a team."""

    # Replicas

    @property
    def members(self) -> Sequence[Replica]:
        return self._members

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
        with self._admission:
            self._replicas = replicas
            if self._lanes is not None:
                self._lanes.resize(count)
        self.run.on_new_cells()
        for replica in replicas:
            if replica.has_more():
                replica.notify()

    def _new_replica(self) -> Replica:
        replica = self._make_replica()
        replica.team, replica.depth, replica.view = self, self.depth, self.view
        replica.open()
        self._members = (*self._members, replica)
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
        self.run.scheduler.look_again(self)

    @property
    def is_at_rest(self) -> bool:
        return super().is_at_rest and all(replica.is_at_rest for replica in self.members)

    def helped(self, values: list[Any], born: float) -> Helped | None:
        """By a replica that nobody is in: helpers are workers in this operator, and count as such."""
        if not self.can_be_helped or not self.workers or self.is_failed:
            return None
        replica = self._place_for_helper()
        if replica is None:
            return None
        clock = self.run.clock
        began, cpu_before = clock.now(), clock.thread_cpu()
        unit = Unit(-1, values, born, replica.number, began)
        try:
            replica.work_on(unit)
        finally:
            replica.account(clock.now() - began, clock.thread_cpu() - cpu_before)
            replica.release(False)
        return Helped(values, unit)

    def _place_for_helper(self) -> Replica | None:
        with self._admission:
            if len(self._guests) < self.most_guests and all(not guest.is_idle for guest in self._guests):
                self._guests.append(self._new_replica())
                self._guests[-1].is_retired = True  # it takes nothing by itself
            places = (*self._guests, *self._replicas)
        return next((place for place in places if place.claim_idle()), None)

    # What replicas ask for

    def next_unit(self, replica: Replica) -> Unit | None:
        """A chunk and its serial number, in one step; nothing while too many units wait for an earlier one."""
        if self._lanes is None:
            return self._cut(replica)
        with self._admission:
            if replica.number >= len(self._lanes):
                return None  # it has just been retired
            unit = self._lanes.take(replica.number)
        return unit or self._split(replica, self._lanes)

    def _split(self, replica: Replica, lanes: Lanes[Unit]) -> Unit | None:
        """Cut what waits into units for those who are to have them, until there is one for this replica."""
        unit = None
        while unit is None and (cut := self._cut(replica)) is not None:
            if cut.is_done:
                return cut
            with self._admission:
                self._measure(lanes)
                chosen = lanes.add(cut, len(cut.values) * replica.seconds_per_tuple / _INTERVAL_SECONDS)
                cut.replica = chosen
                other = self._replicas[chosen]
                unit = lanes.take(replica.number) if replica.number < len(lanes) else None
            if other is not replica:
                other.notify()
        return unit

    def _measure(self, lanes: Lanes[Unit]) -> None:
        """Tell the splitter how busy replicas have been, once an interval."""
        now = self.run.clock.now()
        elapsed = now - self._interval_since
        if elapsed < _INTERVAL_SECONDS:
            return
        busy = [replica.total_seconds for replica in self._replicas]
        if len(busy) == len(self._busy_before):
            pairs = zip(busy, self._busy_before, strict=True)
            lanes.splitter.new_interval([min(1.0, (after - before) / elapsed) for after, before in pairs])
        self._interval_since, self._busy_before = now, busy

    def _cut(self, replica: Replica, workers: int = 1) -> Unit | None:
        """The next chunk with its serial number; `workers` is how many will share it."""
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

    def known_budget(self, replica: Replica, waiting: int) -> int:
        """How many tuples a replica that has not done anything yet should take."""
        known: Cell = max(self._replicas, key=lambda one: one.total_seconds, default=replica)
        return Cell.budget(known if known.seconds_per_tuple else self, waiting)

    def has_work(self, replica: Replica) -> bool:
        if self._lanes is not None and self._lanes.has_work(replica.number):
            return True
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
        if self._taken >= self.buffer.next + self.buffer.size:
            return False
        return self.run.flight is None or not self._holds_enough()

    def _holds_enough(self) -> bool:
        """Where time bounds what is under way: it has as much in its hands as may wait before it, or can't send."""
        if self.blocked_on is not None:
            return True
        if not self._port.is_limited:
            return False
        return sum(len(unit.values) for unit in list(self._in_flight.values())) >= self._port.capacity

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
            for target in self.outputs[port]:
                target.total_given += len(values)
                self._outbox.append((target, values, born))
        unit.given = []
        while full := self._offered():
            # Before it is registered: who makes room clears it, and then somebody looks again.
            self._begin_to_wait(full)
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
        for member in self._members:
            member.leave(has_failed)

    def may_be_cut_short(self) -> bool:
        return super().may_be_cut_short() or self.buffer.next < self._taken  # a loop has returned in an earlier unit

    def has_more(self) -> bool:
        return False

    def _is_through(self) -> bool:
        closed = self._port.closed
        with self._admission:
            return closed and not len(self._port) and self.buffer.next == self._taken

    # Watching

    @property
    def workers(self) -> int:
        return sum(not replica.is_idle and not replica.is_queued for replica in (*self._replicas, *self._guests))

    @property
    def most_workers(self) -> int:
        return self.wanted

    def pace(self, threads: int) -> float | None:
        known = [member.seconds_per_tuple for member in self.members if member.passed()[0]]
        return sum(known) / len(known) / min(self.wanted, threads) if known else None

    def busy_seconds(self) -> float:
        return sum(member.total_seconds for member in self._members)

    def used_cpu_seconds(self) -> float:
        return sum(member.cpu_seconds for member in self._members)

    def passed(self) -> tuple[int, int]:
        passed = [replica.passed() for replica in self._members]
        return sum(received for received, _ in passed), sum(emitted for _, emitted in passed)

    def reports(self) -> dict[str, OperatorReport]:
        done = [self.earlier, *(replica.reports() for replica in self._members)]
        held = self._held()
        return {
            name: replace(
                report,
                received=sum(one[name].received for one in done if name in one),
                emitted=sum(one[name].emitted for one in done if name in one),
                busy_seconds=sum(one[name].busy_seconds for one in done if name in one),
                cpu_seconds=sum(one[name].cpu_seconds or 0.0 for one in done if name in one),
                failed=sum(one[name].failed for one in done if name in one),
                late=sum(one[name].late for one in done if name in one),
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
