"""What happens to the tuples of some keys: the kernels of keyed operators, and the parts of units that they work on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Protocol

from penstock.clock import wall_time
from penstock.flow.nodes import Node
from penstock.operators.kept import Changed, Kept
from penstock.runtime.chain import changed_in, changes_number, compile_chain, kept_of, make_part, restore_part
from penstock.runtime.failures import Failure
from penstock.runtime.keyed_loops import KeyedLoops
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.teams.units import Unit

Found = dict[int, list[tuple[Any, Any]]]
"""By output port: what came out, and its place: the position in its unit of the tuple that it came of."""
Fail = Callable[[Any, Any, BaseException], None]
"""Told the place of a tuple, the tuple and what happened; raises `Failure` if that ends the flow."""


@dataclass(slots=True, eq=False)
class KeyedUnit(Unit):
    """A unit that several replicas work on."""

    parts: int = 0
    """How many of its parts are not done: what it holds for each bucket, and what else must be seen there."""
    found: Found = field(default_factory=lambda: defaultdict(list))
    error_at: Any = math.inf
    """The first place at which it ends."""

    def take_apart(self, buckets: Iterable[int]) -> list[BucketPart]:
        """A part for each bucket that a tuple belongs to."""
        parts: dict[int, BucketPart] = {}
        for position, (bucket, value) in enumerate(zip(buckets, self.values, strict=True)):
            part = parts.get(bucket)
            if part is None:
                part = parts[bucket] = BucketPart(self, bucket)
            part.positions.append(position)
            part.values.append(value)
        self.parts = len(parts)
        return list(parts.values())

    def more_parts(self, buckets: Sequence[int]) -> list[BucketPart]:
        """Parts without tuples, for buckets that must see the unit."""
        self.parts += len(buckets)
        return [BucketPart(self, bucket) for bucket in buckets]

    def add(self, part: BucketPart) -> bool:
        """One of its parts is done; whether that was the last. The caller must keep others from doing the same."""
        for port, found in part.found.items():
            self.found[port] += found
        if part.error is not None and part.error[0] < self.error_at:
            self.error_at, self.error = part.error
        self.parts -= 1
        return not self.parts

    def merge(self) -> None:
        """All parts are done: what came of them in the order of tuples, up to the first that ends it all."""
        for port, placed in self.found.items():
            values = [value for at, value in sorted(placed, key=itemgetter(0)) if at < self.error_at]
            if values:
                self.given.append((port, values, self.born))


class BucketPart:
    """What a unit holds for one bucket, and what came of it."""

    __slots__ = ("bucket", "error", "found", "late", "positions", "unit", "values")

    def __init__(self, unit: KeyedUnit, bucket: int) -> None:
        self.unit = unit
        self.bucket = bucket
        self.positions: list[int] = []
        self.values: list[Any] = []
        self.found: Found = {}
        self.error: tuple[Any, Failure] | None = None
        self.late = 0

    def fail(self, place: Any, failure: Failure) -> None:
        """It ends at this place."""
        self.error = (place, failure)

    def was_late(self) -> None:
        """One of its tuples has come too late."""
        self.late += 1

    @property
    def serial(self) -> int:
        return self.unit.serial

    def __len__(self) -> int:
        return len(self.values)


class BucketKernel(Protocol):
    """What works on some keys, and has their states; used by one member at a time."""

    def run(self, part: BucketPart, fail: Fail) -> None:
        """Work on a part: what comes out goes into its `found`."""
        ...

    def snapshot(self) -> Kept:
        """The states of its keys, as the operator's own cell would keep them."""
        ...

    def take_changed(self) -> Changed:
        """Those that have changed since this was last asked."""
        ...

    def restore(self, kept: Kept) -> None: ...


class FunctionBucket:
    """A keyed function over its share of the states."""

    def __init__(self, run: Surroundings, node: Node) -> None:
        is_numbered = changes_number(node) or node.on_error != "fail"
        part = make_part(node, wall_time(run.clock), run.settings.knows_changes)
        self._chain = compile_chain([node], [part], is_numbered)

    def run(self, part: BucketPart, fail: Fail) -> None:
        found: list[Any] = []
        numbers: list[int] = []
        positions = part.positions

        def failed(_step: int, value: Any, error: BaseException, number: int | None = None) -> None:
            fail(positions[len(found) if number is None else number], value, error)

        try:
            self._chain.whole(part.values, [found, numbers] if self._chain.is_numbered else [found], failed, [0])
        finally:
            if self._chain.is_numbered:
                placed = [(positions[number], value) for number, value in zip(numbers, found, strict=True)]
            else:  # each has given one, up to the one that ended it
                placed = list(zip(positions, found, strict=False))
            part.found.setdefault(0, []).extend(placed)

    def snapshot(self) -> Kept:
        return kept_of(self._chain.parts[0])

    def take_changed(self) -> Changed:
        return changed_in(self._chain.parts[0])

    def restore(self, kept: Kept) -> None:
        restore_part(self._chain.parts[0], kept)


class LoopBucket:
    """A keyed driver loop: the loops of its keys."""

    def __init__(self, run: Surroundings, node: Node) -> None:
        self._fail: Fail
        self._node = node
        self._on_loop = run.settings.on_loop
        self.loops = KeyedLoops(
            node, self._failed, is_stopping=lambda: run.is_stopping, knows_changes=run.settings.knows_changes
        )

    def run(self, part: BucketPart, fail: Fail) -> None:
        self._fail = fail
        if self._on_loop is not None:
            self._on_loop(self._node, part.values)
        try:
            for position, value in zip(part.positions, part.values, strict=True):
                self.loops.arrive(0, value, because=position)
        finally:
            for port, found in self.loops.take_found().items():
                part.found.setdefault(port, []).extend(found)

    def end(self, identity: bytes, at: int, part: BucketPart, fail: Fail) -> None:
        """The last words of a key, which is the so-many-th to say them."""
        self._fail = lambda _, value, error: fail(at, value, error)
        try:
            self.loops.end(0, identity)
        finally:
            for port, found in self.loops.take_found().items():
                part.found.setdefault(port, []).extend((at, value) for _, value in found)

    def _failed(self, value: Any, error: BaseException) -> None:
        self._fail(self.loops.because, value, error)

    def snapshot(self) -> Kept:
        return Kept(self.loops.snapshots())

    def take_changed(self) -> Changed:
        return Changed(self.loops.take_changed())

    def restore(self, kept: Kept) -> None:
        for identity, (key, snapshot) in kept.by_key.items():
            self.loops.add(identity, key, snapshot)
