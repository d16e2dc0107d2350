"""What the next value of a series will be: several guesses, and the one that was least wrong so far."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median

_KEPT = 600
_TREND_VALUES = 5
_NOISE_VALUES = 40
_LEVEL_VALUES = 10
_JUMP = 5.0
"""So many times as far as values usually are apart is no noise."""
_FADING = 0.9
_CLEARLY = 0.7
"""Of the last value's error a better guess may have at most so much."""


class Forecast:
    """Last value, level, linear trend and season; whichever has had the smallest error lately.

    The level is the mean of the values since the last jump, so it is quick where values are, and calm where they are
    only noisy.

    >>> rising = Forecast()
    >>> for value in range(0, 100, 10):
    ...     rising.add(value)
    >>> rising.next(), rising.best
    (100.0, 'trend')
    """

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_KEPT)
        self._errors: dict[str, float] = {}
        self._guesses: dict[str, float] = {}
        self._since_jump: deque[float] = deque(maxlen=_LEVEL_VALUES)
        self._season: int | None = None
        self._until_next_look = 0

    def add(self, value: float) -> None:
        """The next value has come."""
        for name, guess in self._guesses.items():
            before = self._errors.get(name)
            error = abs(guess - value)
            self._errors[name] = error if before is None else _FADING * before + (1 - _FADING) * error
        if self._since_jump and abs(value - mean(self._since_jump)) > _JUMP * self.noise:
            self._since_jump.clear()
        self._since_jump.append(value)
        self._values.append(value)
        self._look_for_season()
        self._guesses = self._guessed()

    @property
    def best(self) -> str:
        """Which guess was least wrong; the last value or the level, as long as no other is clearly better."""
        usual = self._usual
        error = self._errors.get(usual, 0.0) * _CLEARLY
        clever = [name for name in ("trend", "season") if name in self._guesses]
        better = [name for name in clever if self._errors.get(name, error) < error]
        return min(better, key=lambda name: self._errors[name], default=usual)

    @property
    def now(self) -> float:
        """Where the series is, noise aside."""
        return self._guesses.get(self._usual, 0.0)

    @property
    def _usual(self) -> str:
        """The level, unless values wander about so that the last one is clearly better."""
        last, level = (self._errors.get(name, 0.0) for name in ("last", "level"))
        return "last" if last == level or last < _CLEARLY * level else "level"

    @property
    def noise(self) -> float:
        """How far apart two values usually are, besides going up or down; not known before there are three."""
        recent = list(self._values)[-_NOISE_VALUES:]
        steps = [after - before for before, after in pairwise(recent)]
        if len(steps) < 2:
            return 0.0
        # Steps differ by the noise of three values, one of them counted twice; two values by that of two.
        return median(abs(after - before) for before, after in pairwise(steps)) / math.sqrt(3)

    def next(self) -> float:
        """What is to be expected."""
        return max(0.0, self._guesses.get(self.best, 0.0))

    def _guessed(self) -> dict[str, float]:
        values = list(self._values)
        guesses = {"last": values[-1], "level": mean(self._since_jump)}
        if len(values) >= _TREND_VALUES:
            guesses["trend"] = values[-1] + slope(values[-_TREND_VALUES:])
        if self._season is not None and len(values) >= self._season:
            guesses["season"] = values[-self._season]
        return guesses

    def _look_for_season(self) -> None:
        """Now and then: the lag at which the series is most like itself, if it is like itself at all."""
        self._until_next_look -= 1
        if self._until_next_look > 0:
            return
        self._until_next_look = max(1, len(self._values) // 20)
        season = season_of(list(self._values))
        if season != self._season:
            self._season = season
            self._errors.pop("season", None)
            if season is not None:
                self._errors["season"] = _past_error(list(self._values), season)


def slope(values: Sequence[float]) -> float:
    """Of the straight line through equally spaced values.

    >>> slope([1, 3, 5])
    2.0
    """
    middle = (len(values) - 1) / 2
    average = mean(values)
    above = sum((place - middle) * (value - average) for place, value in enumerate(values))
    return above / sum((place - middle) ** 2 for place in range(len(values)))


def season_of(values: Sequence[float]) -> int | None:
    """After how many values a series comes back, seen at least twice.

    >>> season_of([1, 1, 9, 1] * 4)
    4
    >>> season_of([3.0] * 20) is None
    True
    """
    count = len(values)
    average = mean(values) if values else 0.0
    centred = [value - average for value in values]
    power = sum(value * value for value in centred)
    if count < 8 or power <= 1e-12 * count * max(1.0, average**2):
        return None
    best, season = 0.0, None
    for lag in range(2, count // 2 + 1):
        likeness = sum(one * other for one, other in zip(centred[lag:], centred, strict=False)) / power
        likeness *= count / (count - lag)
        if likeness > best * 1.02:
            best, season = likeness, lag
    return season if best > 0.7 else None


def _past_error(values: Sequence[float], season: int) -> float:
    recent = values[-max(season, 10) :]
    before = values[-len(recent) - season : -season]
    return mean(abs(one - other) for one, other in zip(recent[-len(before) :], before, strict=True)) if before else 0.0
