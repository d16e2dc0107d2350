"""A worker's place in a team: a cell that takes units instead of chunks, and gives back all that has come of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from typing import Generic, TypeVar

from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.figures import Figures
from penstock.runtime.cells.outbox import Outbox
from penstock.runtime.cells.tally import Tally
from penstock.runtime.cells.turn import Turn
from penstock.runtime.ports import Port
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
    @abstractmethod
    def in_hand(self) -> int:
        """How many tuples it is working on."""


Content = TypeVar("Content")


class BackToTeam(Outbox, Generic[Content]):
    """What a member has worked on, and gives back to its team."""

    def __init__(self, finished: Callable[[Content], None]) -> None:
        self.content: Content | None = None
        self._finished = finished

    def begin(self, content: Content | None) -> bool:
        """What is worked on next; whether there is anything."""
        self.content = content
        return content is not None

    @property
    def is_empty(self) -> bool:
        return self.content is None

    def flush(self) -> bool:
        content, self.content = self.content, None
        if content is not None:
            self._finished(content)
        return True

    def help_readers(self) -> None:
        """It is not in order yet, or the last there is."""
