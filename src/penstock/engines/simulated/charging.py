"""A graph whose operators charge what they cost to a virtual clock, tuple by tuple."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from random import Random
from typing import Any

from penstock.clock import Clock
from penstock.connectors.sink import Rejected, Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split
from penstock.costs import Cost, Distribution
from penstock.errors import FlowError
from penstock.flow.nodes import Applies, Graph, Loops, Node, Reads, Remembers, Waits, Writes
from penstock.operators.functions import Form
from penstock.rates import Rate

Charge = Callable[[Any], None]
Spend = Callable[[float, float], None]
"""Told how many seconds were spent with the GIL, and without it."""


class Charging:
    """Knows what a tuple costs each operator, and what pays for it."""

    def __init__(
        self,
        costs: Mapping[str, Cost],
        spender: Callable[[str], Spend],
        seed: int,
        input_rate: Rate | None,
        computes: bool,
        companion_seconds: float | None,
        chunk_seconds: float,
        room: Callable[[str], float],
    ) -> None:
        """`room`: how many tuples the readers of a source can take now, by its name."""
        self._costs = costs
        self._spender = spender
        self._seed = seed
        self._input_rate = input_rate
        self._computes = computes
        self._companion_seconds = companion_seconds
        """What a tuple costs here when its function runs in a companion; `None` without companions."""
        self._chunk_seconds = chunk_seconds
        self._room = room
        self._loops: dict[str, Charge] = {}

    def charged(self, graph: Graph) -> Graph:
        """The same graph, in which every operator takes its time."""
        unknown = sorted(set(self._costs) - {node.name for node in graph.nodes})
        if unknown:
            names = ", ".join(node.name for node in graph.nodes)
            raise FlowError(f"costs= names {unknown[0]!r}, but flow {graph.flow!r} has only {names}")
        return replace(graph, nodes=tuple(map(self._node, graph.nodes)))

    def charge_loop(self, node: Node, values: Sequence[Any]) -> None:
        """A driver loop is about to work on these."""
        charge = self._loops.get(node.name)
        if charge is not None:
            for value in values:
                charge(value)

    def _node(self, node: Node) -> Node:
        cost = self._costs.get(node.name)
        charge = None if cost is None else self._charge(node, cost)
        kind = node.kind
        match kind:
            case Reads():
                toll = None if charge is None else _Toll(charge, self._chunk_seconds, partial(self._room, node.name))
                return replace(node, kind=replace(kind, source=_PacedSource(kind.source, toll, self._input_rate)))
            case Writes() if charge is not None:
                return replace(node, kind=replace(kind, sink=_ChargedSink(kind.sink, charge)))
            case Applies():
                return replace(node, kind=replace(kind, fn=self._function(kind, cost, charge, node.name)))
            case Remembers():
                return replace(node, kind=replace(kind, fn=self._remembering(kind, cost, charge, node.name)))
            case Waits() if charge is not None:
                return replace(node, kind=replace(kind, times=tuple(_first(charge, time) for time in kind.times)))
            case Loops() if charge is not None:
                self._loops[node.name] = charge
        return node

    def _charge(self, node: Node, cost: Cost) -> Charge:
        """What to call with each tuple of an operator."""
        spend, seconds = self._spender(node.name), cost.seconds
        released, here = cost.released, 0.0
        if self._companion_seconds is not None and isinstance(node.kind, Applies):
            released, here = 1.0, self._companion_seconds
        python = 1.0 - released
        if isinstance(seconds, Distribution):
            draw, random = seconds.draw, self._random(node.name)

            def charge(value: Any) -> None:
                drawn = draw(random)
                spend(here + drawn * python, drawn * released)

        elif callable(seconds):
            of = seconds

            def charge(value: Any) -> None:
                found = of(value)
                spend(here + found * python, found * released)

        else:
            with_gil, without = here + seconds * python, seconds * released

            def charge(value: Any) -> None:
                spend(with_gil, without)

        return charge

    def _random(self, name: str) -> Random:
        return Random(f"{self._seed} {name}")

    def _function(self, kind: Applies, cost: Cost | None, charge: Charge | None, name: str) -> Callable[..., Any]:
        fn = kind.fn if self._computes else self._stand_in(kind, cost, name)
        if charge is None:
            return fn
        if kind.form is Form.ASYNC:
            return _awaited(cost, fn, self._random(name))
        if kind.form is Form.BATCH:
            return _each_first(charge, fn, list)
        if kind.form is Form.ARROW:
            return _each_first(charge, fn, lambda batch: range(batch.num_rows))
        return _first(charge, fn)

    def _remembering(
        self, kind: Remembers, cost: Cost | None, charge: Charge | None, name: str
    ) -> Callable[[Any, Any], tuple[Any, Any]]:
        fn = kind.fn
        if not self._computes:
            copies = _Copies(cost, self._random(name))
            fn = (lambda state, value: (state, copies(value))) if kind.many else (lambda state, value: (state, value))
        if charge is None:
            return fn

        def charged(state: Any, value: Any) -> tuple[Any, Any]:
            charge(value)
            return fn(state, value)

        return charged

    def _stand_in(self, kind: Applies, cost: Cost | None, name: str) -> Callable[..., Any]:
        """Does not what the function does, but gives as many tuples."""
        copies = _Copies(cost, self._random(name))
        match kind.form:
            case Form.FILTER | Form.BRANCH:
                return lambda value: bool(copies(value))
            case Form.FLAT_MAP:
                return copies
            case Form.ASYNC:
                return _itself
        return lambda value: value


class _Copies:
    """As many copies of a tuple as come out on average."""

    def __init__(self, cost: Cost | None, random: Random) -> None:
        self._outputs = 1.0 if cost is None or cost.outputs is None else cost.outputs
        self._random = random

    def __call__(self, value: Any) -> list[Any]:
        whole = int(self._outputs)
        return list(repeat(value, whole + (self._random.random() < self._outputs - whole)))


async def _itself(value: Any) -> Any:
    return value


def _first(charge: Charge, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def charged(value: Any) -> Any:
        charge(value)
        return fn(value)

    return charged


def _each_first(charge: Charge, fn: Callable[[Any], Any], each: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def charged(values: Any) -> Any:
        for value in each(values):
            charge(value)
        return fn(values)

    return charged


def _awaited(cost: Cost | None, fn: Callable[[Any], Any], random: Random) -> Callable[[Any], Any]:
    """What is awaited takes time, but no core."""
    assert cost is not None
    seconds = cost.seconds

    async def charged(value: Any) -> Any:
        if isinstance(seconds, Distribution):
            await asyncio.sleep(seconds.draw(random))
        else:
            await asyncio.sleep(seconds(value) if callable(seconds) else seconds)
        return await fn(value)

    return charged


class _Toll:
    """What a source pays for what it reads: no more at once than a chunk of work, and than its readers can take."""

    def __init__(self, charge: Charge, chunk_seconds: float, room: Callable[[], float]) -> None:
        self._charge = charge
        self._chunk_seconds = chunk_seconds
        self._room = room

    def pay(self, values: Sequence[Any], first: int, end: int, clock: Clock) -> int:
        """Pay for some of these in a row, at least for one; the place behind the last."""
        charge, now = self._charge, clock.now
        until, end = now() + self._chunk_seconds, int(min(end, first + max(1, self._room())))
        for place in range(first, end):
            charge(values[place])
            if now() >= until:
                return place + 1
        return end


class _PacedSource(Source):
    """Another source, whose tuples cost something, and come no faster than a rate."""

    def __init__(self, source: Source, toll: _Toll | None, rate: Rate | None) -> None:
        self._source = source
        self._toll = toll
        self._rate = rate
        self.name, self.bounded, self.replayable = source.name, source.bounded, source.replayable
        self.schema, self.counts_rows = source.schema, source.counts_rows
        self.on_change, self.settled = source.on_change, source.settled  # type: ignore[method-assign]
        self.identity, self.changed = source.identity, source.changed  # type: ignore[method-assign]
        self._started: float | None = None
        self._count = 0

    def splits(self) -> Sequence[Split]:
        self._started, self._count = None, 0
        return self._source.splits()

    def describe(self) -> str:
        return self._source.describe()

    def offered(self, now: float) -> float | None:
        if self._rate is None or self._started is None:
            return self._source.offered(now)
        return self._rate.count_by(now - self._started)

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        for chunk in self._source.read(split, clock):
            if not chunk.values or (self._toll is None and self._rate is None):
                yield chunk
            else:
                yield from self._parts(chunk, clock)

    def _parts(self, chunk: Chunk, clock: Clock) -> Iterator[Chunk]:
        """A chunk in parts: of each, all has come, and is paid for."""
        values, came = chunk.values, chunk.came
        place, whole = 0, len(values)
        while place < whole:
            end = whole
            if self._rate is not None:
                now = clock.now()
                if self._started is None:
                    self._started = now
                came = self._started + self._rate.time_of(self._count)
                if came > now:
                    yield Chunk((), chunk.end, idle_seconds=came - now)
                    continue
                end = min(whole, place + self._rate.due(self._count, now - self._started))
            if self._toll is not None:
                end = self._toll.pay(values, place, end, clock)
            part = values if end - place == whole else values[place:end]
            self._count += end - place
            place = end
            # Where positions count tuples, this one leads behind the part; elsewhere only the chunk's own is known.
            position = chunk.end - whole + place if self.counts_rows else chunk.end
            yield replace(chunk, values=part, end=position, came=came)


class _ChargedSink(Sink):
    """Another sink, whose tuples cost something."""

    def __init__(self, sink: Sink, charge: Charge) -> None:
        self._sink = sink
        self._charge = charge
        self.name, self.delivery, self.any_thread = sink.name, sink.delivery, sink.any_thread

    def open(self) -> SinkWriter:
        return _ChargedWriter(self._sink.open(), self._charge)

    def describe(self) -> str:
        return self._sink.describe()


class _ChargedWriter(SinkWriter):
    def __init__(self, writer: SinkWriter, charge: Charge) -> None:
        self._writer = writer
        self._charge = charge

    def write(self, values: Sequence[Any]) -> Rejected | None:
        for value in values:
            self._charge(value)
        return self._writer.write(values)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.abandon()
