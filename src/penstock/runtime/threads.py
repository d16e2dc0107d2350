"""Workers on real threads: the only driver that starts some, and the only code that holds a pool's lock.

The lock is held for a moment, never in users' code: what a run at rest needs is done without it.
"""

from __future__ import annotations

import math
import sys
import threading

from penstock.runtime.cells.cell import Cell
from penstock.runtime.event_loop import EventLoop, ThreadedEventLoop
from penstock.runtime.pool import Pool
from penstock.runtime.running.patience import Patience
from penstock.runtime.running.rest import RestStep
from penstock.runtime.standing import abandon
from penstock.runtime.worker import Point, Worker

_OVERDUE_SECONDS = 0.002
_SPIN_SECONDS = 0.0001
_SWITCH_SECONDS = 0.0005
_JOIN_SECONDS = 0.05


class Threads(Pool):
    """A pool of worker threads; idle ones park on one condition and burn no CPU."""

    def __init__(self, count: int, name: str, dedicated: bool = False, patience: Patience | None = None) -> None:
        super().__init__(count, dedicated)
        self._patience = patience or Patience()
        self._is_driving = False
        self._name = name
        self._mutex = threading.RLock()
        self._condition = threading.Condition(self._mutex)
        """Where workers sleep; those that have a cell of their own sleep each on one of their own."""
        self._own: dict[Cell, threading.Condition] = {}
        self._news = threading.Event()
        """The run is over, or there is something to look at."""
        self._parked = 0
        self._working = 0
        """Workers that are not parked: they are in a cell, or on their way to one."""
        self._rests = False
        """A worker does what the run at rest needs; no other comes past its next `PICK`."""
        self._kept_until = math.inf
        """When the first of the parked workers that keep the time will wake up."""
        self._threads: dict[Worker, threading.Thread] = {}
        self._idents: set[int] = set()

    def event_loop(self, name: str) -> EventLoop:
        return ThreadedEventLoop(name, self._patience.awaited)

    def set_threads(self, count: int) -> None:
        self._wanted = count
        if self._is_driving:  # before that, not everything is open
            self._wake_all()
            self._adjust()

    def wake_another(self, cell: Cell | None = None) -> None:
        # A parker counts itself before it looks at the list a last time, so one of the two sees the other.
        if self._run.ending.is_over:
            self._news.set()
        if self._parked:
            if self._run.ending.is_over or (self.is_dedicated and cell is None):
                self._wake_all()
            else:
                self._wake_one(self._condition if cell is None else self._own.get(cell, self._condition))

    def _wake_one(self, condition: threading.Condition) -> None:
        with condition:
            condition.notify()

    def look_soon(self) -> None:
        self._news.set()

    def drive(self) -> None:
        run = self._run
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, _SWITCH_SECONDS))
        try:
            run.open()
            self._is_driving = True
            self._adjust()
            while not run.ending.is_over:
                self._news.wait(self._seconds_to_watch())
                self._news.clear()
                if run.ending.is_over:
                    break
                self._look_around()
                with self._mutex:  # or the last worker to park finds neither a source that waits nor one that is ready
                    run.timers.fire(run.clock.now())
                if not run.scheduler.is_empty:
                    self.wake_another()
        finally:
            run.ending.end()
            self._wait_for_threads()
            sys.setswitchinterval(interval)

    def _seconds_to_watch(self) -> float:
        """Timers are kept by one parked worker; if that one is busy again, they are found overdue here."""
        return min(self._watch_seconds, max(0.0, self._run.timers.due - self._run.clock.now()) + _OVERDUE_SECONDS)

    def _begin(self, worker: Worker) -> None:
        name = f"penstock-{self._name}-{worker.only.name if worker.only else worker.number}"
        thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
        self._threads[worker] = thread
        if worker.only is not None:
            self._own[worker.only] = threading.Condition(self._mutex)
        with self._mutex:
            self._working += 1
        try:
            thread.start()
        except BaseException:
            with self._mutex:
                self._working -= 1
            raise

    def _is_alive(self, worker: Worker) -> bool:
        is_alive = self._threads[worker].is_alive()
        if not is_alive:
            del self._threads[worker]
        return is_alive

    def _is_called_by_worker(self) -> bool:
        return threading.get_ident() in self._idents

    def _work(self, worker: Worker) -> None:
        park, ask_for_help = Point.PARK, Point.ASK_FOR_HELP
        self._idents.add(threading.get_ident())
        try:
            with self._mutex:
                self._sit_out_rest(worker)
            for point in worker.points():
                if point is park:
                    self._park(worker)
                elif point is ask_for_help:
                    self.wake_another()
        except BaseException as error:
            if not self._run.ending.is_over:
                self._run.ending.crash(error)
        finally:
            self._idents.discard(threading.get_ident())
            with self._mutex:
                self._working -= 1
            self.wake_another()

    def _park(self, worker: Worker) -> None:
        if self._spins(worker):
            return
        step = self._sleep(worker)
        if step is not None:
            try:
                self._run.rest.carry_out(step)
            finally:
                with self._mutex:
                    self._rests = False
                    self._wake_all()

    def _sleep(self, worker: Worker) -> RestStep | None:
        """Sleep until there is news; or return at once with what the run at rest needs, for others to sit out."""
        with self._mutex:
            self._parked += 1
            self._working -= 1
            try:
                if not self._rests and not self._has_news(worker):
                    step = self._rest_step() if not self._working else None
                    if step is not None:
                        self._rests = True
                        return step
                    self._wait(self._bed_of(worker))
                self._sit_out_rest(worker)
            finally:
                self._parked -= 1
                self._working += 1
        return None

    def _sit_out_rest(self, worker: Worker) -> None:
        """Another worker does what the run needs: until that is done there is nothing to look for."""
        while self._rests and not self._run.ending.is_over:
            self._bed_of(worker).wait()

    def _bed_of(self, worker: Worker) -> threading.Condition:
        return self._condition if worker.only is None else self._own[worker.only]

    def _wake_all(self) -> None:
        with self._mutex:
            for condition in (self._condition, *list(self._own.values())):
                condition.notify_all()

    def _wait(self, condition: threading.Condition) -> None:
        """One of the parked keeps the time: if all did, every timer would wake them all, to fight for the GIL."""
        due = self._run.timers.due
        if due >= self._kept_until:
            condition.wait()
            return
        self._kept_until = due
        try:
            condition.wait(max(0.0, due - self._run.clock.now()))
        finally:
            if self._kept_until == due:
                self._kept_until = math.inf

    def _spins(self, worker: Worker) -> bool:
        """A timer that is due sooner than a thread can fall asleep and wake up is waited for awake."""
        run = self._run
        due = run.timers.due
        if due - run.clock.now() > _SPIN_SECONDS:
            return False
        while run.clock.now() < due:
            if run.ending.is_over or worker.is_retired or self._has_work(worker):
                return True
            run.clock.sleep(0)  # lets others have the GIL
        return run.timers.fire(run.clock.now())

    def _wait_for_threads(self) -> None:
        """The run is over: a worker in no operator comes soon; one that is in one, and does not, is left behind."""
        waited, has_ended_companions = 0.0, False
        while waited < self._patience.worker:
            self._wake_all()
            alive = self._alive()
            if not alive:
                return
            if waited >= self._patience.operator:
                if has_ended_companions:
                    self._leave([(worker, thread) for worker, thread in alive if worker.cell is not None])
                else:
                    has_ended_companions = True
                    for left in self._run.companions.end():
                        self._run.ending.leave_behind(left)
            alive[0][1].join(_JOIN_SECONDS)
            waited += _JOIN_SECONDS
        self.leave_behind()

    def leave_behind(self) -> None:
        self._leave(self._alive())

    def _leave(self, workers: list[tuple[Worker, threading.Thread]]) -> None:
        for worker, thread in workers:
            assert thread.ident is not None
            del self._threads[worker]
            self._note_left(worker, thread.ident)
            abandon(thread.ident)

    def _alive(self) -> list[tuple[Worker, threading.Thread]]:
        return [(worker, thread) for worker, thread in list(self._threads.items()) if thread.is_alive()]
