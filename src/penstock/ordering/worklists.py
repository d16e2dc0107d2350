"""Which worker may work on which bucket of keys: the tuples of a bucket in order, and one worker at a time.

From "Scaling Ordered Stream Processing on Shared-Memory Multicores", section 4; not by tuple, but by what a chunk
holds for a bucket.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class BucketShare(Protocol):
    """What one unit holds for one bucket."""

    @property
    def serial(self) -> int: ...

    @property
    def bucket(self) -> int: ...

    def __len__(self) -> int: ...


S = TypeVar("S", bound=BucketShare)


class Worklist(ABC, Generic[S]):
    """Shares by bucket; each method is one short critical section."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[int, deque[S]] = defaultdict(deque)
        self._held: set[int] = set()

    def add(self, shares: Iterable[S]) -> None:
        """Take in the shares of a unit; units come in the order of their serial numbers."""
        with self._lock:
            for share in shares:
                queue = self._queues[share.bucket]
                queue.append(share)
                self._added(share, is_first=len(queue) == 1 and share.bucket not in self._held)

    def take(self, most: int, worker: int, workers: int) -> list[S]:
        """Shares of about so many tuples, whose buckets are then held; `worker` is one of `workers`."""
        taken: list[S] = []
        with self._lock:
            while most > 0 and (bucket := self._next_bucket(worker, workers)) is not None:
                self._held.add(bucket)
                queue = self._queues[bucket]
                while queue and most > 0:
                    taken.append(queue.popleft())
                    most -= len(taken[-1])
        return taken

    def done(self, shares: Iterable[S]) -> None:
        """They have been worked on: let go of their buckets."""
        with self._lock:
            for bucket in {share.bucket for share in shares}:
                self._held.discard(bucket)
                if self._queues[bucket]:
                    self._released(self._queues[bucket][0])

    @abstractmethod
    def has_work(self, worker: int, workers: int) -> bool:
        """Whether `take` would find something."""

    @abstractmethod
    def _added(self, share: S, is_first: bool) -> None:
        """A share is new; the first of a bucket that no worker holds."""

    @abstractmethod
    def _released(self, share: S) -> None:
        """A bucket is free again, and this is its next share."""

    @abstractmethod
    def _next_bucket(self, worker: int, workers: int) -> int | None:
        """A free bucket with shares, no longer on offer."""


class HybridQueue(Worklist[S]):
    """The free buckets, the one with the oldest share first: a hot bucket keeps no worker from the others."""

    def __init__(self) -> None:
        super().__init__()
        self._free: list[tuple[int, int]] = []

    def has_work(self, worker: int, workers: int) -> bool:
        return bool(self._free)

    def _added(self, share: S, is_first: bool) -> None:
        if is_first:
            heapq.heappush(self._free, (share.serial, share.bucket))

    def _released(self, share: S) -> None:
        heapq.heappush(self._free, (share.serial, share.bucket))

    def _next_bucket(self, worker: int, workers: int) -> int | None:
        return heapq.heappop(self._free)[1] if self._free else None


class SharedQueue(Worklist[S]):
    """One queue of all shares, for comparison: while the bucket of the first is held, no worker gets anything."""

    def __init__(self) -> None:
        super().__init__()
        self._order: deque[S] = deque()

    def has_work(self, worker: int, workers: int) -> bool:
        order = self._order
        try:
            return order[0].bucket not in self._held
        except IndexError:
            return False

    def take(self, most: int, worker: int, workers: int) -> list[S]:
        taken: list[S] = []
        with self._lock:
            while most > 0 and (bucket := self._next_bucket(worker, workers)) is not None:
                self._held.add(bucket)
                taken.append(self._queues[bucket].popleft())
                most -= len(taken[-1])
        return taken

    def _added(self, share: S, is_first: bool) -> None:
        self._order.append(share)

    def _released(self, share: S) -> None:
        """It keeps its turn, which it got when it came in."""

    def _next_bucket(self, worker: int, workers: int) -> int | None:
        if not self._order or self._order[0].bucket in self._held:
            return None
        return self._order.popleft().bucket


class PartitionedQueue(Worklist[S]):
    """Each worker has its own buckets, for comparison: none takes the work of another."""

    def has_work(self, worker: int, workers: int) -> bool:
        with self._lock:
            return self._oldest(worker, workers) is not None

    def _added(self, share: S, is_first: bool) -> None:
        """Its bucket says whose it is."""

    def _released(self, share: S) -> None:
        """It stays whose it was."""

    def _next_bucket(self, worker: int, workers: int) -> int | None:
        return self._oldest(worker, workers)

    def _oldest(self, worker: int, workers: int) -> int | None:
        mine = [
            (queue[0].serial, bucket)
            for bucket, queue in self._queues.items()
            if queue and bucket % workers == worker and bucket not in self._held
        ]
        return min(mine)[1] if mine else None
