"""What the next value of a series will be: several guesses, and the one that was least wrong so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import mean

_KEPT = 600
_TREND_VALUES = 5
_FADING = 0.9


class Forecast:
    """Last value, linear trend and season; whichever has had the smallest error lately.

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
        self._season: int | None = None
        self._until_next_look = 0

    def add(self, value: float) -> None:
        """The next value has come."""
        for name, guess in self._guesses.items():
            before = self._errors.get(name)
            error = abs(guess - value)
            self._errors[name] = error if before is None else _FADING * before + (1 - _FADING) * error
        self._values.append(value)
        self._look_for_season()
        self._guesses = self._guessed()

    @property
    def best(self) -> str:
        """Which guess was least wrong; the last value, where there is no telling."""
        known = [name for name in self._guesses if name in self._errors]
        return min(known, key=lambda name: (self._errors[name], name != "last"), default="last")

    @property
    def error(self) -> float:
        """How wrong the best one was, on a fading average."""
        return self._errors.get(self.best, 0.0)

    def next(self) -> float:
        """What is to be expected."""
        return max(0.0, self._guesses.get(self.best, 0.0))

    def _guessed(self) -> dict[str, float]:
        values = list(self._values)
        guesses = {"last": values[-1]}
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
