"""Which replica works on which unit, where each does not just take the next one when it is free.

From C-Stream, section 4.2 (round robin), and PRESPS, algorithm 2 (the least loaded). Keyed operators are split by the
hash of their keys: see `worklists`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

U = TypeVar("U")


class Splitter(ABC):
    """Names the replica that a unit is for."""

    @abstractmethod
    def choose(self, replicas: int, load: float) -> int:
        """The number of the replica for a unit that will take such a share of an interval."""

    lets_others_help: ClassVar[bool] = False
    """Whether a replica that has nothing to do may take what is meant for another one."""

    def new_interval(self, loads: Sequence[float]) -> None:
        """How much each replica has before it, as a share of an interval: what it works on, and what waits for it."""


class RoundRobin(Splitter):
    """One after the other.

    >>> split = RoundRobin()
    >>> [split.choose(3, load=0.1) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._next = 0

    def choose(self, replicas: int, load: float) -> int:
        chosen = self._next % replicas
        self._next = chosen + 1
        return chosen


class LeastLoaded(Splitter):
    """The one that has least to do; one after the other where all have as much as they can do in an interval.

    >>> split = LeastLoaded()
    >>> split.new_interval([0.5, 0.2])
    >>> [split.choose(2, load=0.2) for _ in range(3)]
    [1, 1, 0]
    """

    lets_others_help = True

    def __init__(self) -> None:
        self._loads: list[float] = []
        self._in_turn = RoundRobin()

    def new_interval(self, loads: Sequence[float]) -> None:
        self._loads = list(loads)

    def choose(self, replicas: int, load: float) -> int:
        loads = self._loads
        del loads[replicas:]
        loads += [0.0] * (replicas - len(loads))
        chosen = loads.index(min(loads))
        if loads[chosen] >= 1:
            return self._in_turn.choose(replicas, load)
        loads[chosen] += load
        return chosen


class Lanes(Generic[U]):
    """What waits for each replica, and how much that is with what it works on; used by one worker at a time.

    >>> lanes = Lanes(RoundRobin())
    >>> lanes.resize(2)
    >>> [lanes.add(unit, load=0.1) for unit in "abc"]
    [0, 1, 0]
    >>> lanes.resize(1)
    >>> [lanes.take(0) for _ in range(4)]
    ['a', 'c', 'b', None]
    """

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter
        self._lanes: list[deque[tuple[U, float]]] = []
        self._waiting: list[float] = []
        self._in_hand: list[float] = []
        """The loads of what waits in each lane, and of what its replica works on."""

    def resize(self, replicas: int) -> None:
        """Another number of replicas: those that stay get what waits for those that leave."""
        left = [one for lane in self._lanes[replicas:] for one in lane]
        self._lanes = [self._lanes[number] if number < len(self._lanes) else deque() for number in range(replicas)]
        self._in_hand = [*self._in_hand[:replicas], *([0.0] * (replicas - len(self._in_hand)))]
        for number, one in enumerate(left):
            self._lanes[number % replicas].append(one)
        self._waiting = [sum(load for _, load in lane) for lane in self._lanes]

    def loads(self) -> list[float]:
        """How much each has before it."""
        return [in_hand + waiting for in_hand, waiting in zip(self._in_hand, self._waiting, strict=True)]

    def add(self, unit: U, load: float) -> int:
        """Put a unit where the splitter wants it; returns the number of that replica."""
        self._splitter.new_interval(self.loads())
        chosen = self._splitter.choose(len(self._lanes), load)
        self._lanes[chosen].append((unit, load))
        self._waiting[chosen] += load
        return chosen

    def take(self, replica: int, helps: bool = False) -> U | None:
        """What waits for a replica, which then has it in hand; or, if it may help, what waits where there is most."""
        if replica >= len(self._lanes):
            return None  # it has just left
        number = replica
        if not self._lanes[number] and helps and self._splitter.lets_others_help:
            number = self._waiting.index(max(self._waiting))
        lane = self._lanes[number]
        if not lane:
            return None
        unit, load = lane.popleft()
        self._waiting[number] = self._waiting[number] - load if lane else 0.0
        self._in_hand[replica] = load
        return unit

    def done(self, replica: int) -> None:
        """It has nothing in hand any more."""
        if replica < len(self._in_hand):
            self._in_hand[replica] = 0.0

    def has_work(self, replica: int) -> bool:
        """Whether something waits that a replica may take; may be asked at any time."""
        lanes = self._lanes
        if replica < len(lanes) and lanes[replica]:
            return True
        return self._splitter.lets_others_help and any(lanes)
