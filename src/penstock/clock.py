"""The only module that reads the real clock; everything else is given a `Clock`."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Protocol

_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)


class Clock(Protocol):
    """Where the time comes from: the machine, a simulation or a test."""

    def now(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...

    def thread_cpu(self) -> float:
        """Seconds that the calling thread has used a core."""
        ...

    def process_cpu(self) -> float:
        """Seconds that all threads of this process have used cores."""
        ...


class SystemClock:
    """The machine's monotonic clock.

    >>> clock = SystemClock()
    >>> clock.now() <= clock.now()
    True
    """

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def thread_cpu(self) -> float:
        """To a tick of the kernel on Linux: asking for an exact answer can stall while another thread wants the GIL."""
        if _THREAD is None:
            return time.thread_time()
        used = resource.getrusage(_THREAD)
        return used.ru_utime + used.ru_stime

    def process_cpu(self) -> float:
        return time.process_time()


class WallClock(SystemClock):
    """Seconds since 1970: what is kept by one process and read by another, perhaps after a restart, is told by it."""

    def now(self) -> float:
        return time.time()


def wall_time(clock: Clock) -> Callable[[], float]:
    """What tells the time of things that are kept: the machine's clock on the wall, or a simulation's own time."""
    return WallClock().now if isinstance(clock, SystemClock) else clock.now


class FakeClock:
    """A clock that moves only when it is told to, or slept on; a driver of virtual workers sets it for each of them.

    >>> clock = FakeClock()
    >>> clock.sleep(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def thread_cpu(self) -> float:
        return self._now

    def process_cpu(self) -> float:
        return self._now

    def move_to(self, time: float) -> None:
        self._now = time
