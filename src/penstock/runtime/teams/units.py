"""Numbered chunks: the only code that numbers what a team takes from its port, and bounds how much of it is inside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.observe.report import Held
from penstock.ordering.reorder import ReorderBuffer
from penstock.runtime.failures import Failure
from penstock.runtime.ports import Helped, Port


@dataclass(slots=True, eq=False)
class Unit:
    """A chunk of tuples with its serial number, and what has come of it."""

    serial: int
    values: list[Any]
    born: float
    replica: int
    """Which has taken it, and when."""
    since: float
    given: list[tuple[int, list[Any], float]] = field(default_factory=list)
    """What is to be sent, by output port; what has been sent is taken off the front."""
    error: Failure | None = None
    """It ends here: what was given before is let out, and nothing after it."""
    is_done: bool = False
    """The work was done before it came here."""
    is_last: bool = False
    """The operator has ended with it, whatever else there is."""

    def give(self, port: int, values: list[Any], born: float) -> None:
        if values:
            self.given.append((port, values, born))

    def go_to(self, replica: int) -> None:
        """This one has it in its hands."""
        self.replica = replica

    def fail(self, error: Failure) -> None:
        """Nothing more comes of it."""
        self.error = error

    def be_the_last(self) -> None:
        """Nothing comes of what was taken after it."""
        self.is_last = True


class Intake:
    """Cuts what waits in a port into units, no further ahead than the reorder buffer reaches.

    A chunk and its serial number are taken in one critical section, so adding a unit to the buffer can't fail.
    """

    def __init__(
        self,
        port: Port,
        buffer: ReorderBuffer,
        now: Callable[[], float],
        is_closed: Callable[[], bool],
        make_unit: Callable[[int, list[Any], float, int, float], Unit] = Unit,
    ) -> None:
        self.port = port
        self.buffer = buffer
        self.make_unit = make_unit
        self._now = now
        self._is_closed = is_closed
        """Whether no more is taken at the moment, for another reason than the buffer's."""
        self._lock = threading.Lock()
        self._taken = 0
        self._tuples_taken = 0
        self._tuples_sent = 0
        """Written by the one that sends."""
        self._was_refused = False
        self._in_flight: dict[int, Unit] = {}

    def cut(self, most: int, replica: int) -> Unit | None:
        """The next chunk with its serial number; nothing while too many units wait for an earlier one."""
        with self._lock:
            if not self._may_take():
                return None
            values, born = self.port.take(most)
            if not values:
                return None
            unit = self.make_unit(self._taken, values, born, replica, self._now())
            if isinstance(values, Helped):
                unit.given, unit.error, unit.is_done = values.done.given, values.done.error, True
            self._in_flight[unit.serial] = unit
            self._taken += 1
            self._tuples_taken += len(values)
        return unit

    def last(self) -> Unit:
        """A unit behind all others, for what comes out because the input has ended."""
        with self._lock:
            now = self._now()
            unit = self.make_unit(self._taken, [], now, 0, now)
            self._taken += 1
        return unit

    def finished(self, unit: Unit) -> bool:
        """Everything has come of a unit: send it on, and what was waiting for it; whether more may be taken again."""
        self._in_flight.pop(unit.serial, None)
        self.buffer.add(unit.serial, unit)
        return self.is_open_again()

    def is_open_again(self) -> bool:
        """Whether a member was refused a unit, and would not be now."""
        if not self._was_refused or not self.is_admitted():
            return False
        self._was_refused = False
        return True

    def sent(self, unit: Unit) -> None:
        """Called by the one that sends: it is out."""
        self._tuples_sent += len(unit.values)

    def is_admitted(self) -> bool:
        return self._taken < self.buffer.next + self.buffer.size and not self._is_closed()

    def _may_take(self) -> bool:
        if self.is_admitted():
            return True
        self._was_refused = True
        return self.is_admitted()  # again, for a unit that was sent meanwhile, by a worker that did not see it

    @property
    def has_work(self) -> bool:
        return bool(len(self.port)) and self.is_admitted()

    @property
    def is_through(self) -> bool:
        """Whether the input has ended, and everything is out."""
        closed = self.port.closed
        with self._lock:
            return closed and not len(self.port) and self.buffer.next == self._taken

    @property
    def is_behind(self) -> bool:
        """Whether units were taken that are not out."""
        return self.buffer.next < self._taken

    @property
    def inside(self) -> int:
        """Tuples that were taken and are not out: waiting for a member, in its hands, or for an earlier unit."""
        return max(0, self._tuples_taken - self._tuples_sent)

    @property
    def unfinished(self) -> int:
        """Those of them that are not worked on to the end."""
        return _tuples(list(self._in_flight.values()))

    def held(self) -> Held | None:
        """Which unit the others are waiting for."""
        waiting = self.buffer.waiting()
        unit = self._in_flight.get(self.buffer.next)
        if not waiting or unit is None:
            return None
        return Held(unit.serial, self._now() - unit.since, waiting, unit.replica)


def _tuples(units: Iterable[Unit]) -> int:
    return sum(len(unit.values) for unit in units)
