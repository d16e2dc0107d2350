"""When virtual workers come past their points: what the runtime costs, and what they wait for."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from penstock.clock import Clock, FakeClock
from penstock.engines.simulated.machine import Machine
from penstock.ordering.reorder import LockedBuffer
from penstock.runtime.cells.cell import Cell
from penstock.runtime.ports import Neighbour
from penstock.runtime.step_times import Timing
from penstock.runtime.teams.member import Member
from penstock.runtime.teams.team import Team
from penstock.runtime.worker import Point, Worker

_PICK, _TAKE, _FLUSH, _RELEASE = Point.PICK, Point.TAKE, Point.FLUSH, Point.RELEASE


class VirtualClock(FakeClock):
    """A clock on which work is spent, with the GIL and without it."""

    def __init__(self, gil_seconds: float = 0.0) -> None:
        """`gil_seconds`: what it costs to come back from outside the GIL and find that another one has it."""
        super().__init__()
        self.python_seconds = 0.0
        """Spent with the GIL so far, if there is one."""
        self.released_seconds = 0.0
        self.worked_on = 0
        """How many tuples operators have worked on so far."""
        self._owed_seconds = 0.0
        self._slowness = 1.0
        self._others = 0
        self._gil_seconds = gil_seconds

    def process_cpu(self) -> float:
        return self.python_seconds + self.released_seconds

    def crowd(self, others: int, slowness: float) -> None:
        """From now on everything takes so many times as long because of what so many others do."""
        self._others, self._slowness = others, slowness

    def spend(self, python_seconds: float, released_seconds: float = 0.0) -> None:
        """Work on a tuple."""
        self.worked_on += 1
        python_seconds = (python_seconds + self._owed_seconds) * self._slowness
        self._owed_seconds = 0.0
        if released_seconds:
            released_seconds *= self._slowness
            if self._gil_seconds and self._others:
                # As likely as any of the others, which do the like, has it at that moment.
                share = python_seconds / (python_seconds + released_seconds)
                released_seconds += min(1.0, self._others * share) * self._gil_seconds
        self._now += python_seconds + released_seconds
        self.python_seconds += python_seconds
        self.released_seconds += released_seconds

    def owe(self, seconds: float) -> None:
        """Spend so much more on the next tuple."""
        self._owed_seconds += seconds


class VirtualCpu:
    """The share of all virtual cores that was used, from one look to the next."""

    def __init__(self, clock: Clock, cores: int) -> None:
        self._clock = clock
        self._cores = cores
        self._before = (clock.now(), clock.process_cpu())

    def share(self) -> float:
        before, self._before = self._before, (self._clock.now(), self._clock.process_cpu())
        seconds = self._before[0] - before[0]
        return (self._before[1] - before[1]) / (seconds * self._cores) if seconds > 0 else 0.0


class _Lock:
    """What one worker holds at a time, one after the other, in the order in which they come."""

    def __init__(self, what: str, waited_seconds: dict[str, float]) -> None:
        self._what = what
        self._waited_seconds = waited_seconds
        self._free_at = 0.0

    def hold(self, now: float, seconds: float) -> float:
        """When a worker gets it that comes now and keeps it for so long."""
        start = self._free_at
        if start > now:
            self._waited_seconds[self._what] += start - now
        else:
            start = now
        self._free_at = start + seconds
        return start


class _Shared:
    """What workers meet at in a cell: its queue, and the buffer that puts the output of its replicas in order."""

    def __init__(self, cell: Neighbour, waited_seconds: dict[str, float]) -> None:
        # Asked once: whether something is a cell of some kind takes longer than all else that is asked at a point.
        self.is_member = isinstance(cell, Member)
        self.team: Any = cell.team if isinstance(cell, Member) else cell if isinstance(cell, Team) else None
        """The team that it is, or belongs to."""
        self.queue = _Lock(f"the queue of {cell.name}", waited_seconds)
        """For all that write for it, and for those that take."""
        self.buffer = _Lock(f"the reorder buffer of {cell.name}", waited_seconds)
        self.has_locked_buffer = isinstance(cell, Team) and isinstance(cell.buffer, LockedBuffer)
        self.is_taken_from = not cell.is_source and self.team is None
        """Whether the cell itself takes from it; not a team, whose replicas do."""
        self._sent = 0
        self._written = 0

    def sent_since(self, sent: int) -> int:
        """How many units a team has sent since this was last asked; `sent` is how many they are by now."""
        before, self._sent = self._sent, sent
        return sent - before

    def written_since(self, written: int) -> int:
        """The same for the tuples that it has written to its readers."""
        before, self._written = self._written, written
        return written - before


class Modelled(Timing):
    """Every point has its price, and a worker waits for what another one holds.

    Where there is a GIL, the worker that has it finds nothing held.
    """

    def __init__(self, machine: Machine, clock: VirtualClock, has_gil: bool) -> None:
        self._machine = machine
        self._clock = clock
        self._has_gil = has_gil
        self._policy_seconds = machine.policy_seconds
        known = self._policy_seconds.values()
        self._usual_policy_seconds = sum(known) / max(1, len(known))
        """Of a policy that is not built in."""
        self._released_before = 0.0
        self.waited_seconds: dict[str, float] = defaultdict(float)
        """How long workers have waited for each of the things that they share."""
        self.overhead_seconds = 0.0
        """How long workers have done anything but the work itself."""
        self._ready_list = _Lock("the list of ready operators", self.waited_seconds)
        self._shared: dict[Neighbour, _Shared] = {}
        """By what reads the queue: a cell, or a team."""
        self._half_unit_seconds = machine.unit_seconds / 2
        self._prices = [0.0] * (max(Point) + 1)
        self._prices[Point.PICK] = machine.pick_seconds
        self._prices[Point.PARK] = machine.park_seconds
        self._prices[Point.TAKE] = machine.take_seconds
        self._prices[Point.FLUSH] = machine.give_seconds
        self._prices[Point.RELEASE] = machine.release_seconds

    def crowd(self, others: int, cores: int) -> None:
        self._clock.crowd(others, 1.0 + self._machine.crowding_share * others / max(1, cores - 1))

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        price, start, cell = self._prices[point], now, worker.cell
        if point is _PICK:
            policy, compared = worker.asks
            if compared:
                price += compared * self._policy_seconds.get(policy, self._usual_policy_seconds)
            if not self._has_gil and worker.only is None:
                start = self._ready_list.hold(now, self._machine.ready_list_seconds)
        elif point is _TAKE and cell is not None:
            shared = self._shared_in(cell)
            if shared.is_member:
                price += self._half_unit_seconds
                if not self._has_gil:
                    start = self._shared_in(shared.team).queue.hold(now, self._machine.worklist_seconds)
            elif not self._has_gil and shared.is_taken_from:
                start = shared.queue.hold(now, self._machine.port_seconds)
        elif point is _FLUSH and cell is not None:
            shared = self._shared_in(cell)
            if shared.is_member:
                # What it sends of the units that are ready, its own or others', is known when it has: see RELEASE.
                price = self._half_unit_seconds
                if not self._has_gil and (shared := self._shared_in(shared.team)).has_locked_buffer:
                    start = shared.buffer.hold(now, self._machine.reorder_seconds)
            elif not self._has_gil and not cell.outbox.is_empty:
                start = self._given(cell, now, 1)
        elif point is _RELEASE and cell is not None and (team := self._shared_in(cell).team) is not None:
            start = self._sent_at(team, now)
        self.overhead_seconds += price
        return start + price

    def awake_at(self, now: float) -> float:
        return now + self._machine.wake_seconds

    def waking_seconds(self, count: int) -> float:
        seconds = count * self._machine.notify_seconds
        self.overhead_seconds += seconds
        return seconds

    def released(self) -> float:
        before, self._released_before = self._released_before, self._clock.released_seconds
        return self._released_before - before

    def _shared_in(self, cell: Neighbour) -> _Shared:
        try:
            return self._shared[cell]
        except KeyError:
            return self._shared.setdefault(cell, _Shared(cell, self.waited_seconds))

    def _given(self, cell: Cell, now: float, chunks: int) -> float:
        """When a worker gets at the queues of its readers, one after the other: others write there, and they take."""
        seconds, known = chunks * self._machine.port_seconds, self._shared
        for targets in cell.outputs[: cell.nodes[-1].outputs]:
            for port in targets:
                shared = known.get(port.reader) or self._shared_in(port.reader)
                now = shared.queue.hold(now, seconds)
        return now

    def _sent_at(self, team: Team, now: float) -> float:
        """When a worker is through with sending what it found ready in a reorder buffer.

        It has the buffer all the while, if that is the one with a lock; those that add to the other one leave the
        sending to it, and go on.
        """
        shared = self._shared_in(team)
        chunks = shared.sent_since(team.buffer.next)
        if not chunks:
            return now
        seconds = chunks * self._machine.give_seconds
        if self._machine.give_tuple_seconds:
            written = sum(port.total for targets in team.outputs for port in targets)
            seconds += shared.written_since(written) * self._machine.give_tuple_seconds
        self.overhead_seconds += seconds
        if not self._has_gil:
            if shared.has_locked_buffer:
                now = shared.buffer.hold(now, seconds)
            now = self._given(team, now, chunks)
        return now + seconds
