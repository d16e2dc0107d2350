"""What the members of a team do with its units: whole ones, each for the next member that is free or by lanes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.operators.kept import Keeper
from penstock.ordering.splits import Lanes
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.kernel import Kernel
from penstock.runtime.cells.loop_kernel import LoopKernel
from penstock.runtime.cells.outbox import with_help
from penstock.runtime.failures import Failure
from penstock.runtime.teams.member import BackToTeam, Member
from penstock.runtime.teams.members import Roster
from penstock.runtime.teams.units import Intake, Unit

_INTERVAL_SECONDS = 0.1
"""Whose share is a load, where the loads of members are compared."""
_UNKNOWN_TUPLE_SECONDS = 1e-6


@dataclass(frozen=True)
class Shop:
    """What the parts of a team share."""

    team: Cell
    """What others see of it: its flags, outputs and figures."""
    intake: Intake
    roster: Roster

    def budget(self, member: Member, waiting: int) -> int:
        """How many tuples a member should take: what one has learnt, the others need not find out."""
        budget = member.budget
        if not budget.seconds_per_tuple:
            known = self.roster.most_experienced
            budget = known.budget if known is not None and known.budget.seconds_per_tuple else self.team.budget
        return budget.tuples(waiting)

    def finished(self, unit: Unit) -> None:
        """Everything has come of a unit: send it on, and what was waiting for it."""
        if self.intake.finished(unit):
            self.roster.wake_one()
        if self.intake.port.closed:
            self.team.turn.notify()


class Work(Keeper, ABC):
    """How units become output."""

    make_unit: Callable[[int, list[Any], float, int, float], Unit] = Unit
    can_be_helped = False
    has_last_words = False
    """Whether something may come out because the input has ended."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    @abstractmethod
    def make_member(self) -> Member: ...

    @abstractmethod
    def has_work(self, member: Member) -> bool:
        """Whether there is something for a member; may be asked at any time."""

    @property
    def waiting(self) -> int:
        """Tuples that were taken from the port, and that no member has in its hands yet."""
        return 0

    def resize(self, count: int) -> None:
        """From now on so many members take units by themselves."""

    def hottest_share(self) -> float:
        return 0.0

    def say_last_words(self, unit: Unit) -> None:
        """What comes out because the input has ended goes into this unit."""

    def leave(self) -> None:
        """The run is over."""


class ChunkMember(Member):
    """Runs a kernel on whole units."""

    def __init__(self, team: Cell, kernel: Kernel, work: ChunkWork, chunks_when_busy: int = 4) -> None:
        super().__init__(team, kernel.tally, chunks_when_busy)
        self.kernel = kernel
        self._work = work
        self.outbox = self._units = UnitOutbox(team, work)

    @property
    def in_hand(self) -> int:
        unit = self._units.content
        return 0 if unit is None else len(unit.values)

    def take(self) -> bool:
        return self._units.begin(None if self.number is None else self._work.next(self))

    def has_more(self) -> bool:
        return self.number is not None and self._work.has_work(self)

    def process(self) -> int:
        unit = self._units.content
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


class UnitOutbox(BackToTeam[Unit]):
    """A unit that goes back, after its worker has helped the readers of what came of it."""

    def __init__(self, team: Cell, work: ChunkWork) -> None:
        super().__init__(work.finished)
        self._team = team

    def help_readers(self) -> None:
        unit, outputs, team = self.content, self._team.outputs, self._team
        if unit is None:
            return
        given, unit.given = unit.given, []
        for port, values, born in given:
            parts = [values]
            if len(outputs[port]) == 1:
                parts = with_help(team.name, outputs[port][0], values, born, team.run.help_shares.count)
            unit.given.extend((port, part, born) for part in parts)


class ChunkWork(Work):
    """Each unit is for one member."""

    can_be_helped = True

    def __init__(self, shop: Shop, make_kernel: Callable[[], Kernel], chunks_when_busy: int = 4) -> None:
        super().__init__(shop)
        self._make_kernel = make_kernel
        self._chunks_when_busy = chunks_when_busy
        split = shop.team.run.settings.split
        self._lanes: Lanes[Unit] | None = None if split is None else Lanes(split())
        """What is meant for which member; `None` where each takes the next unit when it is free."""
        self._lock = threading.Lock()
        """Held while lanes change."""
        self._waiting = 0

    def make_member(self) -> Member:
        return ChunkMember(self.shop.team, self._make_kernel(), self, self._chunks_when_busy)

    @property
    def waiting(self) -> int:
        return self._waiting

    def resize(self, count: int) -> None:
        if self._lanes is not None:
            with self._lock:
                self._lanes.resize(count)

    def has_work(self, member: Member) -> bool:
        number = member.number  # read once: it may be retired meanwhile
        if self._lanes is not None and number is not None and self._lanes.has_work(number):
            return True
        return self.shop.intake.has_work

    def next(self, member: Member) -> Unit | None:
        """The next unit for a member, which holds it until it is finished."""
        if self._lanes is None:
            return self._cut(member)
        return self._from_lane(member, self._lanes) or self._split(member, self._lanes)

    def _cut(self, member: Member) -> Unit | None:
        intake = self.shop.intake
        unit = intake.cut(self.shop.budget(member, len(intake.port)), member.number or 0)
        if unit is not None and len(intake.port):
            self.shop.roster.wake_one()
        return unit

    def _split(self, member: Member, lanes: Lanes[Unit]) -> Unit | None:
        """Cut what waits into units for the members that are to have them, until there is one for this member."""
        while (cut := self._cut(member)) is not None:
            if cut.is_done:
                return cut
            seconds = len(cut.values) * (member.budget.seconds_per_tuple or _UNKNOWN_TUPLE_SECONDS)
            with self._lock:
                chosen = lanes.add(cut, seconds / _INTERVAL_SECONDS)
                self._waiting += len(cut.values)
            unit = self._from_lane(member, lanes)
            if unit is not None:
                return unit
            for other in self.shop.roster.working[chosen : chosen + 1]:
                other.notify()
        return self._from_lane(member, lanes, helps=True)

    def _from_lane(self, member: Member, lanes: Lanes[Unit], helps: bool = False) -> Unit | None:
        number = member.number
        if number is None:
            return None  # it has just been retired
        with self._lock:
            unit = lanes.take(number, helps)
            if unit is not None:
                unit.go_to(number)
                self._waiting -= len(unit.values)
        return unit

    def finished(self, unit: Unit) -> None:
        if self._lanes is not None and not unit.is_done:
            with self._lock:
                self._lanes.done(unit.replica)
        self.shop.finished(unit)


class LoopWork(ChunkWork):
    """Units for stateless driver loops, one of which has the last word."""

    can_be_helped = False
    has_last_words = True

    def __init__(self, shop: Shop, make_kernel: Callable[[], LoopKernel]) -> None:
        super().__init__(shop, make_kernel)

    def say_last_words(self, unit: Unit) -> None:
        member = self.shop.roster.working[0]
        assert isinstance(member, ChunkMember)
        member.end(unit)
