"""Hypothesis draws whole flows and compares them with the same steps over plain lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from tests.helpers import run
from tests.properties.engines import engines


@dataclass(frozen=True)
class Step:
    """An operator, and what it does to a list."""

    name: str
    on_stream: Callable[[Any], Any]
    on_list: Callable[[list[int]], list[int]]

    def __repr__(self) -> str:
        return self.name


class Differences(ps.Operator):
    async def process(self, ctx):
        while await ctx.wait_all():
            value = ctx.inputs[0].pop()
            await ctx.emit(value - ctx.state.get("last", 0))
            ctx.state["last"] = value


class PairSums(ps.Operator):
    async def process(self, ctx):
        (port,) = ctx.inputs
        while await ctx.wait_all({port: 2}):
            await ctx.emit(sum(port.pop_many(2)))
        await ctx.emit_many(port.pop_all())


class KeyedPositions(ps.Operator):
    kind = "keyed"

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            await ctx.emit(value * 100 + ctx.state["n"])


def running_counts(values):
    return [value * 100 + values[: place + 1].count(value) for place, value in enumerate(values)]


def by_parity(stream):
    return stream.key_by(lambda x: x % 3)


def distinct_thirds(values):
    return [v for place, v in enumerate(values) if v % 3 not in [w % 3 for w in values[:place]]]


def rejoined(stream):
    """A fork that rejoins in order: both ways carry every tuple, one of them marked."""
    return stream.map(lambda x: x + 1).zip(stream).map(lambda pair: pair[0] if pair[1] % 2 == 0 else pair[1])


STEPS = [
    Step("map", lambda s: s.map(lambda x: x * 2 + 1), lambda v: [x * 2 + 1 for x in v]),
    Step("filter", lambda s: s.filter(lambda x: x % 3), lambda v: [x for x in v if x % 3]),
    Step("flat_map", lambda s: s.flat_map(lambda x: [x] * (x % 3)), lambda v: [x for x in v for _ in range(x % 3)]),
    Step("map_batch", lambda s: s.map_batch(lambda xs: [x - 5 for x in xs]), lambda v: [x - 5 for x in v]),
    Step("dedupe", lambda s: by_parity(s).dedupe(), distinct_thirds),
    Step("differences", lambda s: s >> Differences(), lambda v: [b - a for a, b in zip([0, *v], v, strict=False)]),
    Step("pair sums", lambda s: s >> PairSums(), lambda v: [sum(v[i : i + 2]) for i in range(0, len(v), 2)]),
    Step("keyed positions", lambda s: s.key_by(lambda x: x) >> KeyedPositions(), running_counts),
    Step("zip with itself", lambda s: s.zip(s).map(sum), lambda v: [2 * x for x in v]),
    Step("fork and zip", rejoined, lambda v: [x + 1 if x % 2 == 0 else x for x in v]),
    Step(
        "skip",
        lambda s: s.map(lambda x: 12 // x if x else 1 // 0, on_error="skip"),
        lambda v: [12 // x for x in v if x],
    ),
]


@given(
    engines,
    st.lists(st.sampled_from(STEPS), max_size=6),
    st.integers(0, 6),
    st.lists(st.sampled_from(STEPS), max_size=3),
    st.lists(st.integers(-20, 20), max_size=30),
)
def test_flows_do_what_their_steps_do(engine, steps, fork, side_steps, values):
    """A chain with a second one that forks off it somewhere; each ends in a sink of its own."""

    def build(stream):
        streams = [stream]
        for step in steps:
            streams.append(step.on_stream(streams[-1]))
        side = streams[min(fork, len(steps))]
        for step in side_steps:
            side = step.on_stream(side)
        return streams[-1], side

    expected = [values]
    for step in steps:
        expected.append(step.on_list(expected[-1]))
    expected_side = expected[min(fork, len(steps))]
    for step in side_steps:
        expected_side = step.on_list(expected_side)
    assert run(engine, build, values) == [expected[-1], expected_side]
