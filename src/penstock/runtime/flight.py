"""How much may be under way, in seconds of work: the only code that bounds queues and reading by time.

A checkpoint waits until everything that was read is out. So that it need not wait for long, each queue holds no more
than what is worked off in its share of some seconds, by what tuples have cost so far, there and in all that follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell
    from penstock.runtime.ports import Neighbour, Port
    from penstock.runtime.running.registry import Registry

_LOOK_SECONDS = 0.005
_LEAST_SECONDS = 0.02
"""What a queue may hold however many there are: several chunks, so that no worker starves."""
_FIRST_TUPLES = 4
"""While it is not known what a tuple costs."""
_LEAST_COST = 1e-9


class Flight:
    """Lets the queues of a run hold work for so many seconds, all together."""

    def __init__(
        self, registry: Registry, now: Callable[[], float], seconds: float, threads: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._now = now
        self._seconds = seconds
        self._threads = threads
        self._next_look = -math.inf
        for cell in registry.cells:
            for port in cell.inputs:
                port.limit(_FIRST_TUPLES)

    def look(self) -> None:
        """Called by sources that have read something, and writers that wait: bring queues to what tuples cost now."""
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        cells, threads = self._registry.cells, self._threads()
        share = max(_LEAST_SECONDS, self._seconds / max(1, sum(len(cell.inputs) for cell in cells)))
        seconds_of: dict[Neighbour, float] = {}
        for cell in reversed(cells):  # each after those that read from it
            own = cell.figures.pace(threads)
            if own is None:
                continue
            seconds_of[cell] = seconds = own + _seconds_behind(cell, seconds_of)
            # Two for each of its workers, unless they wait for others anyway.
            least = 2 * min(cell.figures.most_workers, threads) * own / seconds if seconds else 1
            for port in cell.inputs:
                port.limit(max(1, round(least), int(share / max(seconds, _LEAST_COST))))

    def most_of(self, source: Cell) -> float:
        """How many tuples a source may send at once; without end, where time does not bound its readers' queues."""
        ports = [port for targets in source.outputs for port in targets]
        return min((port.capacity for port in ports if port.is_limited), default=math.inf)


def _seconds_behind(cell: Cell, seconds_of: dict[Neighbour, float]) -> float:
    """What comes of one tuple costs so much in those that read it, as far as is known."""
    received, _ = cell.figures.passed()
    ports: list[Port] = [port for targets in cell.outputs for port in targets]
    return sum(port.total / received * seconds_of.get(port.reader, 0.0) for port in ports) if received else 0.0
