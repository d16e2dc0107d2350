"""What virtual workers take turns in having: cores, and the GIL."""

from __future__ import annotations

from collections import deque

from penstock.runtime.worker import Worker


class Slots:
    """Cores, or the GIL, of which there is one: who finds none waits, and who has one gives way when its time is up."""

    def __init__(self, count: int, slice_seconds: float, switch_seconds: float, asking_seconds: float = 0.0) -> None:
        """`asking_seconds`: what each of those who wait, but the next, costs while one passes to the next."""
        self.count = count
        self.waited_seconds = 0.0
        self._slice_seconds = slice_seconds
        self._switch_seconds = switch_seconds
        self._asking_seconds = asking_seconds
        self.free = count
        self.waiting: deque[tuple[Worker, float]] = deque()
        self._since: dict[Worker, float] = {}

    def has(self, worker: Worker) -> bool:
        return worker in self._since

    def claim(self, worker: Worker, now: float) -> bool:
        """Get one, or a place among those who wait for one."""
        if not self.free:
            self.waiting.append((worker, now))
            return False
        self.free -= 1
        self._since[worker] = now
        return True

    def release(self, worker: Worker, now: float) -> tuple[Worker, float] | None:
        """Give it back; who has got it, and when."""
        if self._since.pop(worker, None) is None:
            return None
        if not self.waiting:
            self.free += 1
            return None
        successor, since = self.waiting.popleft()
        got = now + self._switch_seconds + self._asking_seconds * len(self.waiting)
        self._since[successor] = got
        self.waited_seconds += got - since
        return successor, got

    @property
    def others(self) -> int:
        """How many are taken, seen from one that is."""
        return self.count - self.free - 1

    def interruption_seconds(self, seconds: float) -> float:
        """What it costs to be interrupted by those who wait, if one works for so long without giving way."""
        if not self.waiting or not self._slice_seconds:
            return 0.0
        turn_seconds = self._switch_seconds + self._asking_seconds * (len(self.waiting) - 1)
        return seconds / self._slice_seconds * turn_seconds

    def is_time_up(self, worker: Worker, now: float) -> bool:
        """Whether a worker has had its slot for long enough, if others wait."""
        return now - self._since[worker] >= self._slice_seconds
