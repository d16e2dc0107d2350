"""Several workers in one operator, output in order.

The team is what others see: the reader of its input, the writer of its outputs. A member that puts a unit into the
reorder buffer sends on what is ready. No worker waits: one that finds no room downstream leaves the rest to the team,
which is told when there is some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from penstock.flow.nodes import Node
from penstock.operators.kept import Changed, Kept
from penstock.ordering.reorder import Unordered
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.figures import Figures
from penstock.runtime.cells.tally import Counters
from penstock.runtime.ports import Helped, Port
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.teams.figures import TeamFigures, TeamTally
from penstock.runtime.teams.member import BackToTeam, Member
from penstock.runtime.teams.members import Roster
from penstock.runtime.teams.units import Intake, Unit
from penstock.runtime.teams.work import ChunkMember, Shop, Work


class Team(Cell):
    """An operator with several replicas."""

    def __init__(
        self,
        run: Surroundings,
        place: float,
        nodes: Sequence[Node],
        port: Port,
        make_work: Callable[[Shop], Work],
        replicas: int,
        guests: int = 0,
    ) -> None:
        super().__init__(run, place, nodes, [port])
        self._port = port
        self.buffer = (run.settings.reorder if nodes[0].ordered else Unordered)(run.settings.reorder_size, self)
        self.roster = Roster(lambda: self.work.make_member(), replicas, guests)
        self._intake = Intake(
            port, self.buffer, run.clock.now, self._is_closed, lambda *unit: self.work.make_unit(*unit)
        )
        self.work = make_work(Shop(self, self._intake, self.roster))
        # What else has not been sent is the sender's, which may be any member.
        self.outbox = self._last_words = BackToTeam(self.work.shop.finished)
        self._has_spoken = not self.work.has_last_words
        self._sums = TeamTally(self.tally.of, self.roster)

    @cached_property
    def figures(self) -> Figures:
        share_of_time = self.run.logbook.share_of_time
        return TeamFigures(self._sums, self.inputs, self.ports, share_of_time, self.budget, self.work, self.roster)

    # Members

    @property
    def members(self) -> Sequence[Member]:
        return self.roster.all

    def open(self) -> None:
        """Its outputs are connected: begin."""
        # Not before: where it takes a running cell's place, others would call what is not whole.
        self._port.read_by(self)
        self.set_replicas(self.roster.wanted)

    def set_replicas(self, count: int) -> None:
        """More of them at once; fewer as those that leave are through with what they have."""
        self.roster.resize(count)
        self.work.resize(count)
        self.run.registry.on_new_cells()
        for member in self.roster.working:
            if member.has_more():
                member.notify()

    def follow(self, counts: Mapping[str, Counters]) -> None:
        """Take the place of a cell that has done so much."""
        self._sums.follow(counts)
        received = counts[self.name].received
        if received:
            self.budget.learn(sum(one.busy_seconds for one in counts.values()) / received)

    def notify(self) -> None:
        if self.ports.blocked_on is not None or self.is_over or self._port.closed:
            self.turn.notify()
        self.roster.wake_one()
        self.run.scheduler.look_again(self)

    def helped(self, values: list[Any], born: float) -> Helped | None:
        """By a member that no worker is in: helpers are workers in this operator, and count as such."""
        if not self.work.can_be_helped or self.is_failed or not self.roster.busy:
            return None
        member = self.roster.claim_for_helper()
        if member is None:
            return None
        assert isinstance(member, ChunkMember)
        clock = self.run.clock
        began, cpu_before = clock.now(), clock.thread_cpu()
        unit = Unit(-1, values, born, -1, began)
        try:
            member.work_on(unit)
        finally:
            member.account(clock.now() - began, clock.thread_cpu() - cpu_before, len(values))
            member.turn.release(False)
        return Helped(values, unit)

    def _is_closed(self) -> bool:
        return self.is_failed or (self.run.flight is not None and self._holds_enough())

    def _holds_enough(self) -> bool:
        """Where time bounds what is under way: it has as much in its hands as may wait before it, or can't send."""
        if self.ports.blocked_on is not None:
            return True
        return self._port.is_limited and self._intake.unfinished >= self._port.capacity

    # Sending: what the reorder buffer calls, one worker at a time, in the order of units

    @property
    def is_blocked(self) -> bool:
        return self.ports.blocked_on is not None or self.is_failed or self.is_over

    def send(self, unit: Unit) -> bool:
        given, unit.given = unit.given, []
        for port, values, born in given:
            self.ports.give(port, values, born)
        if not self.ports.flush():
            return False
        if unit.error is not None:
            self.run.fail(self, unit.error)
            return False
        self._intake.sent(unit)
        if unit.is_last:
            self.is_over = True
            self.turn.notify()
        return True

    # What the team itself is scheduled for: there is room again, or there is nothing more to come

    def take(self) -> bool:
        self.ports.end_waiting()
        self.buffer.send_pending()
        self._intake.is_open_again()
        self.roster.wake_one()
        if self._intake.is_through:
            if not self._has_spoken:
                return True
            self.is_over = True
        return False

    def process(self) -> int:
        """Everything is out and no worker is in a member: the last words."""
        self._has_spoken = True
        unit = self._intake.last()
        self._last_words.begin(unit)
        self.work.say_last_words(unit)
        return 0

    def has_more(self) -> bool:
        return False

    def may_be_cut_short(self) -> bool:
        return super().may_be_cut_short() or self._intake.is_behind  # a loop has returned in an earlier unit

    def leave(self, has_failed: bool) -> None:
        for member in self.roster.all:
            member.leave(has_failed)
        self.work.leave()

    def snapshots(self) -> dict[str, Kept]:
        return self.work.snapshots()

    def changed(self) -> dict[str, Changed]:
        return self.work.changed()

    def restore(self, kept: Mapping[str, Kept]) -> None:
        self.work.restore(kept)
