"""Where a run goes on in a source that an earlier one has read, and whether its partitions are still what was read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.source import WHOLE, Chunk, Offset, Source, Split
from penstock.errors import SourceError


@dataclass(frozen=True)
class Reached:
    """How far a source was read, and what its partitions were known by when that was so.

    >>> Reached.from_json(Reached({"a.csv": 10}, {"a.csv": {"bytes": 10}}).to_json()).positions
    {'a.csv': 10}
    """

    positions: Offset = field(default_factory=dict)
    identities: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"reached": dict(self.positions), "identities": dict(self.identities)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reached:
        """Checkpoints from before files had identities hold positions alone."""
        if isinstance(data.get("reached"), Mapping):
            return cls(dict(data["reached"]), dict(data["identities"]))
        return cls(dict(data))


_NOTHING = Reached()


def resume(source: Source, reached: Reached = _NOTHING, closes: bool = True) -> Iterator[Split]:
    """What is left of a source: read these splits, and nothing is lost or repeated.

    A run that does not close leaves what is not whole yet, such as a line without an end, to a later one.
    """
    for split in source.splits():
        start = reached.positions.get(split.partition)
        if start is None or _has_changed(source, split.partition, start, reached):
            start = split.start
        end = split.end
        if not closes and (end is None or start < end):
            end = source.settled(Split(split.partition, start, end))
        if start < (WHOLE if end is None else end):
            yield Split(split.partition, start, end, None if end is None else source.identity(split.partition, end))


def check(source: Source, split: Split) -> None:
    """`SourceError` where a partition is no longer what it was when its split was made; one that has grown still is."""
    if split.identity is None:
        return
    what = source.changed(split.partition, WHOLE if split.end is None else split.end, split.identity)
    if what is not None:
        raise SourceError(
            f"{source.name} source: {split.partition} has changed since this run was to read it: {what}; write new "
            "data to new files, or new lines to the end of one"
        )


def read(
    source: Source, splits: Iterable[Split], chunks_of: Callable[[Split], Iterable[Chunk]]
) -> Generator[tuple[str, Chunk]]:
    """The chunks of some splits, one after another, each with its partition."""
    for split in splits:
        check(source, split)
        for chunk in chunks_of(split):
            yield split.partition, chunk


def _has_changed(source: Source, partition: str, position: int, reached: Reached) -> bool:
    what = source.changed(partition, position, reached.identities.get(partition))
    if what is not None and source.on_change == "error":
        raise SourceError(
            f"{source.name} source: {partition} has changed since an earlier run read it: {what}; "
            f"{source.change_advice}"
        )
    return what is not None


class Progress:
    """How far a run has read a source; a partition is asked what it is known by when it is left, and when needed."""

    def __init__(self, source: Source | None, reached: Reached = _NOTHING) -> None:
        self._source = source
        self._positions = dict(reached.positions)
        self._identities = dict(reached.identities)
        self._moved: str | None = None
        """The partition that was read on since it was asked."""

    @property
    def positions(self) -> Offset:
        return self._positions

    def advance(self, partition: str, position: int) -> None:
        if partition != self._moved:
            self._ask()
        self._positions[partition] = position
        self._moved = partition

    def identity(self, partition: str) -> Any:
        self._ask()
        return self._identities.get(partition)

    def reached(self) -> Reached:
        self._ask()
        return Reached(dict(self._positions), dict(self._identities))

    def _ask(self) -> None:
        partition, self._moved = self._moved, None
        if partition is None or self._source is None:
            return
        identity = self._source.identity(partition, self._positions[partition])
        if identity is None:
            self._identities.pop(partition, None)
        else:
            self._identities[partition] = identity
