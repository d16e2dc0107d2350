"""What happens next to virtual workers, and what wakes the driver that plays them."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from typing import TypeAlias

from penstock.runtime.worker import Point, Worker

Happens: TypeAlias = Callable[[Worker, Point | None], None]
Event: TypeAlias = tuple[float, int, Happens, Worker, Point | None]


class Agenda:
    """Steps of workers in the order of time, and of those at the same time in the order in which they were added."""

    def __init__(self, until: float | None) -> None:
        self.events: list[Event] = []
        """A heap; read by those that must be fast."""
        self.until = math.inf if until is None else until
        """When the run is over."""
        self.look_at = math.inf
        """When the driver is to look at its workers."""
        self.horizon = self.until
        """What happens before that is no more than the workers' own business."""
        self._number = 0

    def add(self, time: float, happens: Happens, worker: Worker, point: Point | None = None) -> None:
        """A worker comes to a point, or (`None`) has come past the last one."""
        self._number += 1
        heapq.heappush(self.events, (time, self._number, happens, worker, point))

    def take(self) -> Event:
        return heapq.heappop(self.events)

    @property
    def next_time(self) -> float:
        return self.events[0][0] if self.events else math.inf

    def look_again_at(self, time: float) -> None:
        """Let the driver look at its workers then."""
        self.look_at = time
        self.horizon = min(time, self.until)


class Bell:
    """Rung by other threads: something is ready, or another number of workers is wanted."""

    def __init__(self) -> None:
        self.has_rung = False
        self._event = threading.Event()

    def ring(self) -> None:
        self.has_rung = True
        self._event.set()

    def wait(self) -> None:
        self._event.wait()

    def reset(self) -> None:
        """Before what it was rung for is looked at."""
        self._event.clear()
        self.has_rung = False
