"""The states of one operator in the store: the only code that knows which bucket a key is in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any

from penstock.ordering.keys import bucket_of
from penstock.state.buckets import Place, TaskStates


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
        self._shared_place = Place(operator, buckets)

    def bucket_of(self, key: Any) -> int:
        return bucket_of(self._identity(key), self._buckets) if self._buckets > 1 else 0

    def get(self, key: Any) -> Any:
        """The state of a key, or `None`."""
        return self._states.get(Place(self._operator, self.bucket_of(key)), key, None)

    def in_bucket(self, bucket: int) -> Mapping[Hashable, Any]:
        return self._states.states(Place(self._operator, bucket))

    def mine(self, first: int = 0, every: int = 1) -> Iterator[tuple[Any, Any]]:
        """The keys and states of this task's buckets: of all, or of every so many."""
        for bucket in filter(self._is_mine, range(first, self._buckets, every)):
            yield from self._states.items(Place(self._operator, bucket))

    def change_bucket(self, bucket: int, states: Mapping[Any, Any], deleted: Collection[Any] = ()) -> None:
        self._states.change(Place(self._operator, bucket), states, deleted)

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
        return self._states.get(self._shared_place, None, None)

    def keep_shared(self, value: Any) -> None:
        """Leave it for the next batch: all tasks know it, and one writes it."""
        if self._is_mine(0):
            self._states.change(self._shared_place, {None: value})
