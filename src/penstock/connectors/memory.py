"""Sources and sinks that need nothing but Python: items, generated values, collected lists, functions, the console."""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence, Sized
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from operator import length_hint
from typing import Any, Generic, TextIO, TypeVar

from penstock.clock import Clock
from penstock.connectors.sink import Delivery, Rejected, Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split, Unreadable
from penstock.errors import SourceError, describe_exception
from penstock.rates import Rate

T = TypeVar("T")

_VALUES_PER_CHUNK = 8192
_CHUNK_SECONDS = 0.001
_VALUES_PER_LOOK = 16
_LONGEST_IDLE_SECONDS = 3600.0
_ALREADY_READ = (
    "items: this iterator was read by an earlier run and has nothing left; give ps.sources.items a list, or anything "
    "that can be iterated again"
)


_READ_ON = (
    "a run on the same checkpoint reads on behind what was read: give the same values, with new ones behind them; or "
    "an iterator, iter(values), of which nothing is skipped; or a new checkpoint"
)
_INDEXED = (list, tuple, range, str, bytes)
_SAMPLED = 256
_EDGE_VALUES = 64
_MOST_CHARACTERS = 1024
_MOST_PARTS = 256


class Items(Source):
    """The values of any iterable; one that can only be iterated once can only be run once.

    What is left of an iterator is all that it gives: a later run skips nothing of it.
    """

    name = "items"
    counts_rows = True
    change_advice = _READ_ON

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable
        self.replayable = iter(iterable) is not iterable
        self._consumed = False

    def splits(self) -> Sequence[Split]:
        return [Split("items")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        if self._consumed:
            raise SourceError(_ALREADY_READ)
        self._consumed = not self.replayable
        position = split.start
        skipped = position if self.replayable else 0
        # One at a time from an iterator: it may be endless, slow or fed by what the flow does.
        size = _VALUES_PER_CHUNK if isinstance(self._iterable, Sequence) else 1
        try:
            if isinstance(self._iterable, list):
                end = len(self._iterable) if split.end is None else split.end
                while chunk := self._iterable[position : min(position + size, end)]:
                    position += len(chunk)
                    yield Chunk(chunk, position, all_readable=True)
                return
            values = iter(self._iterable)
            if skipped and sum(1 for _ in islice(values, skipped)) < skipped:
                raise _shorter(skipped)
            values = islice(values, None if split.end is None else split.end - split.start)
            while chunk := list(islice(values, size)):
                position += len(chunk)
                yield Chunk(chunk, position, all_readable=True)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"items: the iterable raised {describe_exception(error)}") from error

    def identity(self, partition: str, position: int) -> Any:
        """Some of the values that were read, where they can be looked at again without reading all of them."""
        if type(self._iterable) not in _INDEXED or len(self._iterable) < position:  # type: ignore[arg-type]
            return None
        return {"values": position, "digest": _digest(self._iterable, position)}  # type: ignore[arg-type]

    def changed(self, partition: str, position: int, identity: Any) -> str | None:
        if self.replayable and isinstance(self._iterable, Sized) and len(self._iterable) < position:
            return f"it has {len(self._iterable):,} values, and {position:,} were read"
        if identity is not None and self.identity(partition, position) not in (None, identity):
            return f"its first {position:,} values are not what they were"
        return None


def _shorter(position: int) -> SourceError:
    return SourceError(f"items source: it has fewer values than the {position:,} that an earlier run read; {_READ_ON}")


