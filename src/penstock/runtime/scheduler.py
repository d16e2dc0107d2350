"""Ready cells and a policy; knows no thread and no clock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PolicyError, describe_exception
from penstock.runtime.policies import OperatorView, SchedulingPolicy, policy_name
from penstock.runtime.ready import MOST_COMPARED, Ready, ready_list

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell


class Scheduler:
    """The list of ready cells, and the policy that picks among them.

    A deque's single operations are atomic with and without a GIL, so a cell becomes ready without a lock, and one that
    is ready alone is picked without one. Otherwise a short lock guards the list, and none holds it while the policy is
    asked: operators stay in the list meanwhile, so that no worker finds it empty.
    """

    def __init__(
        self, policy: SchedulingPolicy, on_ready: Callable[[Cell], None], is_asked: bool = True, seed: int = 0
    ) -> None:
        self.policy = policy
        """Changed by `set_policy` only."""
        self._is_asked = is_asked
        """Whether workers pick: not where every cell has a worker of its own, which is told instead."""
        self._on_ready = on_ready
        self._seed = seed
        self._heeds_news = policy.priority_changes == "when notified"
        self._came: deque[Cell] = deque()
        """Cells that have become ready, and that no pick has seen."""
        self._news: dict[OperatorView, None] = {}
        """Operators about which something has changed since they became ready."""
        self._lock = threading.Lock()
        self._list = ready_list(policy, seed)

    @property
    def is_empty(self) -> bool:
        return not self._came and not self._list.count

    @property
    def ready(self) -> int:
        """How many cells wait for a worker."""
        return len(self._came) + self._list.count

    @property
    def compared(self) -> int:
        """About how many operators the policy would be asked now."""
        came = len(self._came)
        ready = self._list.count + came
        return self._list.asks(ready, came + len(self._news)) if ready > 1 else 0

    def set_policy(self, policy: SchedulingPolicy) -> None:
        """Let another policy pick, from now on."""
        with self._lock:
            self.policy = policy
            self._heeds_news = policy.priority_changes == "when notified"
            self._came.extendleft(reversed(self._list.cells()))
            self._list = ready_list(policy, self._seed)

    def add(self, cell: Cell) -> None:
        """A cell has something to do."""
        if self._is_asked:
            self._came.append(cell)
        self._on_ready(cell)

    def look_again(self, cell: Cell) -> None:
        """Something has changed about an operator that may be ready already."""
        if self._heeds_news and self._is_asked:
            self._news[cell.view] = None

    def pick(self) -> Cell | None:
        """Claim the ready cell that the policy wants, or `None`."""
        came = self._came
        while True:
            cell: Cell | None = None
            if self._list.count:
                cell = self._best()
            elif not came:
                return None
            elif len(came) > 1:
                cell = self._best()
            else:  # it is ready alone: the policy need not be asked
                try:
                    cell = came.popleft()
                except IndexError:
                    continue  # another worker was faster
            # What was claimed without the list, or is complete, is in there still.
            if cell is None or cell.turn.claim(from_list=True):
                return cell

    def preempts(self, cell: Cell) -> bool:
        """Whether an operator that has used up its quantum must let others run; `PolicyError` as for a pick."""
        try:
            return bool(self.policy.preempts(cell.view))
        except BaseException as error:
            raise self._failed(f"whether {cell.name!r} must let others run", error) from error

    def _best(self) -> Cell | None:
        while True:
            with self._lock:
                ready, policy = self._list, self.policy
                asked = ready.see(self._came, self._news)
                if not asked:
                    return ready.take((), ())
            priorities = self._priorities(policy, asked)
            with self._lock:
                if ready is self._list and (cell := ready.take(asked, priorities)) is not None:
                    return cell

    def _priorities(self, policy: SchedulingPolicy, asked: Sequence[Ready]) -> list[float]:
        try:
            return [float(policy.priority(one.view)) for one in asked]
        except BaseException as error:
            names = ", ".join(repr(one.view.name) for one in asked[:MOST_COMPARED])
            raise self._failed(f"which of {names} is next", error) from error

    def _failed(self, question: str, error: BaseException) -> PolicyError:
        name = policy_name(self.policy)
        return PolicyError(f"policy {name!r} failed when it was asked {question}: {describe_exception(error)}")
