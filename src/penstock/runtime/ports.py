"""The only place where tuples wait between operators: bounded, counted in tuples, one short lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.flow.nodes import Node
from penstock.runtime.cells.turn import Turn


class Passing(Protocol):
    """How many tuples go through a cell."""

    def passed(self) -> tuple[int, int]: ...


class Neighbour(Protocol):
    """The cell on one side of a port, as its port and the cell on the other side know it."""

    nodes: Sequence[Node]
    depth: float
    turn: Turn
    is_complete: bool

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Sequence[Port]: ...

    @property
    def outputs(self) -> Sequence[Sequence[Port]]: ...

    @property
    def is_source(self) -> bool: ...

    @property
    def figures(self) -> Passing: ...

    def notify(self) -> None:
        """Something has changed: make sure that a worker looks at this cell after now."""
        ...

    def finish(self) -> None:
        """Nothing more is wanted of it."""
        ...

    def helped(self, values: list[Any], born: float) -> Helped | None:
        """Process tuples before they are in its queue, if that can be done and a worker is busy in it already."""
        ...


class Helped(list[Any]):
    """A chunk that was processed by the worker that made it: it keeps its place in the queue, and is taken whole."""

    def __init__(self, values: list[Any], done: Any) -> None:
        super().__init__(values)
        self.done = done


class Taken(float):
    """When a tuple entered the flow, with the time at which it was taken from its source's queue."""

    __slots__ = ("taken",)
    taken: float