def _digest(values: Sequence[Any], position: int) -> str:
    """What some values up to a position are known by: the first, the last and some between; it costs the same always.

    >>> _digest([{"a": 1, "b": "x"}], 1) == _digest([{"b": "x", "a": 1}], 1) != _digest([{"a": 2, "b": "x"}], 1)
    True
    """
    between = range(0, position, max(1, position // _SAMPLED))
    edges = [*range(min(_EDGE_VALUES, position)), *range(max(0, position - _EDGE_VALUES), position)]
    told = "\n".join(_told(values[index]) for index in sorted({*between, *edges}))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def _told(value: Any, depth: int = 8) -> str:
    """A value in words that are the same in every process; of what has none, its type alone."""
    kind = type(value)
    if kind in (str, bytes):
        return f"{len(value)} {value[:_MOST_CHARACTERS]!r}"
    if kind in (type(None), bool, int, float, complex, Decimal, date, datetime, timedelta):
        return repr(value)
    if depth and kind in (list, tuple):
        return f"{len(value)} [{', '.join(_told(part, depth - 1) for part in value[:_MOST_PARTS])}]"
    if depth and kind is dict:
        parts = value.items() if len(value) <= _MOST_PARTS else ()
        told = sorted(f"{_told(name, depth - 1)}: {_told(part, depth - 1)}" for name, part in parts)
        return f"{len(value)} {{{', '.join(told)}}}"
    return f"{kind.__module__}.{kind.__qualname__}"


class AsyncItems(Source):
    """The values of an asynchronous iterable, such as an `async def` generator."""

    name = "items"
    counts_rows = True
    awaits = True
    replayable = False
    bounded = False

    def __init__(self, iterable: AsyncIterable[Any]) -> None:
        self._iterable = iterable
        self._consumed = False

    def splits(self) -> Sequence[Split]:
        return [Split("items")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        """On an event loop of its own, which stands still while the flow works on what it gave."""
        with asyncio.Runner() as runner:
            chunks = self.read_async(split)
            while (chunk := runner.run(_next(chunks))) is not None:
                yield chunk

    async def read_async(self, split: Split) -> AsyncIterator[Chunk]:
        if self._consumed:
            raise SourceError(_ALREADY_READ)
        self._consumed = isinstance(self._iterable, AsyncIterator)
        position = split.start if self._consumed else 0
        try:
            async for value in self._iterable:
                position += 1
                if position > split.start:
                    yield Chunk((value,), position)
            if position < split.start:
                raise _shorter(split.start)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"items: the iterable raised {describe_exception(error)}") from error


async def _next(chunks: AsyncIterator[Chunk]) -> Chunk | None:
    return await anext(chunks, None)


class Generate(Source):
    """`fn(0)`, `fn(1)`, … up to `count`, no faster than a rate."""

    name = "generate"
    counts_rows = True

    def __init__(self, fn: Callable[[int], Any], count: int | None, rate: Rate | None) -> None:
        self._fn = fn
        self._count = count
        self._rate = rate
        self.bounded = count is not None
        self.reads_anywhere = rate is None
        self._started: float | None = None

    def splits(self) -> Sequence[Split]:
        return [Split("generate", 0, self._count)]

    def cut(self, split: Split, near: int) -> int | None:
        return near

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        position = split.start
        came = None
        started = self._started = clock.now()
        while split.end is None or position < split.end:
            end = position + _VALUES_PER_CHUNK if split.end is None else split.end
            if self._rate is not None:
                now = clock.now()
                came = started + self._rate.time_of(position - split.start)
                if came > now:
                    yield Chunk((), position, idle_seconds=min(came - now, _LONGEST_IDLE_SECONDS))
                    continue
                end = min(end, position + self._rate.due(position - split.start, now - started))
            values = self._values(position, min(end, position + _VALUES_PER_CHUNK), clock)
            position += len(values)
            yield Chunk(values, position, came=came)

    def _values(self, start: int, end: int, clock: Clock) -> list[Any]:
        """Up to `end`, but no longer than a chunk should take: the first ones are waited for."""
        values: list[Any] = []
        fn, append, since = self._fn, values.append, clock.now()
        for block in range(start, end, _VALUES_PER_LOOK):
            for position in range(block, min(block + _VALUES_PER_LOOK, end)):
                try:
                    append(fn(position))
                except BaseException as error:
                    append(Unreadable(position, error))
            if clock.now() - since > _CHUNK_SECONDS:
                break
        return values

    def offered(self, now: float) -> float | None:
        if self._rate is None or self._started is None:
            return None
        return min(self._rate.count_by(now - self._started), math.inf if self._count is None else self._count)

    def describe(self) -> str:
        count = "endless" if self._count is None else f"{self._count:,} tuples"
        return count if self._rate is None else f"{count}, {self._rate}"


class Collect(Sink, Generic[T]):
    """A list: `.items` holds what the last run wrote."""

    name = "collect"
    any_thread = True
    delivery = Delivery.TRANSACTIONAL

    def __init__(self) -> None:
        self.items: list[T] = []

    @property
    def place(self) -> object:
        return id(self)

    def open(self) -> SinkWriter:
        self.items = []
        return _Extend(self.items)


class _Extend(SinkWriter):
    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def write(self, values: Sequence[Any]) -> None:
        self._items.extend(values)


class Call(Sink):
    """A function called with every tuple; after a failure it may be called again with the same one."""

    name = "call"
    any_thread = True

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

    def write(self, values: Sequence[Any]) -> Rejected | None:
        fn, left = self._fn, iter(values)
        try:
            for value in left:
                fn(value)
        except BaseException as error:
            return Rejected(len(values) - length_hint(left) - 1, error)
        return None


class Console(Sink):
    """Every tuple on a line of its own; after a failure a line may be printed again."""

    name = "console"
    any_thread = True

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def open(self) -> SinkWriter:
        return EachValue(self._print)

    def _print(self, value: Any) -> None:
        print(value, file=self._stream or sys.stdout)


class Null(Sink):
    """Nowhere: tuples are counted and forgotten."""

    name = "null"
    any_thread = True
    delivery = Delivery.IDEMPOTENT

    def open(self) -> SinkWriter:
        return _Forget()


class _Forget(SinkWriter):
    def write(self, values: Sequence[Any]) -> None:
        pass
