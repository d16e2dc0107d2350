"""Keyed states with a `ttl`: forgotten when the latest time of all keys is so far ahead of their last tuple."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.clock import WallClock
from penstock.engines.spark.wire import Marks
from penstock.flow.nodes import Node, Remembers
from penstock.operators.functions import Form, listed
from penstock.operators.times import checked_time
from penstock.ordering.keys import key_bytes
from penstock.state.buckets import Place, TaskStates

_BATCHES_PER_ROUND = 16


class Forgetting:
    """Stands for the function in a generated loop; returns the outputs of one value.

    A state is kept with the latest time when it was touched. Whether it is forgotten is asked when its key comes
    again; those that never come again are swept out, some buckets in each batch.
    """

    def __init__(self, node: Node, states: TaskStates, buckets: int, is_mine: Callable[[int], bool]) -> None:
        assert isinstance(node.kind, Remembers)
        assert node.kind.key is not None
        assert node.kind.ttl is not None
        self._kind = node.kind
        self._key = node.kind.key.fn
        self._ttl = node.kind.ttl
        self._operator = node.name
        self._states = states
        self._buckets = buckets
        self._is_mine = is_mine
        self._about_place = Place(node.name, buckets)
        self._latest: Any
        self._round: int
        self._latest, self._round = states.get(self._about_place, None, None) or (None, 0)
        self._clock = WallClock()
        self._current: dict[bytes, tuple[Any, Any]] = {}
        self._marks: Iterator[Any] = iter(())

    def begin(self, marks: Marks | None) -> None:
        """The values of a slice are next."""
        self._marks = iter(() if marks is None else marks.at)

    def end(self, marks: Marks | None) -> None:
        """They were the last; time has gone on for the others as well."""
        if marks is not None:
            self._rise(marks.after)

    def __call__(self, value: Any) -> list[Any]:
        kind = self._kind
        mark = next(self._marks) if kind.time is not None else self._clock.now()
        key = self._key(value)
        identity = key_bytes(key)
        if kind.time is not None:
            checked_time(kind.time(value))
        self._rise(mark)
        entry = self._current.get(identity) or self._states.get(self._place(identity), identity, None)
        state = kind.init() if entry is None or self._is_over(entry) else entry[0]
        state, output = kind.fn(state, value)
        outputs = listed(Form.FLAT_MAP, kind.fn, output) if kind.many else [output]
        self._current[identity] = (state, self._latest)
        return [(key, one) for one in outputs] if kind.with_key else outputs

    def _rise(self, mark: Any) -> None:
        if mark is not None and (self._latest is None or mark > self._latest):
            self._latest = mark

    def _is_over(self, entry: tuple[Any, Any]) -> bool:
        return bool(entry[1] < self._latest - self._ttl.along(self._latest))

    def _place(self, identity: bytes) -> Place:
        return Place(self._operator, zlib.crc32(identity) % self._buckets)

    def keep(self) -> None:
        """Hand the changes to the store."""
        changed: Mapping[Place, dict[Any, Any]] = defaultdict(dict)
        for identity, entry in self._current.items():
            changed[self._place(identity)][identity] = entry
        for place, states in changed.items():
            self._states.change(place, states)
        for bucket in range(self._round % _BATCHES_PER_ROUND, self._buckets, _BATCHES_PER_ROUND):
            if self._is_mine(bucket) and self._latest is not None:
                place = Place(self._operator, bucket)
                self._states.change(
                    place, {}, [key for key, entry in self._states.items(place) if self._is_over(entry)]
                )
        if self._is_mine(0):
            self._states.change(self._about_place, {None: (self._latest, self._round + 1)})
