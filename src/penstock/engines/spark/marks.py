"""How far the watermark is at each tuple of a slice: the task that sees it whole tells those that get parts of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.engines.spark.wire import Marks
from penstock.flow.nodes import Key, Loops, Node, Remembers, Waits
from penstock.operators.timed import TimedTable
from penstock.operators.times import Time, checked_time
from penstock.plan.groups import interleaves


@dataclass(frozen=True)
class Marker:
    """What a tuple's mark is; `None` says that it makes none."""

    time: Callable[[Any], Time]
    mark_of: Callable[[Time], Time | None]
    tells_rises: bool = False

    def marks(self, values: Sequence[Any], has_key: Sequence[bool]) -> list[Any]:
        """For each value the highest mark so far, itself included; what has no key or no time is passed over."""
        time, mark_of = self.time, self.mark_of
        highest: Any = None
        found = []
        for value, counts in zip(values, has_key, strict=True):
            if counts:
                try:
                    mark = mark_of(time(value))
                    if highest is None or mark > highest:
                        highest = mark
                except BaseException:  # its operator fails on it
                    pass
            found.append(highest)
        return found


def marker_of(node: Node, side: int) -> Marker:
    match node.kind:
        case Waits() as kind:
            return Marker(kind.times[side], TimedTable(kind.logic, kind.lateness).mark_of, interleaves(node))
        case Remembers(time=time) if time is not None:
            return Marker(time, checked_time)
    raise AssertionError(node.kind)


def key_of(node: Node, side: int) -> Key:
    """How an input of a keyed operator finds its keys."""
    match node.kind:
        case Waits(keys=keys) | Loops(keys=keys):
            return keys[side]
        case Remembers(key=Key() as key):
            return key
    raise AssertionError(node.kind)


def rises_of(marks: list[Any]) -> tuple[Any, list[Any]]:
    """Where marks rise, and to what."""
    before = [None, *marks[:-1]]
    rises = [index for index, mark in enumerate(marks) if mark is not before[index]]
    return np.array(rises, dtype=np.int64), [marks[index] for index in rises]


def share_of(marks: list[Any], indices: Any, rises: tuple[Any, list[Any]] | None) -> Marks:
    """What a task is told of a slice's marks: those of its own tuples, and the last; or all of them."""
    return Marks([marks[index] for index in indices.tolist()], marks[-1] if marks else None, rises)
