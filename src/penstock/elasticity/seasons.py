"""What came, on a grid of true time, and what came a season ago: what batches tell is told rarely, and not evenly."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice

_KEPT = 600
_STEPS_SECONDS = (0.5, 4.0, 32.0)
"""Minutes are seen on the finest grid, hours on the coarsest."""
_LOOKS = 20
"""It is looked for a season whenever there is so much more to be seen, as a share of what there is."""
_LEAST_VALUES = 12
_UNLIKE = 0.3
_ALIKE = 0.6
_AS_GOOD = 0.95
"""The season is the shortest of those that fit about as well as the best: a multiple of it fits, too."""


class Seasons:
    """The rate at which tuples come, and what it was one season ago.

    >>> seasons = Seasons()
    >>> for second in range(1, 200):  # a hundred for five seconds in every thirty
    ...     seasons.add(float(second), 1.0, 100.0 if second % 30 > 24 else 10.0)
    >>> seasons.season_seconds
    30.0
    >>> seasons.peak(3.0), seasons.peak(20.0)  # it began at 174, so it is due at 204
    (10.0, 100.0)
    """

    def __init__(self) -> None:
        self._grids = [_Grid(step) for step in _STEPS_SECONDS]

    def add(self, time: float, seconds: float, rate: float) -> None:
        """So many tuples a second have come in the seconds before that time."""
        for grid in self._grids:
            grid.add(time, seconds, rate)

    @property
    def season_seconds(self) -> float | None:
        """After how long what comes is the same again, if that was seen twice."""
        return next((grid.season * grid.step_seconds for grid in self._grids if grid.season is not None), None)

    def peak(self, within_seconds: float, smooth_seconds: float = 1.0) -> float:
        """The most that a season lets one expect in the next seconds; 0 where there is none."""
        grid = next((grid for grid in self._grids if grid.season is not None), None)
        return 0.0 if grid is None else grid.peak(within_seconds, smooth_seconds)


class _Grid:
    def __init__(self, step_seconds: float) -> None:
        self.step_seconds = step_seconds
        self.season: int | None = None
        self._values: deque[float] = deque(maxlen=_KEPT)
        self._time = 0.0
        self._tuples = 0.0
        """Since the last full step."""
        self._seen = 0.0
        """How much of the next step is known."""
        self._until_next_look = _LEAST_VALUES

    def add(self, time: float, seconds: float, rate: float) -> None:
        left = min(seconds, time - self._time)
        self._time = time
        while left > 0:
            part = min(left, self.step_seconds - self._seen)
            self._tuples += rate * part
            self._seen += part
            left -= part
            if self._seen >= self.step_seconds - 1e-9:
                self._values.append(self._tuples / self.step_seconds)
                self._tuples = self._seen = 0.0
                self._until_next_look -= 1
        if self._until_next_look <= 0:
            self.season = season_of(list(self._values))
            self._until_next_look = max(1, len(self._values) // _LOOKS)

    def peak(self, within_seconds: float, smooth_seconds: float) -> float:
        assert self.season is not None
        width = max(1, round(smooth_seconds / self.step_seconds))
        first = len(self._values) - self.season - 1
        last = min(len(self._values), first + 2 + math.ceil(within_seconds / self.step_seconds))
        found = list(islice(self._values, max(0, first), max(0, last)))
        return max((sum(found[at : at + width]) / width for at in range(len(found) - width + 1)), default=0.0)


def season_of(values: Sequence[float]) -> int | None:
    """After how many values a series comes back, having been quite different in between; seen at least twice.

    >>> season_of([1, 1, 1, 9, 9, 1] * 3)
    6
    >>> season_of([3.0] * 20) is None, season_of(range(20)) is None
    (True, True)
    """
    best, likenesses, was_unlike = 0.0, {}, False
    for lag in range(2, len(values) // 2 + 1):
        likeness = _likeness(values[:-lag], values[lag:])
        was_unlike = was_unlike or likeness < _UNLIKE
        if was_unlike and likeness > _ALIKE:
            likenesses[lag] = likeness
            best = max(best, likeness)
    good = [lag for lag, likeness in likenesses.items() if likeness >= _AS_GOOD * best]
    if not good:
        return None
    # Neighbours of the shortest fit nearly as well: the best of those that stand together.
    together = [lag for at, lag in enumerate(good) if lag == good[0] + at]
    return max(together, key=lambda lag: likenesses[lag])


def _likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """The correlation of two series of the same length; 0 where one of them does not change."""
    count = len(one)
    mean_one, mean_other = sum(one) / count, sum(other) / count
    products = sum(a * b for a, b in zip(one, other, strict=True)) / count - mean_one * mean_other
    power_one = sum(a * a for a in one) / count - mean_one * mean_one
    power_other = sum(b * b for b in other) / count - mean_other * mean_other
    least = 1e-9 * max(1.0, mean_one * mean_one)
    return products / math.sqrt(power_one * power_other) if power_one > least and power_other > least else 0.0
