"""The only owners of threads and time: what resumes workers, and what they do when there is nothing to do."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Iterator
from typing import Protocol

from penstock.clock import Clock
from penstock.runtime.cells import Cell
from penstock.runtime.run import Run
from penstock.runtime.worker import Point, Worker

_STUCK_SECONDS = 1.0
_WATCH_SECONDS = 0.25
_OVERDUE_SECONDS = 0.002
_SPIN_SECONDS = 0.0001
_SWITCH_SECONDS = 0.0005


class Driver(Protocol):
    """Runs a run's workers to its end."""

    def attach(self, run: Run) -> None:
        """Learn about the run, before any of its cells is notified."""
        ...

    def on_ready(self) -> None:
        """A cell has become ready, or the run is over."""
        ...

    def drive(self) -> None:
        """Work until the run is over."""
        ...

    @property
    def threads(self) -> int:
        """How many threads may work."""
        ...


class Threads:
    """A pool of worker threads; idle ones park on one condition and burn no CPU.

    The last worker to park finds out whether the run is at rest. A worker that is stuck in a user's function for a
    second is replaced until it comes back, so that it holds up nobody.
    """

    def __init__(self, count: int, name: str, dedicated: bool = False) -> None:
        self._lock = threading.Lock()
        """Held while the list of workers changes."""
        self._wanted = count
        self._name = name
        self._dedicated = dedicated
        self._condition = threading.Condition()
        self._is_over = threading.Event()
        self._parked = 0
        self._kept_until = math.inf
        """When the first of the parked workers that keep the time will wake up."""
        self._workers: list[tuple[Worker, threading.Thread]] = []
        self._idents: set[int] = set()
        self._run: Run

    @property
    def threads(self) -> int:
        return self._wanted

    def set_threads(self, count: int) -> None:
        """Add workers, or retire some at the end of what they are doing."""
        with self._condition:
            self._wanted = count
            self._condition.notify_all()
        self._adjust()

    def stuck(self) -> list[str]:
        """The operators that have held a worker for longer than a second."""
        now = self._run.clock.now()
        return [
            worker.cell.name
            for worker, _ in self._workers
            if worker.cell is not None and now - worker.cell_since > _STUCK_SECONDS
        ]

    def on_ready(self) -> None:
        # A worker that has made a cell ready comes to it by itself; to wake another one would only make two of them
        # fight for the GIL. One that is about to be busy for longer asks for help first: see `Worker`.
        if not self._dedicated and not self._run.is_over and threading.get_ident() in self._idents:
            return
        self.wake_another()

    def wake_another(self) -> None:
        """Let a parked worker look for work."""
        # A parker counts itself before it looks at the list a last time, so one of the two sees the other.
        if self._parked:
            with self._condition:
                if self._dedicated or self._run.is_over:
                    self._condition.notify_all()
                else:
                    self._condition.notify()
        if self._run.is_over:
            self._is_over.set()

    def attach(self, run: Run) -> None:
        self._run = run

    def drive(self) -> None:
        run = self._run
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, _SWITCH_SECONDS))
        try:
            run.open()
            self._adjust()
            while not self._is_over.wait(self._watch_seconds()):
                self._adjust()
                run.timers.fire(run.clock.now())
                if not run.scheduler.is_empty:
                    self.wake_another()
        finally:
            run.is_over = True
            self._wait_for_threads()
            sys.setswitchinterval(interval)

    def _watch_seconds(self) -> float:
        """Timers are kept by one parked worker; if that one is busy again, they are found overdue here."""
        return min(_WATCH_SECONDS, max(0.0, self._run.timers.due - self._run.clock.now()) + _OVERDUE_SECONDS)

    def _adjust(self) -> None:
        """As many workers as wanted, plus one for each that is stuck."""
        with self._lock:
            if self._dedicated:
                served = {worker.only for worker, _ in self._workers}
                for cell in self._run.runnable():
                    if cell not in served:
                        self._start(cell)
                return
            self._workers = [(worker, thread) for worker, thread in self._workers if thread.is_alive()]
            active = [worker for worker, _ in self._workers if not worker.is_retired]
            wanted = self._wanted + len(self.stuck())
            for worker in active[wanted:]:
                worker.is_retired = True
            for _ in range(wanted - len(active)):
                self._start(None)

    def _start(self, only: Cell | None) -> None:
        worker = Worker(self._run, len(self._workers), only)
        name = f"penstock-{self._name}-{only.name if only else worker.number}"
        thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
        self._workers.append((worker, thread))
        thread.start()

    def _work(self, worker: Worker) -> None:
        self._idents.add(threading.get_ident())
        try:
            for point in worker.points():
                if point is Point.PARK:
                    self._park(worker)
                elif point is Point.ASK_FOR_HELP:
                    self.wake_another()
        finally:
            self._idents.discard(threading.get_ident())
            self.wake_another()

    def _park(self, worker: Worker) -> None:
        run = self._run
        if self._spins(worker):
            return
        with self._condition:
            self._parked += 1
            try:
                if run.is_over or worker.is_retired or self._has_work(worker):
                    return
                if run.timers.fire(run.clock.now()):
                    return
                if all(cell.is_at_rest for cell in run.cells) and run.at_rest():
                    self._condition.notify_all()
                    return
                self._wait()
            finally:
                self._parked -= 1

    def _wait(self) -> None:
        """One of the parked keeps the time: if all did, every timer would wake them all, to fight for the GIL."""
        due = self._run.timers.due
        if due >= self._kept_until:
            self._condition.wait()
            return
        self._kept_until = due
        try:
            self._condition.wait(max(0.0, due - self._run.clock.now()))
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
            if run.is_over or worker.is_retired or self._has_work(worker):
                return True
            run.clock.sleep(0)  # lets others have the GIL
        return run.timers.fire(run.clock.now())

    def _has_work(self, worker: Worker) -> bool:
        return worker.only.is_queued if worker.only is not None else not self._run.scheduler.is_empty

    def _wait_for_threads(self) -> None:
        with self._condition:
            self._condition.notify_all()
        for _, thread in self._workers:
            while thread.is_alive():
                with self._condition:
                    self._condition.notify_all()
                thread.join(0.05)


