"""Where an edge leaves a task: the only code that finds the target task of every tuple."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engines.batch_shares import usual_owners
from penstock.engines.spark import wire
from penstock.engines.spark.columns import column_hashes, key_hashes
from penstock.engines.spark.marks import Marker, rises_of, share_of
from penstock.engines.spark.stages import Exit, Level
from penstock.ordering.keys import key_hash
from penstock.plan.groups import Spread
from penstock.schema import rows_of_table

_NO_KEY = -1


class Door:
    """One edge, as it leaves a task."""

    def __init__(self, exit: Exit, level: Level, owners: Mapping[int, Sequence[int]]) -> None:
        self._exit = exit
        self.target = exit.target
        self._buckets = level.buckets
        self.loads = np.zeros(level.buckets, dtype=np.int64)
        """How many tuples were for each bucket; they are counted where there is more than one task."""
        found = owners.get(exit.target)
        self._owners = np.array(usual_owners(level.buckets, exit.tasks) if found is None else found, dtype=np.int64)

    def rows(self, part: wire.Slice) -> Iterator[wire.ShuffleRow]:
        exit = self._exit
        if exit.marker is not None:
            yield from self._with_marks(part, exit.marker)
        elif exit.spread is Spread.KEYS and exit.tasks > 1:
            yield from self._by_key(part)
        else:
            task = _mixed(part.sort_key) % exit.tasks if exit.spread is Spread.SLICES else 0
            yield self._row(part.sort_key, task, wire.packed(part.values, part.positions))

    def _by_key(self, part: wire.Slice) -> Iterator[wire.ShuffleRow]:
        targets = self._targets(self._hashes(part.values))
        columns = part.column()
        for task in range(self._exit.tasks):
            indices = np.flatnonzero(targets == task)
            if len(indices):
                chosen = part.values if len(indices) == len(part.values) else _chosen(part.values, indices)
                yield self._row(part.sort_key, task, wire.packed(chosen, tuple(column[indices] for column in columns)))

    def _with_marks(self, part: wire.Slice, marker: Marker) -> Iterator[wire.ShuffleRow]:
        """To every task, even if it gets no tuple."""
        rows = rows_of_table(part.values) if isinstance(part.values, pa.Table) else part.values
        hashes = self._hashes(rows)
        marks = marker.marks(rows, hashes != _NO_KEY)
        rises = rises_of(marks) if marker.tells_rises else None
        targets = self._targets(hashes)
        (column,) = part.column()
        for task in range(self._exit.tasks):
            indices = np.flatnonzero(targets == task)
            payload = wire.packed(_chosen(part.values, indices), (column[indices],), share_of(marks, indices, rises))
            yield self._row(part.sort_key, task, payload)

    def _targets(self, hashes: Any) -> Any:
        """The task of each tuple; what has no key goes to the first, whose operator fails on it."""
        buckets = hashes % self._buckets
        has_key = hashes != _NO_KEY
        self.loads += np.bincount(buckets[has_key], minlength=self._buckets)
        return np.where(has_key, self._owners[buckets], 0)

    def _hashes(self, values: wire.Values) -> Any:
        key = self._exit.key
        assert key is not None
        if isinstance(values, pa.Table):
            if (hashes := column_hashes(values, key.columns)) is not None:
                return hashes
            values = rows_of_table(values)
        try:
            return key_hashes(list(map(key.fn, values)))
        except BaseException:
            return np.array([_hash_of(key.fn, value) for value in values], dtype=np.int64)

    def _row(self, sort_key: bytes, task: int, payload: bytes) -> wire.ShuffleRow:
        exit = self._exit
        final = exit.first + task
        return wire.ShuffleRow(exit.level, final, final, wire.sort_key_through(exit.rank, sort_key), exit.edge, payload)


def _hash_of(key: Callable[[Any], Any], value: Any) -> int:
    try:
        return key_hash(key(value))
    except BaseException:
        return _NO_KEY


def _chosen(values: wire.Values, indices: Any) -> wire.Values:
    return values.take(indices) if isinstance(values, pa.Table) else [values[index] for index in indices.tolist()]


def _mixed(sort_key: bytes) -> int:
    """Neighbouring slices of one split, and the first slices of all splits, go to different tasks."""
    return sum(sort_key)
