"""The recorded order of arrival: what a driver loop could see of its inputs each time that it awaited.

What a loop sees of its ports changes only while it awaits. So the loop's history is decided by how much had arrived at
each await, and a run can be repeated exactly by showing it the same again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Sight:
    """From this await on (they are counted from 1), the loop saw this much."""

    step: int
    arrived: tuple[int, ...]
    """Tuples that had arrived on each port since the start: inputs first, then control inputs."""
    closed: tuple[bool, ...]
    stopping: bool = False


@dataclass(frozen=True)
class Arrivals:
    """What every driver loop of a run saw, by operator (and key).

    >>> trace = Arrivals({"merge": (Sight(1, (0, 1), (False, False)),)})
    >>> Arrivals.from_json(trace.to_json()) == trace
    True
    """

    sights: Mapping[str, tuple[Sight, ...]]

    def to_json(self) -> str:
        return json.dumps({loop: [asdict(sight) for sight in sights] for loop, sights in self.sights.items()})

    @classmethod
    def from_json(cls, text: str) -> Arrivals:
        return cls({loop: tuple(_sight(**sight) for sight in sights) for loop, sights in json.loads(text).items()})


def _sight(step: int, arrived: list[int], closed: list[bool], stopping: bool) -> Sight:
    return Sight(step, tuple(arrived), tuple(closed), stopping)
