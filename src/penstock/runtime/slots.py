"""What virtual workers take turns in having: cores, and the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.runtime.agenda import Agenda, Happens
from penstock.runtime.worker import Point, Worker


class Slots:
    """Cores, or the GIL, of which there is one: a worker that finds none waits, and gives way when its time is up."""

    def __init__(self, count: int, slice_seconds: float, switch_seconds: float, asking_seconds: float = 0.0) -> None:
        """`asking_seconds`: what each waiting worker, but the next, costs while one passes to the next."""
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
        """Get one, or a place among those that wait for one."""
        if not self.free:
            self.waiting.append((worker, now))
            return False
        self.free -= 1
        self._since[worker] = now
        return True

    def release(self, worker: Worker, now: float) -> tuple[Worker, float] | None:
        """Give it back; which worker has got it, and when."""
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
        """What it costs to be interrupted by those that wait, if one works for so long without giving way."""
        if not self.waiting or not self._slice_seconds:
            return 0.0
        turn_seconds = self._switch_seconds + self._asking_seconds * (len(self.waiting) - 1)
        return seconds / self._slice_seconds * turn_seconds

    def is_time_up(self, worker: Worker, now: float) -> bool:
        """Whether a worker has had its slot for long enough, if others wait."""
        return now - self._since[worker] >= self._slice_seconds


class Turns:
    """The GIL and the cores together: a worker that lacks one of them is resumed when it has got it."""

    def __init__(
        self, cores: Slots | None, gil: Slots | None, agenda: Agenda, resume: Happens, now: Callable[[], float]
    ) -> None:
        self.cores = cores
        self.gil = gil
        # The GIL first: a worker that waits for it needs no core.
        self.slots = [slots for slots in (gil, cores) if slots is not None]
        self._agenda = agenda
        self._resume = resume
        self._now = now
        self._held_up: dict[Worker, Point | None] = {}
        """Workers that wait for one, and before which point."""

    def has_all(self, worker: Worker, point: Point | None) -> bool:
        """Whether a worker has got all it needs; otherwise the one that gives way resumes it."""
        for slots in self.slots:
            if not slots.has(worker) and not slots.claim(worker, self._now()):
                self._held_up[worker] = point
                if slots is self.gil:
                    self.give_way(worker, self._now())
                return False
        return True

    def give_way(self, worker: Worker, now: float) -> None:
        """Let others have what this one has."""
        for slots in reversed(self.slots):
            self._release(slots, worker, now)

    def release_gil(self, worker: Worker, point: Point, time: float, seconds: float) -> None:
        """Let others have the GIL from some time on, for so many seconds."""

        def happens(worker: Worker, point: Point | None) -> None:
            assert self.gil is not None
            self._release(self.gil, worker, time)
            self._agenda.add(time + seconds, self._resume, worker, point)

        self._agenda.add(time, happens, worker, point)

    def _release(self, slots: Slots, worker: Worker, now: float) -> None:
        if (got := slots.release(worker, now)) is not None:
            successor, time = got
            self._agenda.add(time, self._resume, successor, self._held_up.pop(successor))
