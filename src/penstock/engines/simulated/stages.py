"""How long a stage of a batch takes: its tasks, on the slots that there are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupWork:
    """What one group has to do in a batch."""

    seconds: float
    """Of all its tasks, which have equally much to do."""
    tasks: int


def stage_seconds(groups: Iterable[GroupWork], slots: int) -> float:
    """From the first task's start to the last one's end, as Spark starts them: in order, each on the next free slot.

    >>> stage_seconds([GroupWork(6.0, tasks=3)], slots=8), stage_seconds([GroupWork(6.0, tasks=3)], slots=2)
    (2.0, 4.0)
    """
    free_at = [0.0] * slots
    for group in groups:
        if group.seconds:
            for _ in range(group.tasks):
                heapq.heapreplace(free_at, free_at[0] + group.seconds / group.tasks)
    return max(free_at)
