"""What the driver tells the tasks of one level, and what they report to it: plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.connectors.source import WHOLE, Source, Split
from penstock.engines.durable.staging import Staged
from penstock.engines.spark.marks import Marker
from penstock.flow.nodes import Graph, Key, Node
from penstock.plan.groups import Spread
from penstock.state.buckets import BucketId, Segment, SegmentChain
from penstock.state.files import Files


@dataclass(frozen=True)
class Exit:
    """An edge that leaves a group: which output it takes, and where its tuples go."""

    edge: int
    outlet: str
    """The pseudo-sink of the group's graph that gathers them; nothing for what comes straight from a source.

    Of a keyed group, what `outlet_of` says.
    """
    level: int
    target: int
    """The number of the group that it enters."""
    first: int
    """The first partition of that group."""
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

    number: int
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
    """Where the tables of a source go that no operator here reads."""
    relays: Mapping[int, tuple[Exit, ...]]
    """Where the slices of an edge go on to as they are, having been put in order."""
    keyed: tuple[Node, ...] = ()
    """A keyed operator and the functions behind it."""
    sides: Mapping[int, int] = field(default_factory=dict)
    """The input of the keyed operator that each edge is for."""
    gathers: Node | None = None
    """A sink whose lines come written."""
    on_loop: Callable[[Node, Sequence[Any]], None] | None = None
    """Told what a driver loop is about to work on, in a rehearsal."""


@dataclass(frozen=True)
class Descriptor:
    """A part of a source that one task reads."""

    operator: str
    number: int
    """Counts the parts of its source in this batch."""
    partition: str
    start: int
    end: int | None
    spool: tuple[str, str] | None = None
    """The file in the checkpoint that holds the values, for sources that only the driver can read, and its digest."""
    identity: Any = None
    """What the source knows its partition by, read up to the end of this part."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Descriptor:
        return cls(**{**fields, "spool": None if fields["spool"] is None else tuple(fields["spool"])})

    @property
    def reached(self) -> int:
        """The position behind it; a partition of unknown length is read to its end."""
        return WHOLE if self.end is None else self.end

    @property
    def split(self) -> Split:
        return Split(self.partition, self.start, self.end, self.identity)


@dataclass(frozen=True)
class Level:
    """What the tasks of one level need in every batch, until the next rescale."""

    number: int
    levels: int
    query: str
    files: Files
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
    chains: Mapping[BucketId, SegmentChain]
    parts: tuple[tuple[Descriptor, ...], ...] = ()
    """At the first level, what each task reads."""
    owners: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Which of a group's tasks works on which bucket, for the keyed groups here and those that tuples go to."""

    def to_json(self) -> bytes:
        chains = [
            [bucket_id.operator, bucket_id.bucket, [segment.to_json() for segment in chain]]
            for bucket_id, chain in self.chains.items()
        ]
        parts = [[asdict(part) for part in of_task] for of_task in self.parts]
        owners = [[group, list(tasks)] for group, tasks in self.owners.items()]
        return json.dumps([self.number, self.closes, chains, parts, owners], separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> LevelBatch:
        number, closes, chains, parts, owners = json.loads(data)
        return cls(
            number,
            closes,
            {BucketId(operator, bucket): tuple(map(Segment.from_json, chain)) for operator, bucket, chain in chains},
            tuple(tuple(map(Descriptor.from_json, of_task)) for of_task in parts),
            {group: tuple(tasks) for group, tasks in owners},
        )


@dataclass(frozen=True)
class Sums:
    """How many tuples came to a task and went on from it, counted where they cross its borders."""

    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By source: how many parts, and how many tuples its reader gave for them, before they were cut into slices."""
    received: Mapping[int, int] = field(default_factory=dict)
    """By edge: what came off the wire."""
    sent: Mapping[int, int] = field(default_factory=dict)
    """By edge: what was given to its door."""


@dataclass(frozen=True)
class TaskReport:
    """What one task did; the same for every attempt, because it passes through exchanges."""

    level: int
    partition: int
    counts: Mapping[str, tuple[int, int, int, int]]
    """Received, emitted, failed and late tuples by operator."""
    chains: Mapping[BucketId, SegmentChain]
    staged: tuple[Staged, ...]
    completed: frozenset[str] = frozenset()
    """Operators that will never do anything more."""
    waiting: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How many tuples wait on the inputs of operators with several."""
    sums: Sums = field(default_factory=Sums)
    loads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By keyed group: how many tuples were sent to each of its buckets."""
    error: bytes | None = None
    """A pickled exception."""
    escaped: bool = False
    """Whether that is no `Exception`, so that no operator is named in it."""
    failed_at: tuple[bytes, int] = (b"", 0)
    """The slice, and the position in it, of the tuple that made it fail."""
