"""Queues whose tuples grow cold: what others have pushed out of the caches is worked on more slowly."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.timing import VirtualClock
from penstock.runtime.ports import Port


class CoolingPort(Port):
    """Whoever takes a tuple pays for the tuples that were worked on since it was made, anywhere in the flow."""

    def __init__(self, name: str, capacity: int, clock: VirtualClock, machine: Machine) -> None:
        super().__init__(name, capacity)
        self._clock = clock
        self._cold_seconds = machine.cold_seconds
        self._warm_tuples = machine.warm_tuples
        self._made: deque[tuple[int, int]] = deque()
        """Of each chunk: the number of the first tuple after it, and how many had been worked on when it was made."""
        self._gone = 0

    def offer(self, values: list[Any], born: float, notifies: bool = True) -> list[Any]:
        before = self.total
        rest = super().offer(values, born, notifies)
        if self.total > before:
            self._made.append((self.total, self._clock.worked_on))
        return rest

    def take(self, budget: int) -> tuple[list[Any], float]:
        values, born = super().take(budget)
        if values:
            self._charge(len(values))
        return values, born

    def _charge(self, count: int) -> None:
        made = self._made
        since = self._clock.worked_on - made[0][1]
        self._gone += count
        while made and made[0][0] <= self._gone:
            made.popleft()
        if since:
            self._clock.owe(count * self._cold_seconds * since / (since + self._warm_tuples))
