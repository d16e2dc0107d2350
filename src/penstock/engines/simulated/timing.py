"""When virtual workers come past their points: what the runtime costs, and whom they wait for."""

from __future__ import annotations

from collections import defaultdict

from penstock.clock import Clock, FakeClock
from penstock.engines.simulated.machine import Machine
from penstock.runtime.teams.member import Member
from penstock.runtime.worker import Point, Worker

_READY_LIST = "the list of ready operators"


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
        self.slowness = 1.0
        """How much longer everything takes now because of what others do."""
        self.others = 0
        """How many of them there are."""
        self._gil_seconds = gil_seconds

    def process_cpu(self) -> float:
        return self.python_seconds + self.released_seconds

    def spend(self, python_seconds: float, released_seconds: float = 0.0) -> None:
        """Work on a tuple."""
        self.worked_on += 1
        python_seconds = (python_seconds + self._owed_seconds) * self.slowness
        self._owed_seconds = 0.0
        if released_seconds:
            released_seconds *= self.slowness
            if self._gil_seconds and self.others:
                # As likely as any of the others, who do the like, has it at that moment.
                share = python_seconds / (python_seconds + released_seconds)
                released_seconds += min(1.0, self.others * share) * self._gil_seconds
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


class Instantly:
    """Nothing takes any time."""

    wakes_everyone = False

    def crowd(self, others: int, cores: int) -> None:
        pass

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        return now

    def awake_at(self, now: float) -> float:
        return now

    def waking_seconds(self, count: int) -> float:
        return 0.0

    def released(self) -> float:
        return 0.0


class Modelled:
    """Every point has its price; who needs what another one holds waits for it.

    What is shared is held from one moment to another, by one worker after the other, in the order in which they come.
    Where there is a GIL, who has it finds nothing held.
    """

    wakes_everyone = False

    def __init__(self, machine: Machine, clock: VirtualClock, has_gil: bool) -> None:
        self._machine = machine
        self._clock = clock
        self._has_gil = has_gil
        self._policy_seconds = machine.policy_seconds
        known = self._policy_seconds.values()
        self._usual_policy_seconds = sum(known) / max(1, len(known))
        """Of a policy of somebody's own."""
        self._free_at: dict[str, float] = defaultdict(float)
        self._released_before = 0.0
        self.waited_seconds: dict[str, float] = defaultdict(float)
        """How long workers have waited for each of the things that they share."""
        self.overhead_seconds = 0.0
        """How long workers have done anything but the work itself."""
        self._prices = [0.0] * (max(Point) + 1)
        self._prices[Point.PICK] = machine.pick_seconds
        self._prices[Point.PARK] = machine.park_seconds
        self._prices[Point.TAKE] = machine.take_seconds
        self._prices[Point.FLUSH] = machine.give_seconds
        self._prices[Point.RELEASE] = machine.release_seconds

    def crowd(self, others: int, cores: int) -> None:
        self._clock.slowness = 1.0 + self._machine.crowding_share * others / max(1, cores - 1)
        self._clock.others = others

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        price = self._prices[point]
        start = now
        if point is Point.PICK:
            policy, compared = worker.asks
            if compared:
                price += compared * self._policy_seconds.get(policy, self._usual_policy_seconds)
            if not self._has_gil:
                start = self._hold(_READY_LIST, now, self._machine.ready_list_seconds)
        elif (point is Point.TAKE or point is Point.FLUSH) and isinstance(worker.cell, Member):
            price += self._machine.unit_seconds / 2
            if not self._has_gil:
                start = self._hold_shared(worker.cell.name, point, now)
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

    def _hold_shared(self, name: str, point: Point, now: float) -> float:
        if point is Point.TAKE:
            return self._hold(f"the queue of {name}", now, self._machine.worklist_seconds)
        return self._hold(f"the reorder buffer of {name}", now, self._machine.reorder_seconds)

    def _hold(self, what: str, now: float, seconds: float) -> float:
        start = max(now, self._free_at[what])
        self._free_at[what] = start + seconds
        if start > now:
            self.waited_seconds[what] += start - now
        return start
