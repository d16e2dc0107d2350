"""Cells that want to be notified later; knows no clock, but is asked by drivers what is due."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.cells import Cell


class Timers:
    """A heap of (time, cell)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Cell]] = []
        self._numbers = itertools.count()
        self.due = math.inf
        """When the next one is due; read without the lock, so it may be a moment old."""

    def call_at(self, time: float, cell: Cell) -> None:
        with self._lock:
            heapq.heappush(self._heap, (time, next(self._numbers), cell))
            self.due = self._heap[0][0]

    def fire(self, now: float) -> bool:
        """Notify everything that is due; whether there was any."""
        due = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                due.append(heapq.heappop(self._heap)[2])
            self.due = self._heap[0][0] if self._heap else math.inf
        for cell in due:
            cell.is_waiting = False
            cell.notify()
        return bool(due)
