"""The buffers that restore order where several workers share an operator: units go in as they are done, and come out by
their serial numbers (out of `Unordered`, as they came).

A unit is everything that a chunk of tuples has caused. The worker that adds one sends what is ready, unless another
worker is sending at this moment; only at a `LockedBuffer` does it wait for that one. From "Scaling Ordered Stream
Processing on Shared-Memory Multicores", figures 2 and 4.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Protocol

_EMPTY: Any = object()


class Downstream(Protocol):
    """Where units go."""

    @property
    def is_blocked(self) -> bool:
        """Whether `send` would refuse. The caller that clears it must call `send_pending` afterwards."""
        ...

    def send(self, unit: Any) -> bool:
        """Send a unit on, or the rest of it; `False` if there is no room: the same unit comes again."""
        ...


class Flag(Protocol):
    """What one worker at a time can have; the others don't wait for it."""

    def acquire(self, blocking: bool) -> bool: ...

    def release(self) -> None: ...


class ReorderBuffer(ABC):
    """Holds units back until it is their turn."""

    def __init__(self, size: int, downstream: Downstream) -> None:
        self.size = size
        self.next = 0
        """How many units have been sent on: the serial number of the next one."""
        self._downstream = downstream

    @abstractmethod
    def try_add(self, serial: int, unit: Any) -> bool:
        """Take a unit in; `False` if it is too far ahead of the next one."""

    @abstractmethod
    def send_pending(self) -> None:
        """Send on what is ready."""

    @abstractmethod
    def waiting(self) -> int:
        """How many units are here; by and large, while others add some."""

    def add(self, serial: int, unit: Any) -> bool:
        """Take a unit in, and send on what is ready."""
        added = self.try_add(serial, unit)
        self.send_pending()
        return added


class Ring(ReorderBuffer):
    """The non-blocking one: a ring of slots, and a flag that only one sender can have.

    >>> class Printed:
    ...     is_blocked = False
    ...     def send(self, unit):
    ...         print(unit)
    ...         return True
    >>> ring = Ring(4, Printed())
    >>> ring.add(1, "second")
    True
    >>> ring.add(4, "too far ahead")
    False
    >>> ring.add(0, "first")
    first
    second
    True
    """

    def __init__(self, size: int, downstream: Downstream, flag: Flag | None = None) -> None:
        super().__init__(size, downstream)
        self._slots = [_EMPTY] * size
        self._flag = flag or threading.Lock()

    def add(self, serial: int, unit: Any) -> bool:
        added = self.try_add(serial, unit)
        # Only the head can set anything going. It was added first and looked for afterwards; so if it becomes the
        # head now, the sender that makes it so will see it.
        if self.next == serial:
            self.send_pending()
        return added

    def try_add(self, serial: int, unit: Any) -> bool:
        first = self.next
        if not first <= serial < first + self.size:
            return False
        self._slots[serial % self.size] = unit
        return True

    def send_pending(self) -> None:
        slots, size, downstream = self._slots, self.size, self._downstream
        # A worker that fails to get the flag has added its unit before; its holder looks again after letting it go.
        while (
            slots[self.next % size] is not _EMPTY and not downstream.is_blocked and self._flag.acquire(blocking=False)
        ):
            try:
                serial = self.next
                while (
                    (unit := slots[serial % size]) is not _EMPTY and not downstream.is_blocked and downstream.send(unit)
                ):
                    slots[serial % size] = _EMPTY
                    self.next = serial = serial + 1
            finally:
                self._flag.release()

    def waiting(self) -> int:
        return sum(slot is not _EMPTY for slot in self._slots)


class LockedBuffer(ReorderBuffer):
    """The lock-based one, for comparison: a worker that adds a unit waits for the one that is sending."""

    def __init__(self, size: int, downstream: Downstream) -> None:
        super().__init__(size, downstream)
        self._units: dict[int, Any] = {}
        self._lock = threading.Lock()

    def try_add(self, serial: int, unit: Any) -> bool:
        with self._lock:
            if not self.next <= serial < self.next + self.size:
                return False
            self._units[serial] = unit
            return True

    def send_pending(self) -> None:
        with self._lock:
            while self.next in self._units and not self._downstream.is_blocked:
                if not self._downstream.send(self._units[self.next]):
                    break
                del self._units[self.next]
                self.next += 1

    def waiting(self) -> int:
        return len(self._units)


class Unordered(ReorderBuffer):
    """No order at all, where a user gives it up: units are sent on as they come."""

    def __init__(self, size: int, downstream: Downstream) -> None:
        super().__init__(size, downstream)
        self._units: deque[Any] = deque()
        self._flag = threading.Lock()

    def try_add(self, serial: int, unit: Any) -> bool:
        self._units.append(unit)
        return True

    def send_pending(self) -> None:
        while self._units and not self._downstream.is_blocked and self._flag.acquire(blocking=False):
            try:
                while self._units and self._downstream.send(self._units[0]):
                    self._units.popleft()
                    self.next += 1
            finally:
                self._flag.release()

    def waiting(self) -> int:
        return len(self._units)
