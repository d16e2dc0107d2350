"""Workers on virtual cores and a virtual clock: one thread plays them all, and every run can be repeated.

A worker's step happens at one moment of virtual time; what it spends in there keeps it from its next one. What lies
between two shared accesses is private, so it does not matter that it is computed at once.
"""

from __future__ import annotations

import heapq
import math
import random
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from penstock.clock import FakeClock
from penstock.runtime.cells.cell import Cell
from penstock.runtime.event_loop import EventLoop, SteppedEventLoop
from penstock.runtime.pool import Pool
from penstock.runtime.running.rest import RestStep
from penstock.runtime.slots import Slots
from penstock.runtime.worker import Point, Worker

Watch = Callable[[Worker, Cell | None, Point, float, float], None]
"""Told what a worker has done: where, what, from when, until when."""


class Timing(Protocol):
    """What takes how long, besides the work itself."""

    wakes_everyone: bool
    """Whether all sleeping workers look when something has become ready, instead of one when it is worth it."""

    def crowd(self, others: int, cores: int) -> None:
        """The next step is taken while so many others of so many cores work too."""
        ...

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        """When a worker that is here now has come past a point."""
        ...

    def awake_at(self, now: float) -> float:
        """When a worker that is woken now is awake."""
        ...

    def waking_seconds(self, count: int) -> float:
        """What it costs the one that wakes so many."""
        ...

    def released(self) -> float:
        """How many of the seconds that the last step has spent were outside the GIL; asked once after each step."""
        ...


class Shuffle:
    """Every worker is equally likely to be the next, whatever it does: the interleaving is drawn from a seed.

    The time between two steps of a worker is exponentially distributed, so it does not matter how long it has waited.
    """

    wakes_everyone = True

    def __init__(self, seed: int, mean_seconds: float = 1e-9) -> None:
        self._random = random.Random(seed)
        self._rate = 1 / mean_seconds

    def crowd(self, others: int, cores: int) -> None:
        pass

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        return now + self._random.expovariate(self._rate)

    def awake_at(self, now: float) -> float:
        return now + self._random.expovariate(self._rate)

    def waking_seconds(self, count: int) -> float:
        return 0.0

    def released(self) -> float:
        return 0.0


