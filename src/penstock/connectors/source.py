"""The only interface between engines and where data comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.clock import Clock
from penstock.schema import Schema

Offset = Mapping[str, int]
"""How far each partition was read: its name and a position in it; plain enough for JSON."""
WHOLE = 1 << 62
"""The position behind all of a partition whose length was not known when it was to be read."""
OnChange = Literal["error", "restart"]


@dataclass(frozen=True)
class Split:
    """A range of one partition: what a reader is given, and what can be read again."""

    partition: str
    start: int = 0
    end: int | None = None
    """The position to stop at, or `None` for wherever the partition ends."""
    identity: Any = None
    """What the source knows the partition by up to its end, when that was decided."""


@dataclass(frozen=True)
class Chunk:
    """Some values in order, and the position after them; an empty one says that nothing has come yet."""

    values: Sequence[Any]
    end: int
    idle_seconds: float = 0.0
    """How long it is worth waiting before asking again."""
    came: float | None = None
    """When the first of them came, where that was earlier than it could be read."""
    all_readable: bool = False
    """A promise that no value is an `Unreadable`, for sources so fast that looking for one would be felt."""


@dataclass(frozen=True)
class Unreadable:
    """Stands in a chunk for input that could not become a value."""

    raw: Any
    error: BaseException


class Source(ABC):
    """Where a stream begins.

    Partitions are read in the order of `splits()`, rows in the order of their position: that is the order of the
    stream. A source never sleeps and starts no thread: what has to wait returns empty chunks.
    """

    name: str = "source"
    """What an operator that reads it is called when the user gives no name."""
    bounded: bool = True
    """Whether it ends by itself."""
    replayable: bool = True
    """Whether the same split gives the same values again."""
    goes_on: bool = True
    """Whether a later run can read on from a position."""
    awaits: bool = False
    """Whether it can be read on an event loop, with `read_async`."""
    schema: Schema | None = None
    counts_rows: bool = False
    """Whether positions count rows: then a chunk can be cut anywhere, and what was read is checked against them."""
    reads_anywhere: bool = False
    """Whether any process that can reach the data can read any split."""
    has_columns: bool = False
    """Whether it can give its values as tables, with `tables`."""
    change_advice: str = (
        "write new data to new files, or new lines to the end of one; on_change='restart' reads it as new, from its "
        "beginning"
    )
    """What a user is told to do about such a partition."""
    on_change: OnChange = "error"
    """What a run does about a partition that is no longer what an earlier run has read: fail, or read it as new."""

    @abstractmethod
    def splits(self) -> Sequence[Split]:
        """The partitions there are now, whole, in the order of the stream; `SourceError` where there is nothing."""

    @abstractmethod
    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        """The values of a split from `split.start` on."""

    def tables(self, split: Split) -> Iterator[pa.Table | list[Unreadable]]:
        """The values of a split as tables whose rows they are, for whom it is dear to make objects of them.

        What could not become a value stands between two tables.
        """
        raise NotImplementedError

    def cut(self, split: Split, near: int) -> int | None:
        """The first position from `near` on at which a split can be cut in two; `None` where only its reader knows."""
        return None

    def settled(self, split: Split) -> int | None:
        """Where a split ends for a run that a later one may go on from: behind the last value that is whole."""
        return split.end

    def identity(self, partition: str, position: int) -> Any:
        """What a partition is known by after it was read up to a position, as JSON; `None` where nothing can change.

        Asked for when a run begins, and once for each checkpoint and partition that was read on.
        """
        return None

    def changed(self, partition: str, position: int, identity: Any) -> str | None:
        """A sentence on why what was read up to a position is no longer there, or `None` if all is as it was."""
        return None

    def read_async(self, split: Split) -> AsyncIterator[Chunk]:
        """The same on an event loop, for sources that await what they read."""
        raise NotImplementedError

    def offered(self, now: float) -> float | None:
        """How many tuples have come so far, read or not; `None` where they can be read as fast as one likes."""
        return None

    def describe(self) -> str:
        """What is read, in a few words for `explain`."""
        return self.name
