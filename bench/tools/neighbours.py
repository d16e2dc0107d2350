"""What others have taken of this machine while something ran: cores that a hypervisor gave to somebody else.

On a shared machine two threads can't be twice as fast as one while a third of the second core is away. Rounds in which
little was taken show what a program does; the others show what its neighbours did.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.observe.machine import ticks

T = TypeVar("T")

_QUIET_SHARE = 0.03
_STEADY_DRIFT = 0.07
_FEWEST = 7


@dataclass(frozen=True)
class Rounds(Generic[T]):
    """What came of the rounds that count, and how many were played and quiet."""

    results: list[T]
    played: int
    quiet: int


def quiet_rounds(play: Callable[[int], T], wanted: int, drift: Callable[[T], float] = lambda _: 0.0) -> Rounds[T]:
    """Play until so many rounds were quiet, or twice as many were played; where hardly any was, the quietest count.

    `drift` says by how much the machine's own speed has changed from the beginning of a round to its end: nothing is
    stolen by who works on the other thread of a core, but it is slower meanwhile.
    """
    neighbours = Neighbours()
    found: list[tuple[float, T]] = []
    while sum(unrest <= 1 for unrest, _ in found) < wanted and len(found) < 2 * wanted:
        neighbours.share()
        result = play(len(found))
        found.append((max(neighbours.share() / _QUIET_SHARE, abs(drift(result)) / _STEADY_DRIFT), result))
    found.sort(key=lambda one: one[0])
    quiet = sum(unrest <= 1 for unrest, _ in found)
    return Rounds([result for _, result in found[: max(quiet, min(_FEWEST, wanted), wanted // 2)]], len(found), quiet)


class Contest:
    """Contestants that run in rounds, and what each of them took in each round that counts."""

    def __init__(self, contestants: Mapping[str, Callable[[], float]], rounds: int) -> None:
        def play(number: int) -> dict[str, float]:
            # To and fro, so that a machine that slows down or speeds up favours nobody.
            names = list(contestants) if number % 2 else reversed(list(contestants))
            return {name: contestants[name]() for name in names}

        found = quiet_rounds(play, rounds)
        self.played, self.quiet = found.played, found.quiet
        self.seconds = {name: [taken[name] for taken in found.results] for name in contestants}

    def ratio(self, slow: str, fast: str) -> float:
        """How many times as fast the second one is: the median over the rounds."""
        return statistics.median(self.ratios(slow, fast))

    def ratios(self, slow: str, fast: str) -> list[float]:
        return [one / other for one, other in zip(self.seconds[slow], self.seconds[fast], strict=True)]


class Neighbours:
    """The share of the time that this machine has asked for and others got, from one look to the next."""

    def __init__(self) -> None:
        self._before = ticks()

    def share(self) -> float:
        """Nothing is ever taken where nobody tells."""
        before, self._before = self._before, ticks()
        stolen = self._before.stolen - before.stolen
        asked = self._before.used - before.used + stolen
        return stolen / asked if asked else 0.0
