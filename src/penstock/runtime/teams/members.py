"""Which members a team has: one list, changed under one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from penstock.runtime.teams.member import Member


class Role(Enum):
    """What a member is there for."""

    WORKING = auto()
    """It takes units by itself."""
    RETIRED = auto()
    """It takes no more, but is the first to come back; what it has counted stays counted."""
    GUEST = auto()
    """A place for workers of other operators that help."""


@dataclass(frozen=True)
class _Place:
    member: Member
    role: Role


class Roster:
    """The members of a team, each once at any moment: others look at them while they change their roles."""

    def __init__(self, make: Callable[[], Member], wanted: int = 1, guests: int = 0) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._places: tuple[_Place, ...] = ()
        self.working: tuple[Member, ...] = ()
        """By number: derived from the list, for code that looks at every chunk."""
        self.wanted = wanted
        self._most_guests = guests

    @property
    def all(self) -> tuple[Member, ...]:
        return tuple(place.member for place in self._places)

    def of(self, role: Role) -> tuple[Member, ...]:
        return tuple(place.member for place in self._places if place.role is role)

    @property
    def busy(self) -> int:
        """How many of them a worker is in."""
        return sum(place.member.turn.is_taken for place in self._places if place.role is not Role.RETIRED)

    def allow_guests(self, count: int) -> None:
        """So many places for helpers, from now on."""
        self._most_guests = count

    def resize(self, count: int) -> None:
        """More of them at once; fewer as those that leave are through with what they have."""
        with self._lock:
            self.wanted = count
            working = [*self.working[:count]]
            places = [
                replace(place, role=Role.RETIRED) if place.member in self.working[count:] else place
                for place in self._places
            ]
            while len(working) < count:
                at = next((at for at, place in enumerate(places) if place.role is Role.RETIRED), None)
                if at is None:
                    places.append(_Place(self._make(), Role.WORKING))
                    at = len(places) - 1
                else:
                    places[at] = replace(places[at], role=Role.WORKING)
                working.append(places[at].member)
            self._change(places, working)

    def _change(self, places: list[_Place], working: list[Member]) -> None:
        """The caller must hold the lock."""
        for member in self.working[len(working) :]:
            member.become(None)
        for number, member in enumerate(working):
            member.become(number)
        self._places, self.working = tuple(places), tuple(working)

    def claim_for_helper(self) -> Member | None:
        """A member that no worker is in, claimed; a new guest where that is allowed and needed."""
        with self._lock:
            guests = self.of(Role.GUEST)
            if len(guests) < self._most_guests and not any(guest.turn.is_idle for guest in guests):
                guest = self._make()
                self._places = (*self._places, _Place(guest, Role.GUEST))
                guests = (*guests, guest)
            candidates = (*guests, *self.working)
        return next((member for member in candidates if member.turn.claim_idle()), None)

    def wake_one(self) -> None:
        """Let an idle member look for work, if there is any for it."""
        for member in self.working:
            if member.turn.is_idle and member.has_more():
                member.notify()
                return

    @property
    def most_experienced(self) -> Member | None:
        """The one whose budget knows most."""
        return max(self.working, key=lambda one: one.budget.total_seconds, default=None)
