"""Ready cells and a policy; knows no thread and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import PolicyError, describe_exception
from penstock.runtime.policies import SchedulingPolicy, policy_name

if TYPE_CHECKING:
    from penstock.runtime.cells import Cell

_MOST_COMPARED = 8


class Scheduler:
    """The list of ready cells.

    A deque's single operations are atomic with and without a GIL, so there is no lock: a worker draws up to eight
    cells, asks the policy, and puts the others back where they were.
    """

    def __init__(self, policy: SchedulingPolicy, on_ready: Callable[[Cell], None], is_asked: bool = True) -> None:
        self.policy = policy
        self._is_asked = is_asked
        """Whether workers pick: not where every cell has a worker of its own, which is told instead."""
        self._on_ready = on_ready
        self._ready: deque[Cell] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._ready

    @property
    def compared(self) -> int:
        """How many operators the policy would be asked about now."""
        ready = len(self._ready)
        return min(ready, _MOST_COMPARED) if ready > 1 else 0

    def add(self, cell: Cell) -> None:
        """A cell has something to do."""
        if self._is_asked:
            self._ready.append(cell)
        self._on_ready(cell)

    def pick(self) -> Cell | None:
        """Claim the ready cell that the policy wants, or `None`."""
        drawn = self._draw()
        if not drawn:
            return None
        if len(drawn) == 1:
            best = drawn[0]
        else:
            best = drawn.pop(self._best_of(drawn))
            self._ready.extendleft(reversed(drawn))
        return best if best.claim(from_list=True) else self.pick()

    def _best_of(self, drawn: list[Cell]) -> int:
        """The place of the one that the policy wants; `PolicyError` for whatever it raises or returns instead."""
        policy = self.policy
        try:
            priorities = [policy.priority(cell.view) for cell in drawn]
            return priorities.index(max(priorities))
        except BaseException as error:
            asked = ", ".join(repr(cell.name) for cell in drawn)
            raise PolicyError(
                f"policy {policy_name(policy)!r} failed when it was asked which of {asked} is next: "
                f"{describe_exception(error)}"
            ) from error

    def _draw(self) -> list[Cell]:
        drawn: list[Cell] = []
        ready = self._ready
        try:
            while ready and len(drawn) < _MOST_COMPARED:
                drawn.append(ready.popleft())
        except IndexError:
            pass  # another worker was faster
        return drawn
