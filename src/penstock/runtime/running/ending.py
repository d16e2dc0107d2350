"""How a run ends: the only place that knows whether it is over, why, and what did not come back."""

from __future__ import annotations

import math
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import ConservationError, PenstockError
from penstock.observe.report import LeftBehind
from penstock.runtime.companions import Interrupted
from penstock.runtime.conservation import check_cells
from penstock.runtime.failures import Failure
from penstock.runtime.standing import Abandoned

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell
    from penstock.runtime.running.host import Workers
    from penstock.runtime.running.registry import Registry
    from penstock.runtime.running.users_code import UsersCode


class Ending:
    """The end of one run: asked for, brought about by a failure, or because everything is done."""

    def __init__(self, registry: Registry, users_code: UsersCode, workers: Workers) -> None:
        self.is_over = False
        """Workers work no more."""
        self.is_stopping = False
        """Sources read no more."""
        self._has_opened = False
        self.adds_up = True
        """Nothing was lost, as far as is known."""
        self.left_behind: list[LeftBehind] = []
        """What held a thread when the run ended, and holds it still."""
        self._registry = registry
        self._users_code = users_code
        self._workers = workers
        self._lock = threading.Lock()
        self._failure: Failure | None = None
        self._crash: BaseException | None = None
        self._leaving_failed: PenstockError | None = None
        self._stuck: set[Cell] = set()
        """Cells that a thread is stuck in: no other may touch them any more."""
        self._to_leave: deque[Cell] | None = None

    def opened(self) -> None:
        """All cells are open: from now on tuples have to add up."""
        self._has_opened = True

    # Coming to an end

    def stop(self, drain: bool) -> None:
        """Sources stop reading, and (unless everything is to be let out) workers stop working."""
        self.is_stopping = True
        if not drain:
            self.end()
        self._workers.look_soon()

    def end(self) -> None:
        """It is over, for whatever reason."""
        self.is_over = True
        self._workers.on_ready()

    def fail(self, failure: Failure) -> None:
        """Let out what came before a failed tuple.

        A failure further down the flow is about an earlier tuple, so it takes the place of one further up.
        """
        with self._lock:
            is_first = self._failure is None or failure.place > self._failure.place
            if is_first and not _is_of_the_end(failure.error):
                self._failure = failure

    def abort(self, error: PenstockError) -> None:
        """Something that no operator has to do with: end at once."""
        with self._lock:
            self._failure = self._failure or Failure(math.inf, error)
        self.end()

    def crash(self, error: BaseException) -> None:
        """An error of ours: end at once."""
        if not isinstance(error, Abandoned):  # that thread was left behind, and is none of the run's any more
            self._crash = error
        self.end()

    @property
    def is_failing(self) -> bool:
        return self._failure is not None

    @property
    def failure(self) -> PenstockError | None:
        """What made the run fail, as its user will see it."""
        if self._crash is not None:
            raise self._crash
        return None if self._failure is None else self._failure.error

    # When workers have gone

    def close(self) -> None:
        """Add up, and close everything; what fails then is told by `raise_failure`."""
        self._add_up()
        try:
            self.close_cells()
        except PenstockError as error:
            self._leaving_failed = error

    def leave_behind(self, left: LeftBehind, *stuck: Cell) -> None:
        """A thread does not come back, from these cells or from elsewhere."""
        self._stuck.update(stuck)
        self.left_behind.append(left)

    def _add_up(self) -> None:
        """Nothing of a run whose tuples don't add up is let out as if all were well."""
        if not self._has_opened or self._has_failed or not self._registry.are_complete:
            return  # it ended before its time, with tuples under way
        try:
            consequence = "Its output was not published, but for what sinks had let out already: don't rely on that"
            check_cells(self._registry, consequence)
        except ConservationError as error:
            self.adds_up = False
            self.fail(Failure(math.inf, error))

    def close_cells(self) -> None:
        """Each once, by however many threads this is called; those that a thread is stuck in are left alone."""
        with self._lock:
            if self._to_leave is None:
                self._to_leave = deque(self._registry.cells)
        has_failed = not self._has_opened or self._has_failed
        first: PenstockError | None = None
        while self._to_leave:
            try:
                cell = self._to_leave.popleft()
            except IndexError:  # another thread was faster
                break
            if self._stuck.intersection((cell, *cell.members)):
                continue
            try:
                self._users_code.call(cell, partial(cell.leave, has_failed), " when it was closed")
            except PenstockError as error:
                first = first or error
        if first is not None:
            raise first

    @property
    def _has_failed(self) -> bool:
        return self._crash is not None or self._failure is not None

    def raise_failure(self) -> None:
        """Raise what made the run fail."""
        if self._crash is not None:
            raise self._crash
        if self._failure is not None:
            raise self._failure.error
        if self._leaving_failed is not None:
            raise self._leaving_failed


def _is_of_the_end(error: PenstockError) -> bool:
    """Whether an operator failed because the run was over, and it was in the way."""
    return isinstance(error, Interrupted) or isinstance(error.__cause__, Abandoned)
