"""What goes in and comes out in the second half of a run: how much, how long it was under way, and whether in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

from penstock.clock import Clock
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split

Stamped = tuple[int, float]
"""A number, and when it was made."""
CHUNK = 16


class Watch:
    """Counts from `since` on; what enters before is the run's way to its usual state."""

    def __init__(self, since: float, until: float) -> None:
        self.clock: Clock
        self._since = since
        self._seconds = until - since
        self._read = 0
        self._out = 0
        self._gone = 0
        self._under_way = 0.0

    def __deepcopy__(self, memo: object) -> Watch:
        return self  # each run has its own copies of operators, but there is one watch

    def read(self, count: int) -> None:
        if self.clock.now() >= self._since:
            self._read += count

    def out(self, values: Sequence[Stamped]) -> None:
        now = self.clock.now()
        if now >= self._since:
            self._out += len(values)
            self._under_way += now * len(values) - sum(value[1] for value in values)

    def gone(self, value: Stamped) -> None:
        """It was filtered out: that is the end of its way too."""
        now = self.clock.now()
        if now >= self._since:
            self._gone += 1
            self._under_way += now - value[1]

    def seen(self) -> dict[str, float]:
        """Tuples a second into the flow and out of it, and the mean of seconds under way."""
        ended = self._out + self._gone
        assert ended, "nothing came out in the second half of the run"
        return {
            "in": self._read / self._seconds,
            "out": self._out / self._seconds,
            "latency": self._under_way / ended,
        }


class Numbers(Source):
    """Numbers without an end, each with the time at which it was made; some at once, as many as take no time."""

    name, bounded, counts_rows = "numbers", False, True

    def __init__(self, watch: Watch, chunk: int = CHUNK) -> None:
        self._watch = watch
        self._chunk = chunk

    def splits(self) -> Sequence[Split]:
        return [Split("numbers")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        self._watch.clock = clock
        position = split.start
        while True:
            now = clock.now()
            values = [(number, now) for number in range(position, position + self._chunk)]
            position += self._chunk
            self._watch.read(self._chunk)
            yield Chunk(values, position, all_readable=True)


Order = Literal["all", "rising", "any"]
"""Every number in its place; those that are there in order; or those of several sources as they arrive."""


class Out(Sink):
    """Sees that what comes is in order."""

    name, any_thread = "out", True

    def __init__(self, watch: Watch, order: Order) -> None:
        self._watch = watch
        self._order = order

    def open(self) -> SinkWriter:
        return _Writer(self._watch, self._order)


class _Writer(SinkWriter):
    def __init__(self, watch: Watch, order: Order) -> None:
        self._watch = watch
        self._order = order
        self._last = -1

    def write(self, values: Sequence[Any]) -> None:
        if self._order != "any":
            self._check([number for number, _ in values])
        self._watch.out(values)

    def _check(self, numbers: Sequence[int]) -> None:
        if self._order == "all":
            expected = list(range(self._last + 1, self._last + 1 + len(numbers)))
            assert numbers == expected, f"{numbers[0]} and others came after {self._last}"
        else:
            seen = [self._last, *numbers]
            assert all(before < after for before, after in pairwise(seen)), f"not in order: {seen}"
        self._last = numbers[-1]
