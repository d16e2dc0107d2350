"""Where the states of a bucket are: the only code that knows how a chain of segments grows, shrinks and is read.

A chain is a base, then the changes since, each a segment of some file. Every change begins with the digest of the
change before it, so that its own digest stands for the whole history, as a commit's does in git: that is a `version`.
A compaction writes what its segments hold together as one segment, up to a version. The newest changes stay in the
chain behind it, though it contains them: a process that has a slightly older version in its cache finds its place
among them and reads only what follows; one that has nothing reads the compacted segment and skips them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

from penstock.state.files import Blob

NO_VERSION = "0" * 64
_MOST_SEGMENTS = 16
_KEPT_CHANGES = 16


@dataclass(frozen=True, order=True)
class BucketId:
    """One bucket of one operator."""

    operator: str
    bucket: int


@dataclass(frozen=True)
class Segment:
    """A range of a file that holds some states; `upto` is the version that a compaction has reached.

    >>> Segment.from_json(Segment("state/ab", 0, 10, "cd", True).to_json())
    Segment(file='state/ab', offset=0, length=10, sha256='cd', is_base=True, upto='', keys=0)
    """

    file: str
    offset: int
    length: int
    sha256: str
    is_base: bool
    upto: str = ""
    keys: int = 0
    """How many keys have states, as of this segment."""

    @property
    def version(self) -> str:
        """What a process that has read the chain up to here has."""
        return self.upto or self.sha256

    @property
    def blob(self) -> Blob:
        return Blob(self.file, self.sha256, self.offset, self.length)

    def named(self, file: str) -> Segment:
        """The segment in a file that has got its name."""
        return replace(self, file=file)

    def to_json(self) -> list[Any]:
        return [self.file, self.offset, self.length, self.sha256, int(self.is_base), self.upto, self.keys]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Segment:
        file, offset, length, sha256, is_base, upto, keys = fields
        return cls(file, offset, length, sha256, bool(is_base), upto, keys)


SegmentChain: TypeAlias = tuple[Segment, ...]


def version_of(chain: SegmentChain) -> str:
    """What a process has that has read the whole chain."""
    return chain[-1].version if chain else NO_VERSION


def holds(chain: SegmentChain, version: str) -> bool:
    """Whether a process that has this version can go on from there."""
    return any(segment.version == version for segment in chain)


def steps(chain: SegmentChain, after: str | None = None) -> SegmentChain:
    """The segments to read, in order: all that is needed, or what is missing after a version that the chain holds.

    >>> base, old, new = (Segment("f", 0, 1, name, name == "base", upto) for name, upto in
    ...                   [("base", "old"), ("old", ""), ("new", "")])
    >>> [segment.sha256 for segment in steps((base, old, new))]
    ['base', 'new']
    >>> [segment.sha256 for segment in steps((base, old, new), after="old")]
    ['new']
    """
    last = {segment.version: index for index, segment in enumerate(chain)}
    if after is None:
        index = max((index for index, segment in enumerate(chain) if segment.is_base), default=0)
    else:
        index = last[after] + 1
    found = []
    while index < len(chain):
        found.append(chain[index])
        index = last[chain[index].version] + 1
    return tuple(found)


def urgency_of(sizes: Sequence[int]) -> float:
    """How much a chain needs a compaction, by the sizes of its steps: above 1, one is due.

    >>> urgency_of([100, 30, 30]), urgency_of([1000, *[10] * 19])
    (1.2, 1.25)
    """
    return max(2 * (sum(sizes) - sizes[0]) / sizes[0], len(sizes) / _MOST_SEGMENTS)


def first_to_compact(sizes: Sequence[int], budget_bytes: float) -> int | None:
    """The step from which on it is worth writing one segment: the base when half of it has changed, else a change.

    Of too many changes, only those at the end are merged that aren't larger than all that follow them: so each byte is
    rewritten as often as what is behind it doubles, however large the base is.

    >>> first_to_compact([100, 30, 30], 1000), first_to_compact([100, 30, 30], 90)
    (0, None)
    >>> first_to_compact([1000, 200, *[10] * 15], 1000)
    2
    """
    behind = list(accumulate(reversed(sizes)))[::-1]
    if 2 * (behind[0] - sizes[0]) > sizes[0] and behind[0] <= budget_bytes:
        return 0
    if len(sizes) <= _MOST_SEGMENTS:
        return None
    worth_it = range(1, len(sizes) - _MOST_SEGMENTS // 2)
    return next((i for i in worth_it if sizes[i] <= behind[i + 1] and behind[i] <= budget_bytes), None)


def compacted(chain: SegmentChain, first: int, segment: Segment) -> SegmentChain:
    """The chain with one segment for its steps from `first` on, and behind it the newest changes, for catching up."""
    before = steps(chain)[:first]
    older = {step.version for step in before}  # one of these again, behind the new segment, would lead around it
    kept: list[Segment] = []
    room_bytes = segment.length
    for change in reversed(chain):
        if change.upto or change.is_base or change.version in older or len(kept) == _KEPT_CHANGES:
            break
        room_bytes -= change.length
        if kept and room_bytes < 0:
            break
        kept.insert(0, change)
    return (*before, segment, *kept)
