"""A worker's place in a team: a cell that takes units instead of chunks, and gives back all that has come of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from typing import Protocol

from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.figures import Figures
from penstock.runtime.cells.kernel import Kernel
from penstock.runtime.cells.outbox import HelpShare, Outbox, with_help
from penstock.runtime.cells.tally import Tally
from penstock.runtime.cells.turn import Turn
from penstock.runtime.failures import Failure
from penstock.runtime.ports import Port
from penstock.runtime.teams.units import Unit
from penstock.runtime.views import OperatorView


class Member(Cell):
    """One of several; to policies it looks like the team."""

    help_seconds = 0.0001  # it is there to be helped

    def __init__(self, team: Cell, tally: Tally, chunks_when_busy: int = 4) -> None:
        super().__init__(team.run, team.place, team.nodes, team.inputs, tally, chunks_when_busy)
        self.depth = team.depth
        # Work that has come is announced to one idle member, if there is one: a member that becomes idle looks again.
        scheduler = team.run.scheduler
        self.turn = Turn(partial(scheduler.add, self), partial(scheduler.look_again, self), self.has_more)
        self.number: int | None = None
        """Which of those it is that take units by themselves, if it is one."""
        self.team = team

    def become(self, number: int | None) -> None:
        """From now on the so-many-th that takes units by itself; or one that takes none."""
        self.number = number

    @property
    def outputs(self) -> list[list[Port]]:
        return self.team.outputs

    @cached_property
    def figures(self) -> Figures:
        return self.team.figures

    @cached_property
    def view(self) -> OperatorView:
        return self.team.view

    @property
    def is_source(self) -> bool:
        return False

    @property
    @abstractmethod
    def in_hand(self) -> int:
        """How many tuples it is working on."""


class Supply(Protocol):
    """Where members get their units from."""

    def next(self, member: Member) -> Unit | None: ...

    def has_work(self, member: Member) -> bool: ...

    def finished(self, unit: Unit) -> None: ...


class ChunkMember(Member):
    """Runs a kernel on whole units."""

    def __init__(self, team: Cell, kernel: Kernel, supply: Supply, chunks_when_busy: int = 4) -> None:
        super().__init__(team, kernel.tally, chunks_when_busy)
        self.kernel = kernel
        self._supply = supply
        self.outbox = self._units = UnitOutbox(team, supply, team.run.help_shares.share)

    @property
    def in_hand(self) -> int:
        unit = self._units.unit
        return 0 if unit is None else len(unit.values)

    def take(self) -> bool:
        return self._units.begin(None if self.number is None else self._supply.next(self))

    def has_more(self) -> bool:
        return self.number is not None and self._supply.has_work(self)

    def process(self) -> int:
        unit = self._units.unit
        assert unit is not None
        return 0 if unit.is_done else self.work_on(unit)

    def work_on(self, unit: Unit) -> int:
        """All that comes of a unit is then in it; how many tuples it has."""
        self._call(unit, lambda: self.kernel.run(unit.values, unit.born, unit.give))
        return len(unit.values)

    def end(self, unit: Unit) -> None:
        """The input has ended: what the kernel still has to say goes into this unit."""
        self._call(unit, lambda: self.kernel.end(unit.born, unit.give))

    def _call(self, unit: Unit, work: Callable[[], None]) -> None:
        try:
            work()
        except Failure as failure:
            unit.fail(failure)
        except BaseException as error:
            unit.fail(self.failing.crashed(error))
        if self.kernel.is_done:
            unit.be_the_last()

    def leave(self, has_failed: bool) -> None:
        self.kernel.leave(has_failed)


class UnitOutbox(Outbox):
    """A unit that goes back to the team."""

    def __init__(self, team: Cell, supply: Supply, help_share: HelpShare) -> None:
        self.unit: Unit | None = None
        self._team = team
        self._supply = supply
        self._help_share = help_share

    def begin(self, unit: Unit | None) -> bool:
        """What comes next; whether anything does."""
        self.unit = unit
        return unit is not None

    @property
    def is_empty(self) -> bool:
        return self.unit is None

    def flush(self) -> bool:
        unit, self.unit = self.unit, None
        if unit is not None:
            self._supply.finished(unit)
        return True

    def help_readers(self) -> None:
        unit, outputs = self.unit, self._team.outputs
        if unit is None:
            return
        given, unit.given = unit.given, []
        for port, values, born in given:
            parts = [values]
            if len(outputs[port]) == 1:
                parts = with_help(self._team.name, outputs[port][0], values, born, self._help_share)
            unit.given.extend((port, part, born) for part in parts)
