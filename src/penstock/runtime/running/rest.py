"""What a run needs when it can go no further by itself: found by one worker, and carried out by it before others go on.

`found` looks, quickly and without changing anything; `carry_out` may take its time in users' code, so a driver calls it
without a lock, and lets no worker pick a cell meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.errors import FlowError, PenstockError
from penstock.observe.journal import Decision
from penstock.runtime.conservation import check_cells
from penstock.runtime.failures import Failure
from penstock.runtime.running.settings import Settings

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell
    from penstock.runtime.ports import Neighbour, Port
    from penstock.runtime.running.ending import Ending
    from penstock.runtime.running.logbook import Logbook
    from penstock.runtime.running.registry import Registry
    from penstock.runtime.running.users_code import UsersCode


class Quiet(Protocol):
    """What happens when sources have paused and nothing is under way."""

    def opened(self, registry: Registry) -> None:
        """All cells are open, and no worker works yet."""

    def is_due(self) -> bool:
        """Whether sources should pause."""

    def take(self, registry: Registry) -> None:
        """They do, and nothing is under way; or nothing more comes, and the flow is to be kept as it is."""


@dataclass(frozen=True)
class Grow:
    """A flow forks and rejoins: the smallest full queue needs more room (Parks)."""

    port: Port
    capacity: int


@dataclass(frozen=True)
class Deadlock:
    """No queue may grow any more, and none gets shorter."""

    blocked: tuple[Cell, ...]
    error: FlowError


@dataclass(frozen=True)
class TakeQuietly:
    """Everything that was read is out: take a checkpoint, and go on or end."""

    then_ends: bool


@dataclass(frozen=True)
class CloseControls:
    """All sources have ended: the next operator that waits for control tuples gets none."""

    cell: Cell


@dataclass(frozen=True)
class NeverComes:
    """Operators wait for something, and nothing is left that could bring it."""

    operators: str


@dataclass(frozen=True)
class EndHere:
    """Nothing more is to be done."""


RestStep: TypeAlias = Grow | Deadlock | TakeQuietly | CloseControls | NeverComes | EndHere


class Rest:
    """What is to be done when no cell of a run is ready and no worker works."""

    def __init__(
        self,
        registry: Registry,
        ending: Ending,
        logbook: Logbook,
        users_code: UsersCode,
        settings: Settings,
        quiet: Quiet | None,
    ) -> None:
        self.is_pausing = False
        """Sources read no more until everything that they have read is out."""
        self._registry = registry
        self._ending = ending
        self._logbook = logbook
        self._users_code = users_code
        self._settings = settings
        self._quiet = quiet
        self._controls_closed: set[Cell] = set()

    def opened(self) -> None:
        """All cells are open, and no worker works yet."""
        if self._quiet is not None:
            self._quiet.opened(self._registry)

    def pause_if_due(self) -> None:
        """Called by a source that has read something, or found that nothing has come."""
        if self._quiet is not None and self._quiet.is_due():
            self.is_pausing = True

    # Looking

    def found(self) -> RestStep | None:
        """Called when no cell is ready and no worker works; `None` where the run goes on by itself.

        Writers that are blocked with no reader at work: the flow forks and rejoins. Otherwise, once the sources have
        ended, operators can wait for nothing but a control input.
        """
        cells, is_failing = self._registry, self._ending.is_failing
        if self._ending.is_over:
            return None
        if is_failing or not cells.are_awaiting:
            relief = self.relief()
            if relief is not None:
                return relief
        if self.is_pausing and not is_failing:
            return None if cells.are_awaiting else TakeQuietly(then_ends=False)
        if is_failing:
            return EndHere()
        if cells.wait_for_outside:
            return None
        return self._when_sources_have_ended() if self._settings.closes_at_end else TakeQuietly(then_ends=True)

    def relief(self) -> Grow | Deadlock | None:
        """Room for writers whose reader waits for another writer; `None` where no writer waits."""
        blocked = self._registry.blocked()
        if not blocked:
            return None
        ports = [port for cell in blocked for port in cell.ports.full_ports()]
        port = min(ports, key=lambda port: (port.capacity, port.name))
        if 2 * port.capacity <= self._settings.queue_limit:
            return Grow(port, 2 * port.capacity)
        return Deadlock(tuple(blocked), FlowError(self._deadlock(blocked)))

    def _when_sources_have_ended(self) -> RestStep:
        left = [cell for cell in self._registry.cells if not cell.is_complete]
        for cell in left:
            if cell not in self._controls_closed:
                return CloseControls(cell)
        return NeverComes(", ".join(cell.name for cell in left))

    # Doing

    def carry_out(self, step: RestStep) -> None:
        """Do what was found; no worker may pick a cell until this has returned."""
        match step:
            case Grow(port, capacity):
                self._note_growth(port, capacity)
                port.grow(capacity)
            case Deadlock(blocked, error):
                for cell in blocked:
                    cell.give_up()
                self._ending.fail(Failure(math.inf, error))
                self._ending.end()
            case TakeQuietly(then_ends):
                self._take_quietly(then_ends)
            case CloseControls(cell):
                self._controls_closed.add(cell)
                for port in cell.inputs[len(cell.nodes[0].inputs) :]:
                    port.close()
                cell.notify()
            case NeverComes(operators):
                self._ending.crash(FlowError(f"flow {self._registry.flow!r}: {operators} waits for what never comes"))
            case EndHere():
                self._ending.end()

    def _take_quietly(self, then_ends: bool) -> None:
        try:
            check_cells(self._registry, "Nothing that came out since the last checkpoint was published")
            if self._quiet is not None:
                with self._users_code.called("the checkpoint"):
                    self._quiet.take(self._registry)
        except PenstockError as error:
            self._ending.abort(error)
        except BaseException as error:
            self._ending.crash(error)
        # Last: until now no source may read on.
        self.is_pausing = False
        if then_ends:
            self._ending.end()
        else:
            self._registry.tell_sources()

    def _note_growth(self, port: Port, capacity: int) -> None:
        reason = "everything waits for everything: a fork rejoins after more tuples than the queue holds"
        self._logbook.decisions.append(
            Decision(self._logbook.seconds(), "queues", port.name, port.capacity, capacity, reason)
        )

    def _deadlock(self, blocked: list[Cell]) -> str:
        waits = "; ".join(
            f"{cell.name!r} waits for room in {port.name} ({len(port):,} tuples)"
            for cell in blocked
            for port in cell.ports.full_ports()
        )
        readers = "; ".join(
            f"{port.reader.name!r} waits for tuples on {_empty(port.reader)}"
            for cell in blocked
            for port in cell.ports.full_ports()
        )
        return (
            f"flow {self._registry.flow!r} can't go on within queue_limit={self._settings.queue_limit:,}: {waits}; "
            f"{readers}. Raise queue_limit, or let both ways of the fork carry as many tuples"
        )


def _empty(cell: Neighbour) -> str:
    return ", ".join(port.name for port in cell.inputs if not len(port)) or "nothing"
