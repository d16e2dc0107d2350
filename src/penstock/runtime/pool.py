"""Workers and when they sleep: what all drivers have in common.

The last worker to fall asleep finds out what the run needs, and does it while no other comes past its next `PICK`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock.observe.report import LeftBehind
from penstock.runtime.cells.cell import Cell
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.policies import policy_name
from penstock.runtime.run import Run
from penstock.runtime.running.rest import RestStep
from penstock.runtime.standing import is_in_users_code, left_behind, standing
from penstock.runtime.worker import Worker

WATCH_SECONDS = 0.25
_STUCK_SECONDS = 1.0


class Pool(ABC):
    """Runs a run's workers to its end, and is the only owner of threads and time.

    Workers sleep when there is nothing to do; with `dedicated`, there is one for each cell.

    A worker that is stuck in a user's function for a second is replaced until it comes back, so that it does not hold
    up the others.
    """

    def __init__(self, count: int, dedicated: bool = False) -> None:
        self._lock = threading.Lock()
        """Held while the list of workers changes."""
        self._wanted = count
        self.is_dedicated = dedicated
        self._workers: list[Worker] = []
        self._run: Run
        self._watch_seconds = WATCH_SECONDS
        self._on_watch: Callable[[], None] | None = None

    def watch(self, seconds: float, on_watch: Callable[[], None]) -> None:
        """Before it drives: call this about as often as that."""
        self._watch_seconds = min(self._watch_seconds, seconds)
        self._on_watch = on_watch

    def _look_around(self) -> None:
        """Now and then, by the driver itself: as many workers as are wanted, and a look by the controllers."""
        if self._run.is_stopping:
            self._run.registry.tell_sources()
        self._adjust()
        if self._on_watch is not None:
            self._on_watch()

    @abstractmethod
    def event_loop(self, name: str) -> EventLoop:
        """Where the coroutines of a new run are to run."""

    @abstractmethod
    def drive(self) -> None:
        """Work until the run is over."""

    @abstractmethod
    def set_threads(self, count: int) -> None:
        """Add workers, or retire some at the end of what they are doing."""

    @abstractmethod
    def wake_another(self, cell: Cell | None = None) -> None:
        """Let a sleeping worker look for work; where each has its own cell, whose this is, or all of them."""

    @abstractmethod
    def look_soon(self) -> None:
        """Let the driver look around before it would by itself."""

    @abstractmethod
    def _begin(self, worker: Worker) -> None:
        """Let a new worker work."""

    @abstractmethod
    def _is_alive(self, worker: Worker) -> bool: ...

    @abstractmethod
    def _is_called_by_worker(self) -> bool: ...

    @property
    def threads(self) -> int:
        return self._wanted

    @property
    def picks(self) -> bool:
        return not self.is_dedicated

    def attach(self, run: Run) -> None:
        """Learn about the run, before any of its cells is notified."""
        self._run = run

    def on_new_cells(self) -> None:
        if self.is_dedicated:
            self.look_soon()

    @property
    def leaving(self) -> int:
        """How many workers should have gone, and have not yet."""
        return sum(worker.is_retired for worker in self._workers)

    def is_called_from_inside(self) -> bool:
        """Whether the caller is something that the run itself runs."""
        return self._is_called_by_worker() or self._run.event_loop.is_mine(threading.get_ident())

    @abstractmethod
    def leave_behind(self) -> None:
        """The run is to end at once: note in it which workers are stuck where, and wait for no thread any more."""

    def _note_left(self, worker: Worker, thread: int) -> None:
        """A worker does not come back from where it is; unless it only waits for one that does not."""
        cell, run = worker.cell, self._run
        if cell is not None:
            run.ending.leave_behind(left_behind(cell.nodes, thread), cell)
        elif is_in_users_code(thread):
            name = run.users_code.called_in(thread) or f"the policy {policy_name(run.scheduler.policy)!r}"
            run.ending.leave_behind(LeftBehind(name, standing(thread)))

    def stuck(self) -> list[str]:
        """The operators that have held a worker for longer than a second."""
        now = self._run.clock.now()
        return [
            worker.cell.name
            for worker in self._workers
            if worker.cell is not None and now - worker.cell_since > _STUCK_SECONDS
        ]

    def on_ready(self, cell: Cell | None = None) -> None:
        # A worker that has made a cell ready comes to it by itself; to wake another one would only make two of them
        # fight for the GIL. One that is about to be busy for longer asks for help first: see `Worker`.
        if not self.is_dedicated and not self._run.ending.is_over and self._is_called_by_worker():
            return
        self.wake_another(cell)

    def _adjust(self) -> None:
        """As many workers as wanted, plus one for each that is stuck."""
        with self._lock:
            new: list[Cell | None]
            if self.is_dedicated:
                served = {worker.only for worker in self._workers}
                new = [cell for cell in self._run.registry.runnable() if cell not in served]
            else:
                self._workers = [worker for worker in self._workers if self._is_alive(worker)]
                active = [worker for worker in self._workers if not worker.is_retired]
                wanted = self._wanted + len(self.stuck())
                for worker in active[wanted:]:
                    worker.retire()
                new = [None] * (wanted - len(active))
            for only in new:
                self._workers.append(Worker(self._run, len(self._workers), only))
                self._begin(self._workers[-1])

    def _has_work(self, worker: Worker) -> bool:
        return worker.only.turn.is_queued if worker.only is not None else not self._run.scheduler.is_empty

    def _has_news(self, worker: Worker) -> bool:
        """Asked by a worker that counts as asleep already, so that a cell that is made ready later wakes it."""
        run = self._run
        return run.ending.is_over or worker.is_retired or self._has_work(worker) or run.timers.fire(run.clock.now())

    def _rest_step(self) -> RestStep | None:
        """What the run needs, if it is at rest; asked by the last worker to fall asleep."""
        return self._run.rest.found() if self._run.registry.are_at_rest else None
