"""`ps.costs`: what a tuple costs an operator in a simulation.

A cost is a number of seconds, a function of the tuple, or one of the distributions here; `Cost` says more about it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["Cost", "Distribution", "exponential", "lognormal", "uniform"]


class Distribution(ABC):
    """A number of seconds, drawn for each tuple from the simulation's own random source."""

    @abstractmethod
    def draw(self, random: Random) -> float: ...


@dataclass(frozen=True)
class _Exponential(Distribution):
    mean: float

    def draw(self, random: Random) -> float:
        return random.expovariate(1 / self.mean)


@dataclass(frozen=True)
class _Uniform(Distribution):
    low: float
    high: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low, self.high)


@dataclass(frozen=True)
class _Lognormal(Distribution):
    mean: float
    sigma: float

    def draw(self, random: Random) -> float:
        return random.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)


def exponential(mean: float) -> Distribution:
    """Mostly short, sometimes long.

    >>> 0.9 < sum(exponential(mean=1.0).draw(random) for random in [Random(1)] for _ in range(10_000)) / 10_000 < 1.1
    True
    """
    return _Exponential(mean)


def uniform(low: float, high: float) -> Distribution:
    """Anything between two bounds.

    >>> 1.0 <= uniform(1.0, 2.0).draw(Random(1)) <= 2.0
    True
    """
    return _Uniform(low, high)


def lognormal(mean: float, sigma: float) -> Distribution:
    """With a long tail: the larger `sigma`, the longer.

    >>> lognormal(mean=0.001, sigma=1.0).draw(Random(1)) > 0
    True
    """
    return _Lognormal(mean, sigma)


Seconds = float | Distribution | Callable[[Any], float]


@dataclass(frozen=True)
class Cost:
    """What a tuple costs, and what comes of it.

    >>> Cost(0.001, released=0.8)
    Cost(seconds=0.001, released=0.8, outputs=None)
    """

    seconds: Seconds
    released: float = 0.0
    """The share of it that is spent outside the GIL, as in numpy or zlib."""
    outputs: float | None = None
    """How many tuples come out for one that goes in, where functions are not called."""

    @classmethod
    def of(cls, cost: Cost | Seconds) -> Cost:
        return cost if isinstance(cost, Cost) else cls(cost)