class Virtual(Pool):
    """Plays its workers on a virtual clock; without `cores` each has one of its own, without `gil` there is none."""

    def __init__(
        self,
        count: int,
        clock: FakeClock,
        timing: Timing,
        cores: Slots | None = None,
        gil: Slots | None = None,
        dedicated: bool = False,
        watch: Watch | None = None,
        until: float | None = None,
    ) -> None:
        super().__init__(count, dedicated)
        self._clock = clock
        self._timing = timing
        self._cores = cores
        self._gil = gil
        # The GIL first: a worker that waits for it needs no core.
        self._slots = [slots for slots in (gil, cores) if slots is not None]
        self._watch = watch
        self._until = math.inf if until is None else until
        self._next_watch = self._watch_seconds
        self._horizon = min(self._next_watch, self._until)
        """What happens before that is no more than the workers' own business."""
        self._events: list[tuple[float, int, Callable[[Worker, Point | None], None], Worker, Point | None]] = []
        self._number = 0
        self._going: dict[Worker, Iterator[Point]] = {}
        self._parked: dict[Worker, None] = {}
        self._held_up: dict[Worker, Point | None] = {}
        """Workers that wait for a core or the GIL, and before which point."""
        self._free_cores: int | None = None
        self.current: Worker | None = None
        """Whose step is being played."""
        self._waking_seconds = 0.0
        """What the step that is being played has spent on waking others."""
        self._thread = 0
        self._outside = threading.Event()
        """Another thread has made something ready, or wants another number of workers."""
        self._has_heard = False
        self._event_loop = SteppedEventLoop(clock.now)
        self._rest: RestStep | None = None
        """What a worker is about to do for the run at rest; no other comes past its next `PICK`."""

    def set_threads(self, count: int) -> None:
        self._wanted = count
        self._hear()

    def watch(self, seconds: float, on_watch: Callable[[], None]) -> None:
        super().watch(seconds, on_watch)
        self._next_watch = self._watch_seconds
        self._horizon = min(self._next_watch, self._until)

    def look_soon(self) -> None:
        self._hear()

    def _hear(self) -> None:
        self._has_heard = True
        self._outside.set()

    def event_loop(self, name: str) -> EventLoop:
        return self._event_loop

    # The pool

    def _begin(self, worker: Worker) -> None:
        self._going[worker] = worker.points()
        self._push(self._timing.awake_at(self._clock.now()), worker)

    def _is_alive(self, worker: Worker) -> bool:
        return worker in self._going

    def is_called_from_inside(self) -> bool:
        return threading.get_ident() == self._thread

    def leave_behind(self) -> None:
        if self.current is not None:
            self._note_left(self.current, self._thread)

    def _is_called_by_worker(self) -> bool:
        return self.current is not None and not self._timing.wakes_everyone

    def on_ready(self, cell: Cell | None = None) -> None:
        if threading.get_ident() == self._thread:
            super().on_ready(cell)
        else:
            self._hear()

    def wake_another(self, cell: Cell | None = None) -> None:
        count = self._woken(cell)
        if count and self.current is not None:
            seconds = self._timing.waking_seconds(count)
            self._waking_seconds += seconds
            self._clock.sleep(seconds)

    def _woken(self, cell: Cell | None) -> int:
        """Wake those that are to be woken; how many they were."""
        if self.is_dedicated and cell is not None:
            woken = [worker for worker in self._parked if worker.only is cell]
        elif self.is_dedicated or self._timing.wakes_everyone or self._run.ending.is_over:
            woken = list(self._parked)
        else:
            woken = list(islice(self._parked, 1))
        for worker in woken:
            self._wake(worker)
        return len(woken)

    def _wake_all(self) -> None:
        for worker in list(self._parked):
            self._wake(worker)

    def _wake(self, worker: Worker) -> None:
        del self._parked[worker]
        self._push(self._timing.awake_at(self._clock.now()), worker)

    # Time

    def drive(self) -> None:
        run = self._run
        self._thread = threading.get_ident()
        try:
            run.open()
            self._adjust()
            while not run.ending.is_over:
                if self._has_heard:
                    self._listen()
                if self._event_loop.is_used:
                    self._event_loop.run_ready()
                self._go_on()
        finally:
            run.ending.end()
            for points in self._going.values():
                points.close()  # type: ignore[attr-defined]

    def _listen(self) -> None:
        """A thread from outside has done something."""
        self._outside.clear()
        self._has_heard = False
        if self._run.is_stopping:
            self._run.registry.tell_sources()
        self._adjust()
        self._wake_all()

    def _go_on(self) -> None:
        """What happens next: a worker's step, a timer, a look at the workers; or waiting for another thread."""
        run, events = self._run, self._events
        due = run.timers.due if self._parked else math.inf
        if self._event_loop.is_used:
            due = min(due, self._event_loop.due)
        next_time = events[0][0] if events else math.inf
        if self._on_watch is not None and self._next_watch <= min(due, next_time, self._until) < math.inf:
            self._look_after(self._next_watch)  # controllers look also while nothing comes
        elif next_time <= due and next_time <= self._until and events:
            time, _, happens, worker, point = heapq.heappop(events)
            if time >= self._next_watch:
                self._look_after(time)
            self._clock.move_to(time)
            happens(worker, point)
        elif min(next_time, due) == math.inf:
            self._wait_for_outside()
        elif min(next_time, due) > self._until:
            self._clock.move_to(self._until)
            run.ending.end()
        else:
            self._clock.move_to(max(due, self._clock.now()))
            run.timers.fire(self._clock.now())

    def _wait_for_outside(self) -> None:
        if self._event_loop.is_busy:
            self._event_loop.run_for_real()
        elif not self._run.ending.is_over:
            self._outside.wait()

    def _look_after(self, time: float) -> None:
        self._next_watch = time + self._watch_seconds
        self._horizon = min(self._next_watch, self._until)
        self._clock.move_to(time)
        self._look_around()
        if not self._run.scheduler.is_empty:
            self.wake_another()

    def _push(self, time: float, worker: Worker, point: Point | None = None) -> None:
        """A worker comes to a point, or (`None`) has come past the last one."""
        self._number += 1
        heapq.heappush(self._events, (time, self._number, self._play, worker, point))

    def _is_next(self, time: float) -> bool:
        """Whether nothing happens before that time."""
        events, loop = self._events, self._event_loop
        if (events and events[0][0] < time) or time >= self._horizon or self._has_heard:
            return False
        if loop.is_used and (loop.has_calls or loop.due < time):
            return False
        return not self._parked or self._run.timers.due >= time

    def _play(self, worker: Worker, point: Point | None) -> None:
        """Resume a worker, as long as nothing else comes before its next step."""
        clock = self._clock
        if not self._has_slots(worker, point):
            return
        while not self._run.ending.is_over:
            if point is None:
                point, spent, released = self._step(worker)
                if point is None:
                    self._leave(worker)
                    return
                if released and self._gil is not None:
                    self._release_gil(worker, point, clock.now() + spent - released, released)
                    return
                if spent and not self._is_next(clock.now() + spent):
                    self._push(clock.now() + spent, worker, point)
                    return
                if spent:
                    clock.move_to(clock.now() + spent)
                if point is Point.PROCESS:  # on private memory, so nothing has to be in order
                    point = None
                    continue
            past = self._pass(worker, point)
            if past is None:
                return
            if not self._is_next(past):
                self._push(past, worker)
                return
            clock.move_to(past)
            point = None

    def _step(self, worker: Worker) -> tuple[Point | None, float, float]:
        """Let a worker do what it stood before: the next point, the seconds that it took, those outside the GIL."""
        clock = self._clock
        began = clock.now()
        self.current, self._waking_seconds = worker, 0.0
        if self._cores is not None and self._cores.free != self._free_cores:
            self._free_cores = self._cores.free
            self._timing.crowd(self._cores.others, self._cores.count)
        point = next(self._going[worker], None)
        self.current = None
        spent = clock.now() - began
        if not spent:
            return point, 0.0, 0.0
        clock.move_to(began)
        released = self._timing.released()
        if self._gil is not None:
            spent += self._gil.interruption_seconds(spent - released)
        if self._watch is not None:
            waking_since = began + spent - self._waking_seconds
            for what, since, until in (Point.PROCESS, began, waking_since), (Point.WAKE, waking_since, began + spent):
                if until > since:
                    self._watch(worker, worker.cell, what, since, until)
        return point, spent, released

    def _pass(self, worker: Worker, point: Point) -> float | None:
        """When a worker has come past a point; `None` if it sleeps, or gives way to others."""
        if point is Point.PARK:
            return self._park(worker)
        if self._rest is not None and point is Point.PICK:
            self._sit_out_rest(worker)
            return None
        now = self._clock.now()
        past = self._timing.done_at(worker, point, now)
        if point is Point.ASK_FOR_HELP:
            past += self._timing.waking_seconds(self._woken(None))
        if self._watch is not None and past > now:
            self._watch(worker, worker.cell, point, now, past)
        for slots in self._slots:
            if slots.waiting and slots.is_time_up(worker, past):
                self._give_way(worker, past)
                self._push(past, worker)
                return None
        return past

    def _park(self, worker: Worker) -> float | None:
        self._parked[worker] = None
        has_news = self._has_news(worker)
        if worker not in self._parked:
            return None  # it has been woken already
        if not has_news and len(self._parked) == len(self._going) and self._rest is None:
            self._rest = self._rest_step()
            if self._rest is not None:
                self._begin_rest(worker)
                return None
        past = self._timing.done_at(worker, Point.PARK, self._clock.now())
        if has_news:
            del self._parked[worker]
            return past
        self._give_way(worker, past)
        return None

    def _begin_rest(self, worker: Worker) -> None:
        """A worker goes to do what the run needs; what happens until then, others sit out."""
        del self._parked[worker]
        now = self._clock.now()
        done_at = self._timing.done_at(worker, Point.REST, now)
        if done_at > now:
            self._number += 1
            heapq.heappush(self._events, (done_at, self._number, self._carry_out, worker, None))
        else:
            self._carry_out(worker, None)

    def _carry_out(self, worker: Worker, point: Point | None) -> None:
        assert self._rest is not None
        try:
            self._run.rest.carry_out(self._rest)
        finally:
            self._rest = None
        self._parked[worker] = None
        self._wake_all()

    def _sit_out_rest(self, worker: Worker) -> None:
        self._parked[worker] = None
        self._give_way(worker, self._clock.now())

    def _leave(self, worker: Worker) -> None:
        del self._going[worker]
        self._give_way(worker, self._clock.now())
        self.wake_another()

    # Cores and the GIL

    def _has_slots(self, worker: Worker, point: Point | None) -> bool:
        """Whether a worker has got all it needs; otherwise the one that gives way resumes it."""
        for slots in self._slots:
            if not slots.has(worker) and not slots.claim(worker, self._clock.now()):
                self._held_up[worker] = point
                if slots is self._gil:
                    self._give_way(worker, self._clock.now())
                return False
        return True

    def _give_way(self, worker: Worker, now: float) -> None:
        for slots in reversed(self._slots):
            self._release(slots, worker, now)

    def _release(self, slots: Slots, worker: Worker, now: float) -> None:
        if (got := slots.release(worker, now)) is not None:
            successor, time = got
            self._push(time, successor, self._held_up.pop(successor))

    def _release_gil(self, worker: Worker, point: Point, time: float, seconds: float) -> None:
        """Let others have the GIL from some time on, for so many seconds."""

        def happens(worker: Worker, point: Point | None) -> None:
            assert self._gil is not None
            self._release(self._gil, worker, self._clock.now())
            self._push(self._clock.now() + seconds, worker, point)

        self._number += 1
        heapq.heappush(self._events, (time, self._number, happens, worker, point))
