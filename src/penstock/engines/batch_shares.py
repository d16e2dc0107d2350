"""Which task of a stage works on which buckets of keys: by what came for them in the batches before."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

_AS_GOOD = 1.05
"""Of what the busiest task would have at best, so much more is not worth to move buckets for."""
_FORGETTING = 0.5
"""What came in the batch before counts so much, in the one before that the square of it, and so on."""


def usual_owners(buckets: int, tasks: int) -> list[int]:
    """The task of each bucket, as long as nothing is known.

    >>> usual_owners(6, 2)
    [0, 0, 0, 1, 1, 1]
    """
    return [bucket * tasks // buckets for bucket in range(buckets)]


class BucketShares:
    """What has come for each bucket of one stage, and who works on it.

    >>> shares = BucketShares(buckets=6)
    >>> shares.owners(2)
    [0, 0, 0, 1, 1, 1]
    >>> shares.add([8, 4, 4, 1, 1, 1])
    >>> shares.owners(2), round(shares.hottest, 2)
    ([0, 1, 1, 0, 1, 0], 0.42)
    """

    def __init__(self, buckets: int) -> None:
        self._loads = [0.0] * buckets
        self._owners = usual_owners(buckets, 1)
        self._tasks = 1

    def add(self, counts: Sequence[float]) -> None:
        """So many tuples have come for each bucket in a batch."""
        if any(counts):
            self._loads = [_FORGETTING * load + count for load, count in zip(self._loads, counts, strict=True)]

    @property
    def hottest(self) -> float:
        """The share of its tuples that comes for one bucket, and so to one task; 0 where nothing is known."""
        total = sum(self._loads)
        return max(self._loads) / total if total else 0.0

    def owners(self, tasks: int) -> list[int]:
        """The task of each bucket in the next batch: who it was, unless that is clearly worse than the best."""
        if tasks != self._tasks:
            self._owners, self._tasks = usual_owners(len(self._loads), tasks), tasks
        best = self._balanced(tasks)
        if self._busiest(self._owners) > _AS_GOOD * self._busiest(best):
            self._owners = best
        return self._owners

    def busiest_share(self, tasks: int) -> float:
        """Of all work, what the busiest of so many tasks has."""
        total = sum(self._loads)
        return self._busiest(self.owners(tasks)) / total if total else 1 / tasks

    def _busiest(self, owners: Sequence[int]) -> float:
        work = [0.0] * self._tasks
        for owner, load in zip(owners, self._loads, strict=True):
            work[owner] += load
        return max(work)

    def _balanced(self, tasks: int) -> list[int]:
        """The busiest bucket first, each to the task that has least; of those that have as much, fewest buckets."""
        owners = [0] * len(self._loads)
        work = [(0.0, 0, task) for task in range(tasks)]
        for bucket in sorted(range(len(owners)), key=lambda bucket: (-self._loads[bucket], bucket)):
            load, count, task = heapq.heappop(work)
            owners[bucket] = task
            heapq.heappush(work, (load + self._loads[bucket], count + 1, task))
        return owners
