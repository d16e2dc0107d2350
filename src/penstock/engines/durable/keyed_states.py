"""The states of one operator in the store: the only code through which engines read and change them, by key.

Every engine keeps the same of an operator, so that another can go on: its states by key, and a rest that belongs to
none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any

from penstock.flow.nodes import Node, Remembers
from penstock.operators.kept import Changed, Kept
from penstock.ordering.keys import bucket_of, identity_of
from penstock.state.buckets import BucketId, TaskStates

_SHARED = -1
"""The bucket of what belongs to no key, however many buckets there are."""


def identity_in(node: Node) -> Callable[[Any], bytes]:
    """How the store's keys of an operator become the bytes by which a bucket is chosen."""
    match node.kind:
        case Remembers(key=None):
            return lambda _: b""
        case Remembers(ttl=None):
            return identity_of
    return lambda identity: identity or b""  # timed operators and loops are kept by these bytes; a single loop by none


class KeyedStates:
    """States by key, in the buckets that are this task's own; and one that all tasks share.

    `identity` gives the bytes of a key, by which its bucket is chosen; by default, keys are these bytes.
    """

    def __init__(
        self,
        states: TaskStates,
        operator: str,
        buckets: int,
        is_mine: Callable[[int], bool] = lambda _: True,
        identity: Callable[[Any], bytes] = lambda key: key,
    ) -> None:
        self._states = states
        self._operator = operator
        self._buckets = buckets
        self._is_mine = is_mine
        self._identity = identity
        self._shared_id = BucketId(operator, _SHARED)

    def bucket_of(self, key: Any) -> int:
        return self.bucket_of_identity(self._identity(key)) if self._buckets > 1 else 0

    def bucket_of_identity(self, identity: bytes) -> int:
        """The same for a caller that has the bytes already."""
        return bucket_of(identity, self._buckets)

    def get(self, key: Any) -> Any:
        """The state of a key, or `None`."""
        return self._states.get(BucketId(self._operator, self.bucket_of(key)), key, None)

    def in_bucket(self, bucket: int) -> Mapping[Hashable, Any]:
        return self._states.states(BucketId(self._operator, bucket))

    def mine(self, first: int = 0, every: int = 1) -> Iterator[tuple[Any, Any]]:
        """The keys and states of this task's buckets: of all, or of every so many."""
        for bucket in filter(self._is_mine, range(first, self._buckets, every)):
            yield from self._states.items(BucketId(self._operator, bucket))

    def change_bucket(self, bucket: int, states: Mapping[Any, Any], deleted: Collection[Any] = ()) -> None:
        self._states.change(BucketId(self._operator, bucket), states, deleted)

    def change(self, states: Mapping[Any, Any], deleted: Collection[Any] = ()) -> None:
        """Set the states of some keys, and forget those of others, if they have any."""
        changed: Mapping[int, dict[Any, Any]] = defaultdict(dict)
        gone: Mapping[int, list[Any]] = defaultdict(list)
        for key, state in states.items():
            changed[self.bucket_of(key)][key] = state
        for key in deleted:
            bucket = self.bucket_of(key)
            if key in self.in_bucket(bucket):
                gone[bucket].append(key)
        for bucket in {*changed, *gone}:
            self.change_bucket(bucket, changed[bucket], gone[bucket])

    def shared(self) -> Any:
        """What the batch before has left for all tasks, or `None`; to be read only."""
        return self._states.get(self._shared_id, None, None)

    def keep_shared(self, value: Any) -> None:
        """Leave it for the next batch: all tasks know it, and one writes it."""
        if self._is_mine(0):
            self._states.change(self._shared_id, {None: value})

    def kept(self) -> Kept:
        """All that this task's buckets hold of the operator."""
        return Kept(dict(self.mine()), self.shared())

    def keep(self, changed: Changed) -> None:
        """Hand what has changed to the store."""
        deleted = changed.deleted
        if changed.is_all:
            deleted = [key for key, _ in self.mine() if key not in changed.by_key]
        self.change(changed.by_key, deleted)
        if changed.rest is not None:
            self.keep_shared(changed.rest)
