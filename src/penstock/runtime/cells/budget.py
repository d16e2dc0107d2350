"""What a tuple costs, and how many to take at once: the only code that turns measured seconds into chunk sizes."""

from __future__ import annotations

_FIRST_TUPLES = 16
_NEWS = 0.3
"""How much the last chunk counts in what a tuple is taken to cost."""


class Budget:
    """Learns what a tuple costs from the chunks that were worked on.

    >>> budget = Budget(chunk_seconds=0.001, largest=1000)
    >>> budget.tuples(waiting=5)
    16
    >>> budget.account(seconds=0.00016, cpu_seconds=0.0, processed=16)
    >>> budget.tuples(waiting=5), budget.tuples(waiting=800)
    (100, 400)
    """

    __slots__ = (
        "_busy",
        "_chunk_seconds",
        "_chunks_when_busy",
        "_largest",
        "_least_cost",
        "_usual",
        "cpu_seconds",
        "processed",
        "seconds_per_tuple",
        "total_seconds",
        "usual_seconds",
    )

    def __init__(self, chunk_seconds: float, largest: int, chunks_when_busy: int = 4) -> None:
        self._chunk_seconds = chunk_seconds
        self._largest = largest
        self._chunks_when_busy = chunks_when_busy
        """How many chunks to take in one where many tuples are waiting."""
        self._least_cost = chunk_seconds / largest
        self._usual = self._busy = min(_FIRST_TUPLES, largest)
        self.seconds_per_tuple = 0.0
        self.processed = 0
        """How many tuples the last chunk had."""
        self.usual_seconds = 1.0
        """How long a chunk keeps a worker, on a running average; a second, until one was worked on."""
        self.total_seconds = 0.0
        self.cpu_seconds = 0.0

    def tuples(self, waiting: int) -> int:
        """How many tuples to take at once: about a millisecond of work, or up to four where many are waiting.

        So a flow is prompt when it is idle, and fast when it is busy. Equal shares of what is waiting: a chunk
        that is taken whole is not copied.
        """
        if waiting <= 2 * self._usual or not self.seconds_per_tuple:
            return self._usual
        shares = round(waiting / self._busy) or 1
        return min(-(-waiting // shares), self._largest)

    def learn(self, seconds_per_tuple: float) -> None:
        """So long a tuple takes, as far as is known."""
        self.seconds_per_tuple = seconds_per_tuple
        fits = self._chunk_seconds / max(seconds_per_tuple, self._least_cost)
        self._usual = int(fits) or 1
        self._busy = round(fits * self._chunks_when_busy) or 1

    def account(self, seconds: float, cpu_seconds: float, processed: int) -> None:
        """A worker has spent so long on a chunk of so many tuples: learn what one costs."""
        self.usual_seconds += 0.25 * (seconds - self.usual_seconds)
        self.total_seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.processed = processed
        if processed:
            cost = seconds / processed
            if self.seconds_per_tuple:
                cost = (1 - _NEWS) * self.seconds_per_tuple + _NEWS * cost
            self.learn(cost)
