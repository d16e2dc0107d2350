"""Workers on virtual cores and a virtual clock: one thread plays them all, and every run can be repeated.

A worker's step happens at one moment of virtual time; what it spends in there keeps it from its next one. What lies
between two shared accesses is private, so it does not matter that it is computed at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from penstock.clock import FakeClock
from penstock.runtime.agenda import Agenda, Bell
from penstock.runtime.cells.cell import Cell
from penstock.runtime.event_loop import EventLoop, SteppedEventLoop
from penstock.runtime.pool import Pool
from penstock.runtime.running.rest import RestStep
from penstock.runtime.slots import Slots, Turns
from penstock.runtime.step_times import Timing
from penstock.runtime.worker import Point, Worker

_PICK, _PARK, _PROCESS, _ASK_FOR_HELP = Point.PICK, Point.PARK, Point.PROCESS, Point.ASK_FOR_HELP

Watch = Callable[[Worker, Cell | None, Point, float, float], None]
"""Told what a worker has done: where, what, from when, until when."""


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
        self._agenda = Agenda(until)
        self._turns = Turns(cores, gil, self._agenda, self._play, clock.now)
        self._watch = watch
        self._going: dict[Worker, Iterator[Point]] = {}
        self._parked: dict[Worker, None] = {}
        self._threads_of: dict[Cell, list[Worker]] = {}
        """In the dedicated model."""
        self._free_cores: int | None = None
        self.current: Worker | None = None
        """Whose step is being played."""
        self._waking_seconds = 0.0
        """What the step that is being played has spent on waking others."""
        self._thread = 0
        self._bell = Bell()
        self._event_loop = SteppedEventLoop(clock.now)
        self._rest: RestStep | None = None
        """What a worker is about to do for the run at rest; no other comes past its next `PICK`."""

    def set_threads(self, count: int) -> None:
        self._wanted = count
        self._bell.ring()

    def look_soon(self) -> None:
        self._bell.ring()

    def event_loop(self, name: str) -> EventLoop:
        return self._event_loop

    # The pool

    def _begin(self, worker: Worker) -> None:
        self._going[worker] = worker.points()
        if worker.only is not None:
            self._threads_of.setdefault(worker.only, []).append(worker)
        self._agenda.add(self._timing.awake_at(self._clock.now()), self._play, worker)

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
            self._bell.ring()

    def wake_another(self, cell: Cell | None = None) -> None:
        count = self._woken(cell)
        if count and self.current is not None:
            seconds = self._timing.waking_seconds(count)
            self._waking_seconds += seconds
            self._clock.sleep(seconds)

    def _woken(self, cell: Cell | None) -> int:
        """Wake those that are to be woken; how many they were."""
        if self.is_dedicated and cell is not None:
            woken = [worker for worker in self._threads_of.get(cell, ()) if worker in self._parked]
        elif self.is_dedicated or self._timing.wakes_everyone or self._run.ending.is_over:
            woken = list(self._parked)
        else:
            woken = list(islice(self._parked, 1))
        self._wake(woken)
        return len(woken)

    def _wake(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            del self._parked[worker]
            self._agenda.add(self._timing.awake_at(self._clock.now()), self._play, worker)

    # Time

    def drive(self) -> None:
        run = self._run
        self._thread = threading.get_ident()
        self._agenda.look_again_at(self._watch_seconds)
        try:
            run.open()
            self._adjust()
            while not run.ending.is_over:
                if self._bell.has_rung:
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
        self._bell.reset()
        if self._run.is_stopping:
            self._run.registry.tell_sources()
        self._adjust()
        self._wake(list(self._parked))

    def _go_on(self) -> None:
        """What happens next: a worker's step, a timer, a look at the workers; or waiting for another thread."""
        run, agenda = self._run, self._agenda
        due = run.timers.due if self._parked else math.inf
        if self._event_loop.is_used:
            due = min(due, self._event_loop.due)
        next_time = agenda.next_time
        if self._on_watch is not None and agenda.look_at <= min(due, next_time, agenda.until) < math.inf:
            self._look_after(agenda.look_at)  # controllers look also while nothing comes
        elif next_time <= due and next_time <= agenda.until and agenda.events:
            time, _, happens, worker, point = agenda.take()
            if time >= agenda.look_at:
                self._look_after(time)
            self._clock.move_to(time)
            happens(worker, point)
        elif min(next_time, due) == math.inf:
            if self._event_loop.is_busy:
                self._event_loop.run_for_real()
            elif not run.ending.is_over:
                self._bell.wait()
        elif min(next_time, due) > agenda.until:
            self._clock.move_to(agenda.until)
            run.ending.end()
        else:
            self._clock.move_to(max(due, self._clock.now()))
            run.timers.fire(self._clock.now())

    def _look_after(self, time: float) -> None:
        self._agenda.look_again_at(time + self._watch_seconds)
        self._clock.move_to(time)
        self._look_around()
        if not self._run.scheduler.is_empty:
            self.wake_another()

    def _is_next(self, time: float) -> bool:
        """Whether nothing happens before that time."""
        agenda, loop = self._agenda, self._event_loop
        events = agenda.events
        if (events and events[0][0] < time) or time >= agenda.horizon or self._bell.has_rung:
            return False
        if loop.is_used and (loop.has_calls or loop.due < time):
            return False
        return not self._parked or self._run.timers.due >= time

    def _play(self, worker: Worker, point: Point | None) -> None:
        """Resume a worker, as long as nothing else comes before its next step."""
        clock, agenda, ending = self._clock, self._agenda, self._run.ending
        if not self._turns.has_all(worker, point):
            return
        while not ending.is_over:
            if point is None:
                point, spent, released = self._step(worker)
                if point is None:
                    self._leave(worker)
                    return
                if released and self._turns.gil is not None:
                    self._turns.release_gil(worker, point, clock.now() + spent - released, released)
                    return
                if spent and not self._is_next(clock.now() + spent):
                    agenda.add(clock.now() + spent, self._play, worker, point)
                    return
                if spent:
                    clock.move_to(clock.now() + spent)
                if point is _PROCESS:  # on private memory, so nothing has to be in order
                    point = None
                    continue
            past = self._pass(worker, point)
            if past is None:
                return
            if not self._is_next(past):
                agenda.add(past, self._play, worker)
                return
            clock.move_to(past)
            point = None

    def _step(self, worker: Worker) -> tuple[Point | None, float, float]:
        """Let a worker do what it stood before: the next point, the seconds that it took, those outside the GIL."""
        clock, cores, gil = self._clock, self._turns.cores, self._turns.gil
        began = clock.now()
        self.current, self._waking_seconds = worker, 0.0
        if cores is not None and cores.free != self._free_cores:
            self._free_cores = cores.free
            self._timing.crowd(cores.others, cores.count)
        point = next(self._going[worker], None)
        self.current = None
        spent = clock.now() - began
        if not spent:
            return point, 0.0, 0.0
        clock.move_to(began)
        released = self._timing.released()
        if gil is not None:
            spent += gil.interruption_seconds(spent - released)
        if self._watch is not None:
            waking_since = began + spent - self._waking_seconds
            for what, since, until in (Point.PROCESS, began, waking_since), (Point.WAKE, waking_since, began + spent):
                if until > since:
                    self._watch(worker, worker.cell, what, since, until)
        return point, spent, released

    def _pass(self, worker: Worker, point: Point) -> float | None:
        """When a worker has come past a point; `None` if it sleeps, or gives way to others."""
        if point is _PARK:
            return self._park(worker)
        if self._rest is not None and point is _PICK:  # another one does what the run needs
            self._parked[worker] = None
            self._turns.give_way(worker, self._clock.now())
            return None
        now = self._clock.now()
        past = self._timing.done_at(worker, point, now)
        if point is _ASK_FOR_HELP:
            past += self._timing.waking_seconds(self._woken(None))
        if self._watch is not None and past > now:
            self._watch(worker, worker.cell, point, now, past)
        for slots in self._turns.slots:
            if slots.waiting and slots.is_time_up(worker, past):
                self._turns.give_way(worker, past)
                self._agenda.add(past, self._play, worker)
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
                # It goes to do what the run needs; what happens until then, others sit out.
                del self._parked[worker]
                now = self._clock.now()
                done_at = self._timing.done_at(worker, Point.REST, now)
                if done_at > now:
                    self._agenda.add(done_at, self._carry_out, worker)
                else:
                    self._carry_out(worker, None)
                return None
        past = self._timing.done_at(worker, Point.PARK, self._clock.now())
        if has_news:
            del self._parked[worker]
            return past
        self._turns.give_way(worker, past)
        return None

    def _carry_out(self, worker: Worker, point: Point | None) -> None:
        assert self._rest is not None
        try:
            self._run.rest.carry_out(self._rest)
        finally:
            self._rest = None
        self._parked[worker] = None
        self._wake(list(self._parked))

    def _leave(self, worker: Worker) -> None:
        del self._going[worker]
        self._turns.give_way(worker, self._clock.now())
        self.wake_another()
