"""The only loop that runs cells: a generator that stops before every shared access.

Threads ignore the points at which it stops; a virtual driver times them, and tests shuffle them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING

from penstock.runtime.cells import Cell, Failed

if TYPE_CHECKING:
    from penstock.runtime.run import Run


class Point(Enum):
    """What a worker is about to do."""

    PICK = auto()
    PARK = auto()
    TAKE = auto()
    PROCESS = auto()
    FLUSH = auto()
    RELEASE = auto()


class Worker:
    """Picks ready cells and runs them, until the run is over or it is retired."""

    def __init__(self, run: Run, number: int, only: Cell | None = None) -> None:
        self.number = number
        self.only = only
        """The one cell that it serves, where every operator has a thread of its own."""
        self.is_retired = False
        self.cell: Cell | None = None
        self.cell_since = 0.0
        self.busy_seconds = 0.0
        self._run = run
        self._next: Cell | None = None

    def points(self) -> Iterator[Point]:
        """Work, stopping before every access to what others see."""
        run = self._run
        while True:
            yield Point.PICK
            if run.is_over or (self.is_retired and self._next is None):
                return
            cell = self._pick()
            if cell is None:
                yield Point.PARK
                continue
            self.cell, self.cell_since = cell, run.clock.now()
            cell.last_run = self.cell_since
            yield from self._serve(cell)
            self.busy_seconds += run.clock.now() - self.cell_since
            self.cell = None

    def _pick(self) -> Cell | None:
        if self.only is not None:
            return self.only if self.only.claim(from_list=True) else None
        if self._next is not None:
            cell, self._next = self._next, None
            return cell
        return self._run.scheduler.pick()

    def _serve(self, cell: Cell) -> Iterator[Point]:
        has_more = False
        try:
            yield Point.FLUSH
            if cell.flush():
                yield Point.TAKE
                if not cell.is_failed and cell.take():
                    yield Point.PROCESS
                    has_more = True
                    cell.process()
                    yield Point.FLUSH
                    has_more = cell.flush()
        except Failed as failure:
            self._run.fail(cell, failure)
            cell.flush()
        except BaseException as error:
            self._run.crash(cell, error)
        yield Point.RELEASE
        if cell.is_over and cell.has_given_all:
            cell.complete()
            return
        blocked_on = cell.blocked_on
        cell.release(has_more or (cell.is_over and blocked_on is None))
        # A full queue: do its reader's work next, instead of waiting for somebody else to do it.
        if blocked_on is not None and self.only is None and self._next is None and blocked_on.reader.claim():
            self._next = blocked_on.reader