class _Entries:
    """When the tuples of a queue were put in."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._noted: deque[tuple[int, float]] = deque()
        """How many tuples had been written by then, and when."""

    def note(self, total: int, here: int) -> None:
        """By now so many were ever written, and so many of them are here."""
        self.oldest(total, here)
        self._noted.append((total, self._now()))

    def oldest(self, total: int, here: int) -> float | None:
        """When the first of those that are here was put in."""
        noted, gone = self._noted, total - here
        while noted and noted[0][0] <= gone:
            noted.popleft()
        return noted[0][1] if noted else None


class Port:
    """The queue of one input.

    Chunks go in with the time at which their oldest tuple entered the flow. A writer that finds the port full
    registers, looks again, and is notified when half of it is free; so no wake-up is lost.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._most = capacity
        self._least = 1
        """Between these, `limit` may choose: what it was made for, and what it had to grow to."""
        self.reader: Neighbour
        self.writer: Neighbour
        self.closed = False
        """Nothing more will be written."""
        self._lock = threading.Lock()
        self._chunks: deque[tuple[list[Any], float]] = deque()
        self._taken = 0
        """How many tuples of the first chunk are gone."""
        self._count = 0
        self.front_time: float | None = None
        """When the oldest tuple here entered the flow."""
        self.total = 0
        """Tuples that were ever written here."""
        self.total_given = self.total_taken = self.total_dropped = self.total_restored = 0
        """What its writer had for it, what its reader got, what was dropped, what an earlier life left: at rest they
        must add up. The first is counted by the writer, the last before any worker works."""
        self.full_since: float | None = None
        """Since when its writer waits for room, and how long it has waited before."""
        self.full_seconds = 0.0
        self._times_taking: Callable[[], float] | None = None
        self._discards = False
        self._waiting: list[Neighbour] = []
        self._entries: _Entries | None = None
        """Where that is asked for: when tuples were put in."""

    # Before anything is in it

    def read_by(self, reader: Neighbour) -> None:
        self.reader = reader

    def written_by(self, writer: Neighbour) -> None:
        self.writer = writer

    def note_taking(self, now: Callable[[], float]) -> None:
        """Note when tuples are taken, by this clock: for a queue in which a source writes."""
        self._times_taking = now

    def count_earlier(self, given: int, taken: int) -> None:
        """As if it had been there when so many tuples went from its writer to its reader."""
        self.total_given, self.total_taken = given, taken

    def restore(self, values: list[Any], now: float) -> None:
        """Let tuples that an earlier life has left be the first."""
        self.grow(max(self.capacity, len(values)))
        if values:
            self.total_restored += len(values)
            self.offer(values, now)

    # In a run

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self.capacity and not self._discards

    def offer(self, values: list[Any], born: float, notifies: bool = True) -> list[Any]:
        """Take in as many as fit; returns the rest. The reader is notified, unless the caller holds it."""
        with self._lock:
            if self._discards:
                self.total_dropped += len(values)
                return []
            room = self.capacity - self._count
            if room >= len(values) or (room > 0 and isinstance(values, Helped)):
                taken, rest = values, []
            elif room > 0:
                taken, rest = values[:room], values[room:]
            else:
                return values
            if not self._count:
                self.front_time = born
            self._chunks.append((taken, born))
            self._count += len(taken)
            self.total += len(taken)
            if self._entries is not None:
                self._entries.note(self.total, self._count)
        if notifies:
            self.reader.notify()
        return rest

    def take(self, budget: int) -> tuple[list[Any], float]:
        """Up to `budget` tuples, with the time at which the oldest entered the flow."""
        with self._lock:
            chunks = self._chunks
            if not chunks:
                return [], 0.0
            values, born = chunks[0]
            if isinstance(values, Helped):
                chunks.popleft()
            elif self._taken or len(values) > budget:
                first, self._taken = self._taken, self._taken + budget
                if self._taken >= len(values):
                    chunks.popleft()
                    self._taken = 0
                values = values[first : first + budget]
            else:
                chunks.popleft()
                if chunks and len(values) < budget:
                    values = list(values)
                    while chunks and len(values) + len(chunks[0][0]) <= budget:
                        if isinstance(chunks[0][0], Helped):
                            break
                        values += chunks.popleft()[0]
            self._count -= len(values)
            self.total_taken += len(values)
            self.front_time = chunks[0][1] if chunks else None
            woken = self._woken() if self._waiting else ()
        for writer in woken:
            writer.notify()
        if self._times_taking is not None:
            born = Taken(born)
            born.taken = self._times_taking()
        return values, born

    def enqueued_time(self, now: Callable[[], float]) -> float | None:
        """When the front tuple was put in, as far as that was noted: from the first question on."""
        with self._lock:
            if self._entries is None:
                self._entries = _Entries(now)
                if self._count:
                    self._entries.note(self.total, self._count)
            return self._entries.oldest(self.total, self._count)

    def note_full(self, is_full: bool, now: float) -> None:
        """Called by its writer: it waits for room here, or does so no longer."""
        since = self.full_since  # read once: of a team, two workers may look at the same time
        if is_full and since is None:
            self.full_since = now
        elif not is_full and since is not None:
            self.full_seconds += now - since
            self.full_since = None

    def waiting(self) -> list[Any]:
        """All tuples that are here, which stay."""
        with self._lock:
            return [value for values, _ in self._chunks for value in values][self._taken :]

    def await_room(self, writer: Neighbour) -> bool:
        """Register a writer that is to be notified; `False` if there is room by now."""
        with self._lock:
            if not self.is_full:
                return False
            if writer not in self._waiting:
                self._waiting.append(writer)
            return True

    def close(self) -> None:
        """The writer has completed."""
        self.closed = True
        self.reader.notify()

    def discard(self) -> None:
        """The reader has completed: what is here and what still comes is dropped."""
        with self._lock:
            self._discards = True
            self.total_dropped += self._held()
            self._chunks.clear()
            self._count = self._taken = 0
            woken, self._waiting = self._waiting, []
        for writer in woken:
            writer.notify()

    @property
    def is_limited(self) -> bool:
        """Whether it holds less than it was made for."""
        return self.capacity < self._most

    def limit(self, capacity: int) -> None:
        """Hold no more than so many, or what it had to grow to."""
        self._resize(max(self._least, min(self._most, capacity)))

    def drop(self, values: list[Any]) -> None:
        """The writer had these for a reader that has completed."""
        with self._lock:
            self.total_dropped += len(values)

    def held(self) -> int:
        """How many tuples are really here; `len` is what was counted as they came and went."""
        with self._lock:
            return self._held()

    def _held(self) -> int:
        return sum(len(values) for values, _ in self._chunks) - self._taken

    def grow(self, capacity: int) -> None:
        """More room, for flows that fork and rejoin."""
        if capacity > self.capacity:
            self._least = capacity
        self._resize(capacity)

    def _resize(self, capacity: int) -> None:
        with self._lock:
            self.capacity = capacity
            woken = self._woken()
        for writer in woken:
            writer.notify()

    def _woken(self) -> list[Neighbour]:
        if not self._waiting or self._count > self.capacity // 2:
            return []
        woken, self._waiting = self._waiting, []
        return woken
