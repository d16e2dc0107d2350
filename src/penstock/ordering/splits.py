"""Which replica works on which unit, where each does not just take the next one when it is free.

From C-Stream, section 4.2 (round robin), and PRESPS, algorithm 2 (the least loaded). Keyed operators are split by the
hash of their keys: see `worklists`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

U = TypeVar("U")


class Splitter(ABC):
    """Names the replica that a unit is for."""

    @abstractmethod
    def choose(self, replicas: int, load: float) -> int:
        """The number of the replica for a unit that will take such a share of an interval."""

    def new_interval(self, loads: Sequence[float]) -> None:
        """What share of the last interval each replica was busy."""


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
    """The one that is least busy; one after the other where all have as much as they can do.

    >>> split = LeastLoaded()
    >>> split.new_interval([0.5, 0.2])
    >>> [split.choose(2, load=0.2) for _ in range(3)]
    [1, 1, 0]
    """

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
    """What waits for each replica; used by one worker at a time.

    >>> lanes = Lanes(RoundRobin())
    >>> lanes.resize(2)
    >>> [lanes.add(unit, load=0.1) for unit in "abc"]
    [0, 1, 0]
    >>> lanes.resize(1)
    >>> [lanes.take(0) for _ in range(4)]
    ['a', 'c', 'b', None]
    """

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter
        self._lanes: list[deque[U]] = []

    def __len__(self) -> int:
        return len(self._lanes)

    def resize(self, replicas: int) -> None:
        """Another number of replicas: those that stay get what waits for those that leave."""
        left = [unit for lane in self._lanes[replicas:] for unit in lane]
        self._lanes = [self._lanes[number] if number < len(self._lanes) else deque() for number in range(replicas)]
        for number, unit in enumerate(left):
            self._lanes[number % replicas].append(unit)

    def add(self, unit: U, load: float) -> int:
        """Put a unit where the splitter wants it; returns the number of that replica."""
        chosen = self.splitter.choose(len(self._lanes), load)
        self._lanes[chosen].append(unit)
        return chosen

    def take(self, replica: int) -> U | None:
        lane = self._lanes[replica]
        return lane.popleft() if lane else None

    def has_work(self, replica: int) -> bool:
        """Whether something waits for a replica; may be asked by any worker at any time."""
        lanes = self._lanes
        return replica < len(lanes) and bool(lanes[replica])
