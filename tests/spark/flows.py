"""Flows of every shape, each as a function from a flow and a number of tuples to the streams that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import penstock as ps


@dataclass(frozen=True)
class Visit:
    """A class that Spark's tasks can't import: it has to travel."""

    user: int
    number: int


class Barrier(ps.Operator):
    inputs = 2

    async def process(self, ctx):
        while await ctx.wait_all():
            await ctx.emit(tuple(port.pop() for port in ctx.inputs))


class CountedToTheEnd(ps.Operator):
    """Emits every tuple, and how many there were when the stream ends; what it needs is in its state."""

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            ctx.state["count"] = ctx.state.get("count", 0) + 1
            await ctx.emit(value)
        await ctx.emit(("count", ctx.state.get("count", 0)))


class PerKey(ps.Operator):
    kind = "keyed"

    async def process(self, ctx):
        async for _ in ctx.inputs[0]:
            ctx.state["count"] = ctx.state.get("count", 0) + 1
            await ctx.emit((ctx.key, ctx.state["count"]))
        await ctx.emit((ctx.key, "end"))


class Doubled(ps.Operator):
    kind = "stateless"

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            await ctx.emit_many([value, value])


class Countdown(ps.Operator):
    """A source written as a driver loop."""

    inputs = 0

    async def process(self, ctx):
        for number in range(50):
            await ctx.emit(number)


class Gate(ps.Operator):
    """Lets a tuple in, and the next one when the first has come round."""

    controls = 1

    async def process(self, ctx):
        value, back = ctx.inputs[0], ctx.controls[0]
        while await ctx.wait_all({value: 1}):
            if ctx.state.get("sent") and not await ctx.wait_all({back: 1}):
                return
            if ctx.state.get("sent"):
                back.pop()
            ctx.state["sent"] = True
            await ctx.emit(value.pop())


def numbers(flow: ps.Flow, count: int) -> ps.Stream:
    return flow.read(ps.sources.items(list(range(count))))


def functions(flow, count):
    stream = numbers(flow, count).flat_map(lambda x: [x] * (x % 3)).map(str)
    return [stream.inspect(len), stream.map_batch(lambda texts: [text + "!" for text in texts]), stream.filter(bool)]


def awaited(flow, count):
    async def later(x):
        return x + 1

    return [numbers(flow, count).map_async(later, concurrency=4)]


def keyed(flow, count):
    sums = numbers(flow, count).key_by(lambda x: x % 13).stateful_map(lambda s, x: (s + x, (x, s)), init=int)
    return [sums, sums.filter(lambda pair: pair[0] % 2).key_by(lambda pair: pair[1] % 5).count()]


def own_classes(flow, count):
    visits = numbers(flow, count).map(lambda x: Visit(x % 7, x)).key_by(lambda visit: visit.user)
    return [visits.stateful_map(lambda last, visit: (visit, (last, visit)), init=lambda: Visit(-1, -1))]


def keyed_twice(flow, count):
    once = numbers(flow, count).key_by(lambda x: x % 11)
    expanded = once.stateful_flat_map(lambda s, x: (s + 1, [(x, i) for i in range(s % 3)]), init=int)
    return [expanded.key_by(lambda pair: pair[0] % 4).stateful_flat_map(lambda s, x: (s + 1, [x] * (s % 2)), init=int)]


def keys_of_all_kinds(flow, count):
    kinds = [None, 1, 1.0, True, "1", b"1", (1, None), float("nan"), -7, 1 << 70]
    return [numbers(flow, count).map(lambda x: kinds[x % len(kinds)]).key_by(lambda key: key).count().map(repr)]


def diamond(flow, count):
    stream = numbers(flow, count)
    odd, even = stream.branch(lambda x: x % 2)
    counted = even.key_by(lambda x: x % 3).count()
    return [flow.add(Barrier(), odd.map(lambda x: -x), counted), odd.zip(even), stream.scan(lambda s, x: (s + x, s), 0)]


def loops(flow, count):
    stream = numbers(flow, count)
    return [
        flow.add(CountedToTheEnd(), stream.filter(lambda x: x % 2)),
        flow.add(PerKey(), stream.key_by(lambda x: x % 3)),
        flow.add(Doubled(), stream),
    ]


def windows(flow, count):
    timed = flow.read(ps.sources.items([(float(i), i % 4) for i in range(count)])).key_by(lambda pair: pair[1])
    return [
        timed.window(ps.windows.tumbling(10, time=lambda pair: pair[0])).count(),
        timed.window(ps.windows.sliding(20, 5, time=lambda pair: pair[0])).collect(),
        timed.window(ps.windows.session(3, time=lambda pair: pair[0])).count(),
    ]


def first_and_reduced(flow, count):
    stream = numbers(flow, count).map(lambda x: x % 50)
    return [stream.key_by(lambda x: x).dedupe(), stream.key_by(lambda x: x % 3).reduce(lambda a, b: a + b)]


def forgetful(flow, count):
    keyed_by = numbers(flow, count).key_by(lambda x: x % 5)
    return [keyed_by.stateful_map(lambda s, x: (s + 1, (x, s)), init=int, ttl=7, time=float)]


def two_sources(flow, count):
    left, right = numbers(flow, count), flow.read(ps.sources.generate(lambda i: i * i, count=count))
    return [left.zip(right), right.key_by(lambda x: x % 3).count()]


def dead_letters(flow, count):
    inverse = numbers(flow, count).map(lambda x: 1 / (x % 5), on_error="dead-letter", name="inverse")
    keyed_by = inverse.key_by(lambda x: x)
    small = keyed_by.stateful_map(lambda s, x: (s + 1, s / (x < 1)), init=int, on_error="dead-letter", name="small")
    return [inverse, small, flow.dead_letters("inverse"), flow.dead_letters("small")]


def skipped(flow, count):
    keyed_by = numbers(flow, count).key_by(lambda x: x % 4)
    return [keyed_by.stateful_map(lambda s, x: (s + 1, 1 / (x % 3)), init=int, on_error="skip")]


def loop_as_a_source(flow, count):
    return [flow.add(Countdown()).key_by(lambda x: x % 3).count()]


FLOWS = {
    flow.__name__: flow
    for flow in (
        functions,
        awaited,
        keyed,
        own_classes,
        keyed_twice,
        keys_of_all_kinds,
        diamond,
        loops,
        windows,
        first_and_reduced,
        forgetful,
        two_sources,
        dead_letters,
        skipped,
        loop_as_a_source,
    )
}


def outputs(make: Any, count: int, engine: Any) -> list[list[Any]]:
    """What a flow's streams hold after a run to the end."""
    flow = ps.Flow("conformance")
    sinks = []
    for stream in make(flow, count):
        sinks.append(ps.sinks.collect())
        stream.write(sinks[-1])
    flow.run(engine)
    return [sink.items for sink in sinks]