class Shuffled:
    """One thread that plays many workers, in an order drawn by a seeded random source: every run can be repeated."""

    def __init__(self, workers: int, seed: int, clock: Clock) -> None:
        self._count = workers
        self._random = random.Random(seed)
        self._clock = clock
        self.trace: list[tuple[int, Point]] = []

    @property
    def threads(self) -> int:
        return self._count

    def on_ready(self) -> None:
        """Nobody sleeps here."""

    def attach(self, run: Run) -> None:
        self._run = run

    def drive(self) -> None:
        run = self._run
        run.open()
        workers = [Worker(run, number) for number in range(self._count)]
        going: dict[Worker, Iterator[Point]] = {worker: worker.points() for worker in workers}
        parked: set[Worker] = set()
        while going and not run.is_over:
            if len(parked) == len(going):
                self._everyone_is_parked(run)
                parked.clear()
                continue
            worker = self._random.choice([worker for worker in going if worker not in parked])
            point = next(going[worker], None)
            if point is Point.ASK_FOR_HELP:  # whether it comes depends on the clock, and here nobody sleeps
                point = next(going[worker], None)
            if point is None:
                del going[worker]
                continue
            self.trace.append((worker.number, point))
            if point is Point.PARK:
                parked.add(worker)
            elif not run.scheduler.is_empty:
                parked.clear()

    def _everyone_is_parked(self, run: Run) -> None:
        if not run.scheduler.is_empty or run.timers.fire(self._clock.now()):
            return
        if run.at_rest() or not run.scheduler.is_empty:
            return
        due = run.timers.due
        # Without a timer, only the event loop can bring anything.
        self._clock.sleep(0.001 if due == math.inf else max(0.0, due - self._clock.now()))
