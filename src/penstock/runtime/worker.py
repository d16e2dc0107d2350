"""The only loop that runs cells: a generator that stops before every shared access.

Threads ignore the points at which it stops; a virtual driver times them, and tests shuffle them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, auto
from typing import TYPE_CHECKING, cast

from penstock.errors import PolicyError
from penstock.runtime.cells.cell import Cell
from penstock.runtime.failures import Failure

if TYPE_CHECKING:
    from penstock.runtime.run import Run


class Point(IntEnum):
    """What a worker is about to do."""

    PICK = auto()
    PARK = auto()
    TAKE = auto()
    PROCESS = auto()
    ASK_FOR_HELP = auto()
    """About to be busy for a while, and another worker could do what else is ready."""
    HELP = auto()
    FLUSH = auto()
    WAKE = auto()
    """No worker stops here: what it spends on waking others while it does something else."""
    RELEASE = auto()
    REST = auto()
    """About to do what a run at rest needs; until that is done, no worker comes past PICK."""


# Looked up in its class, a member of an enumeration takes ten times as long (CPython 3.11).
_PICK, _PARK, _TAKE, _PROCESS = Point.PICK, Point.PARK, Point.TAKE, Point.PROCESS
_ASK_FOR_HELP, _HELP, _FLUSH, _RELEASE = Point.ASK_FOR_HELP, Point.HELP, Point.FLUSH, Point.RELEASE


class Worker:
    """Picks ready cells and runs them, until the run is over or it is retired."""

    def __init__(self, run: Run, number: int, only: Cell | None = None) -> None:
        self.number = number
        self.only = only
        """The one cell that it serves, where every operator has a thread of its own."""
        self.is_retired = False
        self.cell: Cell | None = None
        self.cell_since = 0.0
        self._run = run
        self._next: Cell | None = None

    def retire(self) -> None:
        """Go at the end of what it is doing."""
        self.is_retired = True

    def points(self) -> Iterator[Point]:
        """Work, stopping before every access to what others see."""
        run, now, cpu = self._run, self._run.clock.now, self._run.clock.thread_cpu
        ending, help_shares, scheduler = run.ending, run.help_shares, run.scheduler
        while True:
            yield _PICK
            if ending.is_over or (self.is_retired and self._next is None):
                return
            if now() >= run.timers.due:
                run.timers.fire(now())
            try:
                cell = self._pick()
            except PolicyError as error:
                ending.abort(error)
                return
            if cell is None:
                yield _PARK
                continue
            self.cell_since = cell.last_run = now()
            self.cell = cell
            has_more = False
            try:
                if cell.outbox.is_empty or cell.outbox.flush():
                    yield _TAKE
                    if not cell.is_failed and cell.take():
                        if (ready := scheduler.ready) and help_shares.is_wanted(
                            cell.budget.usual_seconds, cell.help_seconds, ready
                        ):
                            yield _ASK_FOR_HELP
                        yield _PROCESS
                        has_more = True
                        processed, began, cpu_before = 0, now(), cpu()
                        try:
                            processed = cell.process()
                        finally:
                            cell.account(now() - began, cpu() - cpu_before, processed)
                        if help_shares.is_on and not cell.outbox.is_empty:
                            yield _HELP
                            cell.outbox.help_readers()
                        yield _FLUSH
                        if self._may_follow():
                            self._next = cast("Cell | None", cell.outbox.hand_over())
                        has_more = (cell.outbox.is_empty or cell.outbox.flush()) and cell.has_more()
            except Failure as failure:
                run.fail(cell, failure)
                cell.outbox.flush()
            except BaseException as error:
                if _is_closed_here(error):
                    raise  # the run is over, and no other worker goes on with this
                run.fail(cell, cell.failing.crashed(error))
            yield _RELEASE
            self._let_go(cell, has_more)
            self.cell = None

    @property
    def asks(self) -> tuple[str, int]:
        """Which policy it will ask at its next pick, and about how many operators."""
        scheduler = self._run.scheduler
        return scheduler.policy.name, scheduler.compared if self._next is None and self.only is None else 0

    def _may_follow(self) -> bool:
        return self.only is None and self._next is None and self._run.scheduler.policy.follows

    def _pick(self) -> Cell | None:
        if self._next is not None:
            cell, self._next = self._next, None
            return cell
        if self.only is not None:
            return self.only if self.only.turn.claim(from_list=True) else None
        return self._run.scheduler.pick()

    def _let_go(self, cell: Cell, has_more: bool) -> None:
        if cell.turn.has_ended:
            return  # another cell has taken its place
        if cell.is_over and cell.outbox.is_empty:
            cell.complete()
            return
        is_blocked = cell.outbox.blocked_on is not None
        full = cell.ports.full_ports() if is_blocked else ()
        cell.turn.release(has_more or (cell.is_over and not is_blocked))
        # A full queue: do its reader's work next, instead of waiting for another worker to do it.
        if full and self.only is None and self._next is None:
            claimed = next((port.reader for port in full if port.reader.turn.claim()), None)
            self._next = cast("Cell | None", claimed)


def _is_closed_here(error: BaseException) -> bool:
    """Whether a driver has closed the worker where it stopped; what users' functions raise comes from further down."""
    return isinstance(error, GeneratorExit) and error.__traceback__ is not None and error.__traceback__.tb_next is None
