"""Ready cells, kept so that the one that a policy wants is found without asking about all of them.

Nothing here asks a policy or takes a lock: the scheduler does both, and never asks while it holds the lock.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from penstock.runtime.policies import OperatorView, SchedulingPolicy

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell

MOST_COMPARED = 8
"""So many ready operators are all compared at each pick, where their priorities may change at any time."""
_IN_TURN = 3
"""Of more than that, as many in turn: with the best that is known and one that is new, five are asked about."""
_FEW_STALE = 64


class Ready:
    """An operator, and its cells that have something to do: several where it has replicas."""

    __slots__ = ("cells", "entry", "number", "place", "priority", "view")

    def __init__(self, view: OperatorView) -> None:
        self.view = view
        self.cells: deque[Cell] = deque()
        self.priority: float | None = None
        """What the policy has said last."""
        self.entry: Entry | None = None
        """Where it stands in the order; what else of it is in there does not count any more."""
        self.number = 0
        """When it became ready, compared with others."""
        self.place = -1
        """Where it stands in the rotation."""

    def learn(self, priority: float, order: list[Entry]) -> None:
        """Put it where it belongs by what the policy has just said."""
        self.priority = priority
        # Two of the same priority and number are of the same operator: so operators are never compared.
        self.entry = entry = (-priority, self.number, self)
        heappush(order, entry)


Entry = tuple[float, int, Ready]


class ReadyList(ABC):
    """Ready cells, and what is known of their operators' priorities; the caller must hold the scheduler's lock.

    The one with the largest priority comes first; of several, the one that has been ready for the longest.
    """

    def __init__(self) -> None:
        self.count = 0
        """How many cells there are."""
        self._known: dict[OperatorView, Ready] = {}
        self._numbers = count()

    def see(self, came: deque[Cell], news: dict[OperatorView, None]) -> Sequence[Ready]:
        """Take in cells that have become ready and news about others; about whom the policy is to be asked."""
        known = self._known
        while came:
            self.count += 1  # before it leaves the other list, so that it is never in neither
            try:
                cell = came.popleft()
            except IndexError:  # a worker has found it alone
                self.count -= 1
                break
            view = cell.view
            one = known.get(view)
            if one is None:
                one = known[view] = Ready(view)
            self._add(one, cell)
        while news:
            view, _ = news.popitem()
            if (one := known.get(view)) is not None and one.cells:
                self._look_again(one)
        return self._to_ask()

    @abstractmethod
    def take(self, asked: Sequence[Ready], priorities: Sequence[float]) -> Cell | None:
        """Take the best one out, by what the policy has answered just now and before."""

    @abstractmethod
    def asks(self, ready: int, news: int) -> int:
        """About how many of so many, of which so many are news, the policy would be asked."""

    def cells(self) -> list[Cell]:
        """All that are here."""
        return [cell for one in self._known.values() for cell in one.cells]

    @abstractmethod
    def _add(self, one: Ready, cell: Cell) -> None:
        """A cell of an operator has become ready."""

    def _look_again(self, one: Ready) -> None:
        """Something has changed about an operator that is ready."""

    @abstractmethod
    def _to_ask(self) -> Sequence[Ready]: ...


class Fixed(ReadyList):
    """For priorities that never change: the policy is asked once about each operator."""

    def __init__(self) -> None:
        super().__init__()
        self._order: list[tuple[float, int, Cell]] = []
        self._asked_for: list[Ready] = []
        """Operators that the policy has not been asked about; they keep their cells until then."""

    def _add(self, one: Ready, cell: Cell) -> None:
        if one.priority is not None:
            heappush(self._order, (-one.priority, next(self._numbers), cell))
        else:
            if not one.cells:
                self._asked_for.append(one)
            one.cells.append(cell)

    def _to_ask(self) -> Sequence[Ready]:
        return list(self._asked_for) if self._asked_for else ()

    def take(self, asked: Sequence[Ready], priorities: Sequence[float]) -> Cell | None:
        if asked:
            self._learn(asked, priorities)
        if not self._order:
            return None
        self.count -= 1
        return heappop(self._order)[2]

    def _learn(self, asked: Sequence[Ready], priorities: Sequence[float]) -> None:
        for one, priority in zip(asked, priorities, strict=True):
            one.priority = priority
            while one.cells:  # unless another worker has asked as well
                self._add(one, one.cells.popleft())
        self._asked_for = [one for one in self._asked_for if one.priority is None]

    def asks(self, ready: int, news: int) -> int:
        return 0

    def cells(self) -> list[Cell]:
        return [*(cell for _, _, cell in self._order), *super().cells()]


class InOrder(ReadyList):
    """For priorities that change only with what is told: the first one is always the best there is."""

    def __init__(self) -> None:
        super().__init__()
        self._order: list[Entry] = []
        self._asked_for: dict[Ready, None] = {}
        """Those about which the policy must be asked before the next pick."""

    def _add(self, one: Ready, cell: Cell) -> None:
        if not one.cells:
            one.number = next(self._numbers)
            self._asked_for[one] = None
        one.cells.append(cell)

    def _look_again(self, one: Ready) -> None:
        self._asked_for[one] = None

    def _to_ask(self) -> Sequence[Ready]:
        return list(self._asked_for) if self._asked_for else ()

    def asks(self, ready: int, news: int) -> int:
        return min(ready, news)

    def take(self, asked: Sequence[Ready], priorities: Sequence[float]) -> Cell | None:
        order, asked_for = self._order, self._asked_for
        for one, priority in zip(asked, priorities, strict=True):
            if one in asked_for:  # another worker may have asked as well, and taken it
                del asked_for[one]
                if one.entry is None or one.priority != priority:
                    one.learn(priority, order)
        while order:
            entry = heappop(order)
            one = entry[2]
            if one.entry is entry:
                return self._taken_of(one)
        return None

    def _taken_of(self, one: Ready) -> Cell:
        one.entry = None
        if self._asked_for:
            self._asked_for.pop(one, None)
        cell = one.cells.popleft()
        self.count -= 1
        if one.cells:  # it waits again, with a worker more in it
            one.number = next(self._numbers)
            self._asked_for[one] = None
        return cell


class Sampled(ReadyList):
    """For priorities that may change at any time: the best of a few, which are asked about at every pick.

    Few operators are all compared. Of many, the one that had the largest priority before, those that are new, and some
    others in turn: so a priority that stays is always found, and one that has changed as soon as its turn comes. Every
    operator has its turn once in each round; where in the next one, is drawn when it becomes ready.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw = random.Random(seed).random
        self._order: list[Entry] = []
        """What is known of those that have been compared with many others."""
        self._turn: list[Ready] = []
        """All that are ready; those before `_next` have had their turn in this round."""
        self._next = 0
        self._asked_for: dict[Ready, None] = {}
        """Those that are not in the order."""

    def _add(self, one: Ready, cell: Cell) -> None:
        if not one.cells:
            self._begin(one)
        one.cells.append(cell)

    def _begin(self, one: Ready) -> None:
        turn = self._turn
        one.number = next(self._numbers)
        self._asked_for[one] = None
        one.place = len(turn)
        turn.append(one)
        if one.place < MOST_COMPARED:  # all are asked about
            return
        # New ones are asked about anyway, so it stands among those that have had their turn, at a place that is drawn.
        self._next = seen = min(self._next, len(turn) - 1) + 1
        self._move(turn[seen - 1], len(turn) - 1)
        self._move(one, seen - 1)
        drawn = int(self._draw() * seen)
        self._move(turn[drawn], seen - 1)
        self._move(one, drawn)

    def _to_ask(self) -> Sequence[Ready]:
        turn, order = self._turn, self._order
        if len(turn) <= MOST_COMPARED:
            return turn[:] if len(turn) > 1 else ()
        while order and order[0][2].entry is not order[0]:
            heappop(order)
        if self._next >= len(turn):
            self._next = 0
        self._next, first = min(len(turn), self._next + _IN_TURN), self._next
        # The first in the order is the best that is known. One that is asked about twice does no harm.
        best = [order[0][2]] if order else []
        return [*self._asked_for, *best, *turn[first : self._next]]

    def asks(self, ready: int, news: int) -> int:
        return ready if ready <= MOST_COMPARED else _IN_TURN + 2

    def take(self, asked: Sequence[Ready], priorities: Sequence[float]) -> Cell | None:
        if not asked:
            return self._taken_of(self._turn[0]) if self._turn else None
        best: Ready | None = None
        largest = 0.0
        is_many = len(self._turn) > MOST_COMPARED  # otherwise all are asked about again, and need no order
        for one, priority in zip(asked, priorities, strict=True):
            if one.place < 0:
                continue  # another worker has asked as well, and taken it
            if is_many and (one.entry is None or one.priority != priority):
                self._asked_for.pop(one, None)
                one.learn(priority, self._order)
            if best is None or priority > largest or (priority == largest and one.number < best.number):
                best, largest = one, priority
        return None if best is None else self._taken_of(best)

    def _taken_of(self, one: Ready) -> Cell:
        """Fill its place, so that those before `_next` are still those that have had their turn."""
        turn, place = self._turn, one.place
        if place < self._next:
            self._next -= 1
            self._move(turn[self._next], place)
            place = self._next
        last = turn.pop()
        if place < len(turn):
            self._move(last, place)
        one.place, one.entry = -1, None
        self._asked_for.pop(one, None)
        if len(self._order) > _FEW_STALE + 4 * len(turn):
            self._order = [entry for entry in self._order if entry[2].entry is entry]
            heapify(self._order)
        cell = one.cells.popleft()
        self.count -= 1
        if one.cells:
            self._begin(one)
        return cell

    def _move(self, one: Ready, place: int) -> None:
        self._turn[place] = one
        one.place = place


def ready_list(policy: SchedulingPolicy, seed: int) -> ReadyList:
    """The list that suits a policy."""
    match policy.priority_changes:
        case "never":
            return Fixed()
        case "when notified":
            return InOrder()
    return Sampled(seed)
