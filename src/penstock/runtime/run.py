"""One run of a graph: its cells, and what they and the workers share. Its jobs are done by the owners in `running`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport, Report
from penstock.runtime.cells.cell import Cell
from penstock.runtime.companions import Companions
from penstock.runtime.failures import Failure
from penstock.runtime.flight import Flight
from penstock.runtime.running.ending import Ending
from penstock.runtime.running.help_shares import HelpShares
from penstock.runtime.running.host import Host
from penstock.runtime.running.logbook import Logbook
from penstock.runtime.running.registry import Registry
from penstock.runtime.running.rest import Rest
from penstock.runtime.running.settings import Settings
from penstock.runtime.running.users_code import UsersCode
from penstock.runtime.scheduler import Scheduler
from penstock.runtime.timers import Timers
from penstock.runtime.views import VisitRatios


class Run:
    """Everything that the workers of one run share; complete when it is made."""

    def __init__(
        self, graph: Graph, settings: Settings, host: Host, build: Callable[[Graph, Run], Sequence[Cell]]
    ) -> None:
        workers = host.workers
        self.clock = host.clock
        self.settings = settings
        self.scheduler = Scheduler(host.policy, workers.on_ready, is_asked=workers.picks)
        self.timers = Timers()
        self.companions = Companions()
        self.event_loop = workers.event_loop(f"penstock-{graph.flow}-asyncio")
        self.changing = threading.RLock()
        """Held while cells become others: when they are cut, and when one gets replicas."""
        self.help_shares = HelpShares(settings.help_share, settings.has_gil)
        self.visits = VisitRatios(lambda: self.cells)
        self.users_code = UsersCode(graph.flow)
        self.logbook = Logbook(graph.flow, self.clock.now, host.latencies, settings.record_arrivals)
        self.registry = Registry(graph, build(graph, self), workers.on_new_cells)
        self.ending = Ending(self.registry, self.users_code, workers)
        self.rest = Rest(self.registry, self.ending, self.logbook, self.users_code, settings, host.quiet)
        self.flight: Flight | None = None
        """Where the time that it takes to be quiet is bounded."""
        if host.flight_seconds is not None:
            self.flight = Flight(self.registry, self.clock.now, host.flight_seconds, lambda: workers.threads)

    # Its life

    def open(self) -> None:
        """Sinks first: what can't be written need not be read."""
        for cell in reversed(self.cells):
            if self.ending.is_over:
                return
            self.users_code.call(cell, cell.open, " when it was opened")
        self.ending.opened()
        self.rest.opened()
        for cell in self.cells:
            cell.notify()

    def stop(self, drain: bool) -> None:
        """Sources stop reading, and (unless everything is to be let out) workers stop working."""
        self.ending.stop(drain)

    def leave(self) -> None:
        """Close everything, and raise what made the run fail."""
        self.ending.close()
        for left in self.event_loop.close(self.registry.awaiting()):
            self.ending.leave_behind(left)
        self.companions.leave()
        self.ending.raise_failure()

    def report(self, engine: str) -> Report:
        return self.logbook.report(engine, self.counts(), self.ending.left_behind)

    # What cells ask

    @property
    def cells(self) -> Sequence[Cell]:
        return self.registry.cells

    @property
    def flow(self) -> str:
        return self.logbook.flow

    @property
    def is_stopping(self) -> bool:
        """Whether sources are to read no more."""
        return self.ending.is_stopping

    @property
    def is_failing(self) -> bool:
        """Whether a tuple has failed, and what came before it is being let out."""
        return self.ending.is_failing

    @property
    def is_pausing(self) -> bool:
        """Whether sources wait until everything that they have read is out."""
        return self.rest.is_pausing

    @property
    def adds_up(self) -> bool:
        """Whether nothing was lost, as far as is known."""
        return self.ending.adds_up

    def cell_of(self, operator: str) -> Cell:
        """The cell that runs an operator now."""
        return self.registry.cell_of(operator)

    def counts(self) -> dict[str, OperatorReport]:
        """What operators have done, in the order of the graph."""
        with self.changing:  # an operator is in one cell
            return self.registry.counts()

    # What cells tell it

    def completed(self, cell: Cell) -> None:
        """A cell is complete; with the last one, the run is over."""
        if self.registry.completed(cell):
            self.ending.end()

    def fail(self, cell: Cell, failure: Failure) -> None:
        """A tuple can't be processed: its cell takes no more, and what came before it is let out."""
        cell.give_up()
        for port in cell.inputs:
            port.discard()
        self.ending.fail(failure)

    def pause_if_due(self) -> None:
        """Called by a source that has read something, or found that nothing has come."""
        self.rest.pause_if_due()
        self.look_at_flight()

    def look_at_flight(self) -> None:
        """Called by a writer that waits: by now more may be known about what a tuple costs there."""
        if self.flight is not None:
            self.flight.look()
