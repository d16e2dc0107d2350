"""How long the steps of virtual workers take; or in which order they come, where that is drawn from a seed."""

from __future__ import annotations

import random

from penstock.runtime.worker import Point, Worker


class Timing:
    """What takes how long, besides the work itself: here, nothing takes any time."""

    wakes_everyone = False
    """Whether all sleeping workers look when something has become ready, instead of one when it is worth it."""

    def crowd(self, others: int, cores: int) -> None:
        """The next step is taken while so many others of so many cores work too."""

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        """When a worker that is here now has come past a point."""
        return now

    def awake_at(self, now: float) -> float:
        """When a worker that is woken now is awake."""
        return now

    def waking_seconds(self, count: int) -> float:
        """What it costs the one that wakes so many."""
        return 0.0

    def released(self) -> float:
        """How many of the seconds that the last step has spent were outside the GIL; asked once after each step."""
        return 0.0


class Shuffle(Timing):
    """Every worker is equally likely to be the next, whatever it does: the interleaving is drawn from a seed.

    The time between two steps of a worker is exponentially distributed, so it does not matter how long it has waited.
    """

    wakes_everyone = True

    def __init__(self, seed: int, mean_seconds: float = 1e-9) -> None:
        self._random = random.Random(seed)
        self._rate = 1 / mean_seconds

    def done_at(self, worker: Worker, point: Point, now: float) -> float:
        return now + self._random.expovariate(self._rate)

    def awake_at(self, now: float) -> float:
        return now + self._random.expovariate(self._rate)
