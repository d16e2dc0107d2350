"""The topologies of section 5.1, of driver loops as in C-Stream.

Or of functions, where Penstock would have functions: those can have replicas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import penstock as ps
from figures.c_stream.watching import CHUNK, Numbers, Out, Watch

BUSY = 12
DEPTH = 6
COST = 100e-6
SPLIT_SECONDS, MERGE_SECONDS = 4e-6, 10e-6
_LARGE_CHUNK = 64
"""As Penstock's own sources would read: a millisecond of work, or what the first queue holds."""
SOURCE_SECONDS, SINK_SECONDS = 16e-6, 10e-6
"""What the source of figures 9, 10 and 13 costs follows from what its readers reach; see there."""

Costs = dict[str, float]


class Busy(ps.Operator):
    """Forwards each tuple with some probability, to one of its outputs; what it costs, the engine is told."""

    def __init__(self, watch: Watch, inputs: int, outputs: int, selectivity: float, seed: int) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._watch = watch
        self._selectivity = selectivity
        self._seed = seed

    async def process(self, ctx: Any) -> None:
        draw, outputs, selectivity = random.Random(self._seed).random, self.outputs, self._selectivity
        while await ctx.wait_any():
            for port in ctx.inputs:
                for value in port.pop_all():
                    if selectivity < 1 and draw() >= selectivity:
                        self._watch.gone(value)
                    else:
                        await ctx.emit(value, int(draw() * outputs) if outputs > 1 else 0)


class Split(ps.Operator):
    """One tuple to each output in turn."""

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs

    async def process(self, ctx: Any) -> None:
        (port,), outputs = ctx.inputs, self.outputs
        while await ctx.wait_all():
            for value in port.pop_all():
                await ctx.emit(value, value[0] % outputs)


class InTurn(ps.Operator):
    """One tuple of each input in turn: what `Split` has split is in order again."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs

    async def process(self, ctx: Any) -> None:
        while True:
            for port in ctx.inputs:
                if not await ctx.wait_all({port: 1}):
                    return
                await ctx.emit(port.pop())


class Making:
    """Makes the busy operators of a flow, in one form or the other."""

    def __init__(self, flow: ps.Flow, watch: Watch, cost: float, selectivity: float, has_functions: bool) -> None:
        self.flow = flow
        self.watch = watch
        self.costs: Costs = {}
        self._cost = cost
        self._selectivity = selectivity
        self.has_functions = has_functions
        self.has_all = selectivity == 1

    def busy(self, name: str, *streams: Any, outputs: int = 1) -> Any:
        self.costs[name] = self._cost
        seed = len(self.costs)
        if not self.has_functions:
            loop = Busy(self.watch, len(streams), outputs, self._selectivity, seed)
            return self.flow.add(loop, *streams, name=name)
        stream = streams[0].merge(*streams[1:], name=f"merge-{name}") if len(streams) > 1 else streams[0]
        if outputs == 2:
            return stream.branch(lambda value: random.Random((seed << 32) + value[0]).random() < 0.5, name=name)
        return stream.map(_same, name=name)

    def read(self, name: str = "in") -> Any:
        chunk = _LARGE_CHUNK if self.has_functions else CHUNK
        return self.flow.read(Numbers(self.watch, chunk), name=name)


def _same(value: Any) -> Any:
    return value


def chain(make: Making, busy: int = BUSY, has_costly_ends: bool = False) -> None:
    stream = make.read()
    for number in range(busy):
        stream = make.busy(f"busy{number}", stream)
    stream.write(Out(make.watch, "all" if make.has_all else "rising"), name="out")
    if has_costly_ends:
        make.costs |= {"in": SOURCE_SECONDS, "out": SINK_SECONDS}


def data_parallel(make: Making, busy: int = BUSY) -> None:
    make.costs |= {"split": SPLIT_SECONDS, "merge": MERGE_SECONDS}
    if make.has_functions:  # an operator with replicas is what split and merge are there for; they cost what they cost
        stream = make.busy("busy", make.read().map(_same, name="split")).map(_same, name="merge")
    else:
        ways = make.flow.add(Split(busy), make.read(), name="split")
        done = [make.busy(f"busy{number}", way) for number, way in enumerate(ways)]
        stream = make.flow.add(InTurn(busy), *done, name="merge")
    stream.write(Out(make.watch, "all"), name="out")


def tree(make: Making, depth: int = DEPTH) -> None:
    level = [make.read()]
    for height in range(depth):
        is_leaf = height == depth - 1
        made = [
            make.busy(f"busy{height}-{place}", stream, outputs=1 if is_leaf else 2)
            for place, stream in enumerate(level)
        ]
        level = made if is_leaf else [way for ways in made for way in ways]
    for place, stream in enumerate(level):
        stream.write(Out(make.watch, "rising"), name=f"out{place}")


def reverse_tree(make: Making, depth: int = DEPTH) -> None:
    level = [make.busy(f"busy{depth - 1}-{place}", make.read(f"in{place}")) for place in range(2 ** (depth - 1))]
    for height in reversed(range(depth - 1)):
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [make.busy(f"busy{height}-{place}", *pair) for place, pair in enumerate(pairs)]
    # Each of the sources has its own numbers, and they arrive in any order.
    level[0].write(Out(make.watch, "any"), name="out")


TOPOLOGIES: dict[str, Callable[..., None]] = {
    "chain": chain,
    "data-parallel": data_parallel,
    "tree": tree,
    "reverse tree": reverse_tree,
}


def made(
    topology: str,
    watch: Watch,
    cost: float = COST,
    selectivity: float = 1.0,
    has_functions: bool = False,
    **shape: Any,
) -> tuple[ps.Flow, Costs]:
    """A flow, and what its operators cost."""
    flow = ps.Flow(topology.replace(" ", "-"))
    make = Making(flow, watch, cost, selectivity, has_functions)
    TOPOLOGIES[topology](make, **shape)
    return flow, make.costs
