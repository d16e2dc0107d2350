"""What the driver tells the tasks of one level: plain values, pickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.connectors.source import Source
from penstock.engines.durable.staging import Staged
from penstock.engines.spark.marks import Marker
from penstock.errors import SourceError
from penstock.flow.nodes import Graph, Key, Node
from penstock.plan.groups import Spread
from penstock.state.buckets import Chain, Place


@dataclass(frozen=True)
class Exit:
    """An edge that leaves a group: which output it takes, and where its tuples go."""

    edge: int
    outlet: str
    """The pseudo-sink of the group's graph that gathers them; nothing for what comes straight from a source.

    Of a keyed group, what `outlet_of` says.
    """
    level: int
    first: int
    """The first partition of the target group."""
    tasks: int
    spread: Spread
    rank: int
    """Which of the target group's inputs it is."""
    key: Key | None = None
    marker: Marker | None = None
    """For an operator that must know how far the watermark is."""
    writes: Node | None = None
    """The sink of lines that is all there is at the other end: they are written here, where there are more tasks."""


def outlet_of(node: Node, port: int) -> str:
    """An output of a keyed group: the first has no name, others have their number, dead letters their operator's."""
    if port == node.outputs:
        return node.name
    return str(port) if port else ""


@dataclass(frozen=True)
class GroupTask:
    """One group's share of a level."""

    spread: Spread
    first: int
    tasks: int
    graph: Graph
    """The group's operators between inlets and outlets."""
    inlets: Mapping[int, str]
    """The inlet of each edge."""
    exits: tuple[Exit, ...]
    sources: Mapping[str, Source]
    """Those that tasks read by themselves."""
    straight: Mapping[str, tuple[Exit, ...]]
    """Where the tables of a source go that nobody here looks at."""
    relays: Mapping[int, tuple[Exit, ...]]
    """Where the slices of an edge go on to as they are, having been put in order."""
    keyed: tuple[Node, ...] = ()
    """A keyed operator and the functions behind it."""
    sides: Mapping[int, int] = field(default_factory=dict)
    """The input of the keyed operator that each edge is for."""
    gathers: Node | None = None
    """A sink whose lines come written."""


@dataclass(frozen=True)
class Descriptor:
    """A part of a source that one task reads."""

    operator: str
    number: int
    """Its place among the parts of this batch."""
    partition: str
    start: int
    end: int | None
    spool: str | None = None
    """The file in the checkpoint that holds the values, for sources that only the driver can read."""
    version: tuple[int, int] | None = None
    """Size and modification time of the file when it was admitted."""

    def check_version(self) -> None:
        """`SourceError` where the file is no longer what was admitted."""
        if self.version is None:
            return
        try:
            now = version_of(self.partition)
        except OSError:
            raise SourceError(f"{self.partition}: the file is gone; it was there when the run began") from None
        if now != self.version:
            raise SourceError(
                f"{self.partition}: the file has changed since it was admitted, so a retry could not give the same "
                "tuples; write new data to new files"
            )


def version_of(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Level:
    """What the tasks of one level need in every batch, as long as nobody rescales."""

    number: int
    levels: int
    query: str
    root: str
    buckets: int
    flow: str
    groups: tuple[GroupTask, ...]
    next_partitions: int

    def group_of(self, partition: int) -> GroupTask | None:
        for group in self.groups:
            if group.first <= partition < group.first + group.tasks:
                return group
        return None


@dataclass(frozen=True)
class LevelBatch:
    """What they need in one batch; in a file of the checkpoint, because Spark plans its stages only once."""

    number: int
    closes: bool
    chains: Mapping[Place, Chain]
    parts: tuple[tuple[Descriptor, ...], ...] = ()
    """At the first level, what each task reads."""


def batch_file(level: int, batch: int) -> str:
    return f"batches/{batch:010d}-{level}"


@dataclass(frozen=True)
class TaskReport:
    """What one task did; the same for every attempt, because it passes through exchanges."""

    level: int
    partition: int
    counts: Mapping[str, tuple[int, int, int, int]]
    """Received, emitted, failed and late tuples by operator."""
    chains: Mapping[Place, Chain]
    staged: tuple[Staged, ...]
    completed: frozenset[str] = frozenset()
    """Operators that will never do anything more."""
    waiting: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How many tuples wait on the inputs of operators with several."""
    error: bytes | None = None
    """A pickled exception."""
    error_place: tuple[bytes, int] = (b"", 0)
    """The slice, and the position in it, of the tuple that made it fail."""
