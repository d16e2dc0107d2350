"""Keyed functions with a `ttl`: a state expires when the latest time of all keys is so far ahead of its last tuple."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.clock import WallClock
from penstock.engines.durable.keyed_states import KeyedStates
from penstock.engines.spark.wire import Marks
from penstock.flow.nodes import Remembers
from penstock.operators.functions import Form, listed
from penstock.operators.times import checked_time
from penstock.ordering.keys import key_bytes

_BATCHES_PER_ROUND = 16


class ExpiringFunction:
    """Stands for the function in a generated loop; returns the outputs of one value.

    A state is kept with the latest time when it was touched. Whether it has expired is asked when its key comes again;
    the states of keys that never come again are swept out, some buckets in each batch.
    """

    def __init__(self, kind: Remembers, states: KeyedStates, batch: int) -> None:
        assert kind.key is not None
        assert kind.ttl is not None
        self._kind = kind
        self._key = kind.key.fn
        self._ttl = kind.ttl
        self._states = states
        self._latest: Any = states.shared()
        self._batch = batch
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
        entry = self._current.get(identity) or self._states.get(identity)
        state = kind.init() if entry is None or self._has_expired(entry) else entry[0]
        state, output = kind.fn(state, value)
        outputs = listed(Form.FLAT_MAP, kind.fn, output) if kind.many else [output]
        self._current[identity] = (state, self._latest)
        return [(key, one) for one in outputs] if kind.with_key else outputs

    def _rise(self, mark: Any) -> None:
        if mark is not None and (self._latest is None or mark > self._latest):
            self._latest = mark

    def _has_expired(self, entry: tuple[Any, Any]) -> bool:
        return bool(entry[1] < self._latest - self._ttl.along(self._latest))

    def keep(self) -> None:
        """Hand the changes to the store."""
        expired = []
        if self._latest is not None:
            some = self._states.mine(self._batch % _BATCHES_PER_ROUND, _BATCHES_PER_ROUND)
            expired = [
                identity for identity, entry in some if identity not in self._current and self._has_expired(entry)
            ]
        self._states.change(self._current, expired)
        self._states.keep_shared(self._latest)
