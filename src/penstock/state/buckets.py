"""The states that a task works on: the only code that decides which attempt of a task may see which object."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.state.chains import (
    NO_VERSION,
    BucketId,
    Segment,
    SegmentChain,
    compacted,
    first_to_compact,
    holds,
    steps,
    urgency_of,
    version_of,
)
from penstock.state.files import Files
from penstock.state.pickles import Changes, dumps, pack, read

__all__ = ["CACHE", "BucketId", "Cache", "LoadedBucket", "Segment", "SegmentChain", "TaskStates"]

FOLDER = "state"
_CACHE_BYTES = 512 << 20
# A new base costs three times what was changed since the last one, and merging on the way about as much again.
_COMPACTED_PER_CHANGED_BYTE = 8


@dataclass
class LoadedBucket:
    """The states of one bucket at one version; what each segment since the base has changed; the sizes of the steps."""

    version: str = NO_VERSION
    states: dict[Hashable, Any] = field(default_factory=dict)
    changed: dict[str, Changes] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def take_in(self, segment: Segment, changes: Changes) -> None:
        """What a segment has changed, which was read."""
        if segment.is_base:
            self.states = changes.states
        else:
            changes.apply_to(self.states)
            self.changed[segment.sha256] = changes

    def add(self, segment: Segment, changes: Changes) -> None:
        """One more segment, with what has changed here already."""
        self.changed[segment.sha256] = changes
        self.sizes.append(segment.length)
        self.version = segment.version

    def settle(self, chain: SegmentChain) -> None:
        """Bring to a chain what is known of its segments."""
        needed = steps(chain)
        self.version = version_of(chain)
        self.sizes = [segment.length for segment in needed]
        since_base = [segment.sha256 for segment in needed if not segment.is_base]
        self.changed = {name: self.changed[name] for name in since_base if name in self.changed}


class Cache:
    """The buckets that this process has loaded and no task works on, the least recently used out first.

    >>> cache = Cache(limit_bytes=100)
    >>> cache.put("query", BucketId("count", 1), LoadedBucket(sizes=[60]))
    >>> cache.put("query", BucketId("count", 2), LoadedBucket(sizes=[60]))
    >>> cache.take("query", BucketId("count", 1)) is None, cache.take("query", BucketId("count", 2)).size_bytes
    (True, 60)
    """

    def __init__(self, limit_bytes: int = _CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._buckets: OrderedDict[tuple[str, BucketId], LoadedBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, query: str, bucket_id: BucketId) -> LoadedBucket | None:
        """The bucket, which is then the caller's alone."""
        bucket = self._buckets.pop((query, bucket_id), None)
        if bucket is not None:
            self._size_bytes -= bucket.size_bytes
        return bucket

    def put(self, query: str, bucket_id: BucketId, bucket: LoadedBucket) -> None:
        """Keep a bucket that does not change any more."""
        self.take(query, bucket_id)
        self._buckets[query, bucket_id] = bucket
        self._size_bytes += bucket.size_bytes
        while self._size_bytes > self._limit_bytes:
            _, oldest = self._buckets.popitem(last=False)
            self._size_bytes -= oldest.size_bytes


CACHE = Cache()


class TaskStates:
    """The states that one task reads and changes in one batch: nothing is visible before the manifest names the file.

    >>> import tempfile
    >>> files, bucket_id = Files(tempfile.mkdtemp()), BucketId("count", 7)
    >>> task = TaskStates(files, "query", {}, Cache())
    >>> task.change(bucket_id, {"a": task.get(bucket_id, "a", 0) + 1})
    >>> chains = task.commit()
    >>> TaskStates(files, "query", chains, Cache()).get(bucket_id, "a", 0)
    1
    """

    def __init__(
        self,
        files: Files,
        query: str,
        chains: Mapping[BucketId, SegmentChain],
        cache: Cache = CACHE,
        dumps: Callable[[Any], bytes] = dumps,
    ) -> None:
        self._files = files
        self._query = query
        self._chains = chains
        self._cache = cache
        self._dumps = dumps
        self._buckets: dict[BucketId, LoadedBucket] = {}
        self._changes: dict[BucketId, Changes] = {}

    def get(self, bucket_id: BucketId, key: Hashable, default: Any) -> Any:
        """The key's state; a caller that changes it in place must hand it to `change`, or abandon the task."""
        return self.states(bucket_id).get(key, default)

    def states(self, bucket_id: BucketId) -> Mapping[Hashable, Any]:
        """All states of a bucket, for reading many without a call for each."""
        bucket = self._buckets.get(bucket_id)
        if bucket is None:
            bucket = self._buckets[bucket_id] = self._load(bucket_id)
        return bucket.states

    def items(self, bucket_id: BucketId) -> Iterator[tuple[Hashable, Any]]:
        """All keys and states of a bucket, as they are now, whatever is changed on the way."""
        return iter(list(self.states(bucket_id).items()))

    def change(self, bucket_id: BucketId, states: Mapping[Hashable, Any], deleted: Collection[Hashable] = ()) -> None:
        """Set the states of some keys and forget those of others."""
        if states or deleted:
            self.states(bucket_id)
            change = Changes(dict(states), dict.fromkeys(deleted))
            change.apply_to(self._buckets[bucket_id].states)
            self._changes.setdefault(bucket_id, Changes({}, {})).add(change)

    def commit(self) -> dict[BucketId, SegmentChain]:
        """Write all changes as one file, and return the new whole chain of every changed bucket."""
        buckets, changes = self._buckets, self._changes
        self.abandon()  # whatever fails from here on leaves nothing in the cache
        chains = _Commit(self._files, buckets, self._dumps).write(self._chains, changes) if changes else {}
        self._chains = {**self._chains, **chains}
        for bucket_id, bucket in buckets.items():
            self._cache.put(self._query, bucket_id, bucket)
        return chains

    def abandon(self) -> None:
        """Forget what was read and changed: a failed attempt leaves nothing in the cache."""
        self._buckets, self._changes = {}, {}

    def _load(self, bucket_id: BucketId) -> LoadedBucket:
        chain = self._chains.get(bucket_id, ())
        bucket = self._cache.take(self._query, bucket_id)
        if bucket is not None and bucket.version == version_of(chain):
            return bucket
        if bucket is not None and holds(chain, bucket.version):
            missing = steps(chain, after=bucket.version)
        else:
            bucket, missing = LoadedBucket(), steps(chain)
        for segment in missing:
            bucket.take_in(segment, read(self._files, bucket_id, segment))
        bucket.settle(chain)
        return bucket


