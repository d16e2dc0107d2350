"""Sources and sinks that need nothing but Python: items, generated values, collected lists, functions, the console."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TextIO, TypeVar

from penstock.clock import Clock
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split, Unreadable
from penstock.errors import SourceError, describe_exception

T = TypeVar("T")

_VALUES_PER_CHUNK = 1024


class Items(Source):
    """The values of any iterable; one that can only be iterated once can only be run once."""

    name = "items"

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable
        self.replayable = iter(iterable) is not iterable
        self._consumed = False

    def splits(self) -> Sequence[Split]:
        return [Split("items")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        if self._consumed:
            raise SourceError(
                "items: this iterator was read by an earlier run and has nothing left; "
                "give ps.sources.items a list, or anything that can be iterated again"
            )
        self._consumed = not self.replayable
        position = split.start
        # One at a time from an iterator: it may be endless, slow or fed by what the flow does.
        size = _VALUES_PER_CHUNK if isinstance(self._iterable, Sequence) else 1
        try:
            values = islice(iter(self._iterable), split.start, split.end)
            while chunk := list(islice(values, size)):
                position += len(chunk)
                yield Chunk(chunk, position)
        except Exception as error:
            raise SourceError(f"items: the iterable raised {describe_exception(error)}") from error


class Generate(Source):
    """`fn(0)`, `fn(1)`, … up to `count`, at most `rate` a second."""

    name = "generate"

    def __init__(self, fn: Callable[[int], Any], count: int | None, rate: float | None) -> None:
        self._fn = fn
        self._count = count
        self._rate = rate
        self.bounded = count is not None

    def splits(self) -> Sequence[Split]:
        return [Split("generate", 0, self._count)]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        position = split.start
        started = clock.now()
        while split.end is None or position < split.end:
            if self._rate is not None:
                due = started + (position - split.start) / self._rate
                if (wait := due - clock.now()) > 0:
                    yield Chunk((), position, idle_seconds=wait)
                    continue
            try:
                value = self._fn(position)
            except Exception as error:
                value = Unreadable(position, error)
            position += 1
            yield Chunk((value,), position)

    def describe(self) -> str:
        count = "endless" if self._count is None else f"{self._count:,} tuples"
        return count if self._rate is None else f"{count}, {self._rate:,g} a second"


class Collect(Sink, Generic[T]):
    """A list: `.items` holds what the last run wrote."""

    name = "collect"
    delivery = Delivery.TRANSACTIONAL

    def __init__(self) -> None:
        self.items: list[T] = []

    def open(self) -> SinkWriter:
        self.items = []
        return _Extend(self.items)


class _Extend(SinkWriter):
    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def write(self, values: Sequence[Any]) -> Sequence[Rejected]:
        self._items.extend(values)
        return ()


class Call(Sink):
    """A function called with every tuple; after a failure it may be called again with the same one."""

    name = "call"

    def __init__(self, fn: Callable[[Any], object]) -> None:
        self._fn = fn
        self.name = getattr(fn, "__name__", "call").strip("<>")
        if self.name == "lambda":
            self.name = "call"

    def open(self) -> SinkWriter:
        return EachValue(self._fn)


class EachValue(SinkWriter):
    """Hands values to a function, one by one."""

    def __init__(self, fn: Callable[[Any], object]) -> None:
        self._fn = fn

    def write(self, values: Sequence[Any]) -> Sequence[Rejected]:
        rejected = []
        for position, value in enumerate(values):
            try:
                self._fn(value)
            except Exception as error:
                rejected.append(Rejected(position, error))
        return rejected


class Console(Sink):
    """Every tuple on a line of its own; after a failure a line may be printed again."""

    name = "console"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def open(self) -> SinkWriter:
        return EachValue(self._print)

    def _print(self, value: Any) -> None:
        print(value, file=self._stream or sys.stdout)


class Null(Sink):
    """Nowhere: tuples are counted and forgotten."""

    name = "null"
    delivery = Delivery.IDEMPOTENT

    def open(self) -> SinkWriter:
        return _Forget()


class _Forget(SinkWriter):
    def write(self, values: Sequence[Any]) -> Sequence[Rejected]:
        return ()
