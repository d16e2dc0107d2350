"""Calls that are due later; a parked worker keeps the time."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable


class Timers:
    """A heap of times and what to call then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.due = math.inf
        """When the next one is due; read without the lock, so it may be a moment old."""

    def call_at(self, time: float, call: Callable[[], None]) -> None:
        with self._lock:
            heapq.heappush(self._heap, (time, next(self._numbers), call))
            self.due = self._heap[0][0]

    def fire(self, now: float) -> bool:
        """Call everything that is due; whether there was any."""
        due = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                due.append(heapq.heappop(self._heap)[2])
            self.due = self._heap[0][0] if self._heap else math.inf
        for call in due:
            call()
        return bool(due)