class _Commit:
    """One file in the making, and the chains that will lead to it."""

    def __init__(self, files: Files, buckets: Mapping[BucketId, LoadedBucket], dumps: Callable[[Any], bytes]) -> None:
        self._files = files
        self._buckets = buckets
        self._dumps = dumps
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def write(
        self, before: Mapping[BucketId, SegmentChain], changes: Mapping[BucketId, Changes]
    ) -> dict[BucketId, SegmentChain]:
        chains = {
            bucket_id: self._append(bucket_id, before.get(bucket_id, ()), changes[bucket_id]) for bucket_id in changes
        }
        self._compact(chains)
        data = b"".join(self._parts)
        name = self._files.keep(f"{FOLDER}/", data).file
        return {
            bucket_id: tuple(segment if segment.file else segment.named(name) for segment in chain)
            for bucket_id, chain in chains.items()
        }

    def _append(self, bucket_id: BucketId, chain: SegmentChain, changes: Changes) -> SegmentChain:
        bucket = self._buckets[bucket_id]
        # Where every state there is has changed, the change is a base, for nothing.
        is_base = len(changes.states) == len(bucket.states)
        if is_base:  # what is gone was in another base
            changes = Changes(changes.states, {})
        segment = self._add(bucket_id, version_of(chain), changes, is_base=is_base)
        chain = (segment,) if is_base else (*chain, segment)
        bucket.add(segment, changes)
        if is_base:
            bucket.settle(chain)
        return chain

    def _compact(self, chains: dict[BucketId, SegmentChain]) -> None:
        """Compact what is most due, within a budget, so that a batch costs in the end what it changes."""
        urgency = {bucket_id: urgency_of(self._buckets[bucket_id].sizes) for bucket_id in chains}
        due = sorted((one for one in chains if urgency[one] > 1), key=lambda one: (-urgency[one], one))
        left_bytes = _COMPACTED_PER_CHANGED_BYTE * self._size_bytes
        for rank, bucket_id in enumerate(due):
            sizes = self._buckets[bucket_id].sizes
            # The first may cost what it likes, or what is larger than any budget would never be compacted.
            first = first_to_compact(sizes, left_bytes if rank else math.inf)
            if first is not None:
                chains[bucket_id] = self._compacted(bucket_id, chains[bucket_id], first)
                left_bytes -= sum(sizes[first:]) if rank else 0

    def _compacted(self, bucket_id: BucketId, chain: SegmentChain, first: int) -> SegmentChain:
        bucket = self._buckets[bucket_id]
        if first == 0:
            together = Changes(bucket.states, {})
        else:
            together = Changes({}, {})
            for segment in steps(chain)[first:]:
                # What isn't known here was compacted by another process.
                together.add(bucket.changed.get(segment.sha256) or read(self._files, bucket_id, segment))
        segment = self._add(bucket_id, bucket.version, together, is_base=first == 0, upto=bucket.version)
        bucket.changed[segment.sha256] = together
        chain = compacted(chain, first, segment)
        bucket.settle(chain)
        return chain

    def _add(self, bucket_id: BucketId, version: str, changes: Changes, *, is_base: bool, upto: str = "") -> Segment:
        """One more segment of a file that has no name yet."""
        body = pack(bucket_id, version, changes, self._dumps)
        keys = len(self._buckets[bucket_id].states)
        segment = Segment("", self._size_bytes, len(body), self._files.digest(body), is_base, upto, keys)
        self._parts.append(body)
        self._size_bytes += len(body)
        return segment
