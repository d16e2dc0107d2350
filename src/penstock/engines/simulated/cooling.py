"""Queues whose tuples grow cold: what is in no cache any more, or in another core's, is worked on more slowly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.timing import VirtualClock
from penstock.runtime.ports import Port


class CoolingPort(Port):
    """The worker that takes a tuple pays for those that were worked on since it was made, anywhere in the flow.

    And, where that was on another core, for its way to this one; `core` says on which one the caller is.
    """

    def __init__(
        self, name: str, capacity: int, clock: VirtualClock, machine: Machine, core: Callable[[], int | None]
    ) -> None:
        super().__init__(name, capacity)
        self._clock = clock
        self._core = core
        self._cold_seconds = machine.cold_seconds
        self._warm_tuples = machine.warm_tuples
        self._moved_seconds = machine.moved_seconds
        self._made: deque[tuple[int, int, int | None]] = deque()
        """Of each chunk: the number of the first tuple after it, how many had been worked on before it, and where."""
        self._gone = 0

    def offer(self, values: list[Any], born: float, notifies: bool = True) -> list[Any]:
        before = self.total
        rest = super().offer(values, born, notifies)
        if self.total > before:
            self._made.append((self.total, self._clock.worked_on, self._core()))
        return rest

    def take(self, budget: int) -> tuple[list[Any], float]:
        values, born = super().take(budget)
        if values:
            self._charge(len(values))
        return values, born

    def _charge(self, count: int) -> None:
        made = self._made
        _, worked_on, maker = made[0]
        since = self._clock.worked_on - worked_on
        self._gone += count
        while made and made[0][0] <= self._gone:
            made.popleft()
        seconds = self._cold_seconds * since / (since + self._warm_tuples) if since else 0.0
        if maker != self._core():
            seconds += self._moved_seconds
        if seconds:
            self._clock.owe(count * seconds)
