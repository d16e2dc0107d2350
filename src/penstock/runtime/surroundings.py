"""What cells know of the run that they are in: the only way from them to what they share with others."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from penstock.clock import Clock
from penstock.runtime.companions import Companions
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.failures import Failure
from penstock.runtime.running.help_shares import HelpShares
from penstock.runtime.running.logbook import Logbook
from penstock.runtime.running.settings import Settings
from penstock.runtime.timers import Timers
from penstock.runtime.views import VisitRatios

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell


class Announcing(Protocol):
    """Where cells that have something to do are listed."""

    def add(self, cell: Cell) -> None: ...

    def look_again(self, cell: Cell) -> None:
        """Something has changed about a cell that may be listed already."""

    def preempts(self, cell: Cell) -> bool:
        """Whether one that has used up its quantum must let others run."""
        ...


class Bound(Protocol):
    """How much may be under way, where time bounds that."""

    def look(self) -> None:
        """Bring queues to what tuples cost by now."""
        ...

    def most_of(self, source: Cell) -> float:
        """How many tuples a source may send at once."""
        ...


class Succession(Protocol):
    """Where cells join the run, and become others."""

    def add(self, cell: Cell) -> None: ...

    def replace(self, cell: Cell, other: Cell) -> None: ...

    def place_after(self, cell: Cell) -> float: ...

    def cell_of(self, operator: str) -> Cell: ...

    def on_new_cells(self) -> None: ...


class Surroundings(Protocol):
    """A run, as its cells see it."""

    @property
    def registry(self) -> Succession: ...

    @property
    def changing(self) -> AbstractContextManager[Any]:
        """Held while cells become others."""
        ...

    @property
    def logbook(self) -> Logbook: ...

    @property
    def help_shares(self) -> HelpShares: ...

    @property
    def flow(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def scheduler(self) -> Announcing: ...

    @property
    def visits(self) -> VisitRatios: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def event_loop(self) -> EventLoop: ...

    @property
    def companions(self) -> Companions: ...

    @property
    def flight(self) -> Bound | None: ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def is_pausing(self) -> bool: ...

    @property
    def is_failing(self) -> bool: ...

    @property
    def adds_up(self) -> bool: ...

    def look_at_flight(self) -> None:
        """A writer waits: by now more may be known about what a tuple costs."""

    def pause_if_due(self) -> None:
        """A source has read something, or found that nothing has come."""

    def completed(self, cell: Cell) -> None:
        """A cell will never do anything more."""

    def fail(self, cell: Cell, failure: Failure) -> None:
        """A tuple can't be processed: let out what came before it, then end."""
