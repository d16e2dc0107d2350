"""Flows of every shape, each as a function from a flow and a number of tuples to the streams that are compared."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet

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


class PairsOfAKey(ps.Operator):
    kind = "keyed"
    inputs = 2

    async def process(self, ctx):
        while await ctx.wait_all():
            await ctx.emit((ctx.key, ctx.inputs[0].pop(), ctx.inputs[1].pop()))
        await ctx.emit((ctx.key, "left over", len(ctx.inputs[0]), len(ctx.inputs[1])))


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


def windows_out_of_order(flow, count):
    """Times jump back and forth, keys are many, some tuples are late and some can't be told the time of."""

    def time_of(pair):
        return pair[0] // (pair[0] % 17 != 5)

    times = [(i * 7 % 40 + i // 2, i % 23) for i in range(count)]
    timed = flow.read(ps.sources.items(times)).key_by(lambda pair: pair[1])
    spec = ps.windows.tumbling(9, time=time_of, lateness=11, on_late="dead-letter")
    counted = timed.window(spec).count(name="counted", on_error="skip")
    exact = timed.window(ps.windows.sliding(0.3, 0.1, time=lambda pair: pair[0] / 10, lateness=2.5)).count()
    sessions = timed.window(ps.windows.session(4, time=lambda pair: pair[0], lateness=3)).collect()
    return [counted, flow.dead_letters("counted"), exact, sessions.map(repr).filter(lambda text: len(text) % 3)]


def windows_behind_keys(flow, count):
    """They get their tuples in order, by way of tasks that do nothing else; or something else as well."""

    def time_of(pair):
        return pair[0] * 7 % 40 + pair[0] // 2

    summed = numbers(flow, count).key_by(lambda x: x % 13).stateful_map(lambda s, x: (s + x, (x, s)), init=int)
    again = numbers(flow, count).key_by(lambda x: x % 13).stateful_map(lambda s, x: (s + x, (x, s)), init=int)
    by_user = summed.key_by(lambda pair: pair[1] % 5)
    counted = by_user.window(ps.windows.tumbling(9, time=time_of, lateness=11)).count()
    seen = again.key_by(lambda pair: pair[1] % 5).stateful_map(
        lambda s, pair: (s + 1, (pair, s)), init=int, ttl=9, time=time_of
    )
    sessions = counted.key_by(lambda window: window.key % 2).window(
        ps.windows.session(20, time=lambda window: window.start, lateness=30)
    )
    return [counted, seen, again.map_batch(list), sessions.collect()]


def windows_that_fail(flow, count):
    """Dead letters of tuples, of late ones and of windows, each in its place."""

    def time_of(pair):
        return pair[0] // (pair[0] % 17 != 5)

    def finish(total):
        return 1 / (total % 3)

    times = [(i * 7 % 40 + i // 2, i % 23) for i in range(count)]
    timed = flow.read(ps.sources.items(times)).key_by(lambda pair: pair[1])
    spec = ps.windows.tumbling(9, time=time_of, lateness=11, on_late="dead-letter")
    failing = timed.window(spec).aggregate(
        int, lambda s, pair: s + pair[0], finish, on_error="dead-letter", name="failing"
    )
    return [failing, flow.dead_letters("failing")]


def last_words_of_all(flow, count):
    """What a window and a loop say at the end is heard by loops that have something to say themselves."""
    timed = flow.read(ps.sources.items([(i, i % 5) for i in range(count)])).key_by(lambda pair: pair[1])
    counted = timed.window(ps.windows.tumbling(30, time=lambda pair: pair[0])).count()
    first = flow.add(PerKey(), counted.map(repr).key_by(len))
    return [flow.add(PerKey(), first.key_by(lambda pair: str(pair[1])))]


def behind_a_key(flow, count):
    """Functions that run where the keys are."""
    keyed_by = numbers(flow, count).key_by(lambda x: x % 13)
    summed = keyed_by.stateful_map(lambda s, x: (s + x, (x, s)), init=int)
    kept = summed.filter(lambda pair: pair[0] % 3).inspect(len).flat_map(lambda pair: [pair] * (pair[0] % 4))
    inverse = kept.map(lambda pair: 1 / (pair[0] % 7), on_error="dead-letter", name="inverse")
    again = inverse.map(str).key_by(len).count()
    return [again, flow.dead_letters("inverse"), again.map_batch(list)]


def columns(flow, count):
    """Tables, which go to the keys unopened; and, in the second flow of them, to somebody who opens them."""
    folder = tempfile.mkdtemp()
    table = {"user": [i * 7 % 11 for i in range(count)], "name": [f"n{i % 5}" if i % 7 else None for i in range(count)]}
    pyarrow.parquet.write_table(pa.table(table), f"{folder}/0.parquet", row_group_size=64)
    unopened = flow.read(ps.sources.parquet(folder))
    opened = flow.read(ps.sources.parquet(folder))
    return [
        unopened.key_by("user").count(),
        unopened.key_by("name").stateful_map(lambda s, row: (s + row["user"], [row, s]), init=int),
        opened.key_by(lambda row: (row["name"], row["user"])).count(),
        opened.filter(lambda row: row["user"] > 3),
    ]


def first_and_reduced(flow, count):
    stream = numbers(flow, count).map(lambda x: x % 50)
    return [stream.key_by(lambda x: x).dedupe(), stream.key_by(lambda x: x % 3).reduce(lambda a, b: a + b)]


def forgetful(flow, count):
    keyed_by = numbers(flow, count).key_by(lambda x: x % 5)
    return [keyed_by.stateful_map(lambda s, x: (s + 1, (x, s)), init=int, ttl=7, time=float)]


def forgetful_and_unordered(flow, count):
    """Times go back and forth, some can't be told, and what is behind runs by key as well."""

    def time_of(x):
        return (x * 7 % 31 + x // 3) // (x % 19 != 4)

    keyed_by = numbers(flow, count).key_by(lambda x: x % 23)
    seen = keyed_by.stateful_map(lambda s, x: (s + 1, (x, s)), init=int, ttl=9, time=time_of, on_error="skip")
    return [seen.filter(lambda pair: pair[1]).map(str)]


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
        windows_out_of_order,
        windows_behind_keys,
        windows_that_fail,
        last_words_of_all,
        behind_a_key,
        columns,
        first_and_reduced,
        forgetful,
        forgetful_and_unordered,
        two_sources,
        dead_letters,
        skipped,
        loop_as_a_source,
    )
}


def collected(make: Any, count: int) -> tuple[ps.Flow, list[Any]]:
    """A flow whose streams all end in lists."""
    flow = ps.Flow("conformance")
    sinks = []
    for stream in make(flow, count):
        sinks.append(ps.sinks.collect())
        stream.write(sinks[-1])
    return flow, sinks


def outputs(make: Any, count: int, engine: Any) -> list[list[Any]]:
    """What a flow's streams hold after a run to the end."""
    flow, sinks = collected(make, count)
    flow.run(engine)
    return [sink.items for sink in sinks]


def joins(flow, count):
    """What comes out first depends on how the two sides interleave: not compared with the sequential engine."""

    def time_of(x):
        return (x * 7 % 31 + x // 3) // (x % 19 != 4)

    left, right = numbers(flow, count), flow.read(ps.sources.generate(lambda i: i * 3, count=count))
    by_left, by_right = left.key_by(lambda x: x % 7), right.key_by(lambda x: x % 7)
    late = by_left.join(
        by_right, within=2, time=time_of, lateness=15, on_late="dead-letter", on_error="dead-letter", name="late"
    )
    pairs = flow.add(PairsOfAKey(), by_left, by_right)
    return [
        by_left.join(by_right, within=1, time=float),
        late,
        flow.dead_letters("late"),
        by_left.join(by_right, within=3, time=time_of, lateness=20, how="outer", on_error="skip"),
        by_left.join(by_right, within=1, time=time_of, lateness=9, how="left", on_error="dead-letter", name="left"),
        flow.dead_letters("left"),
        by_left.join(by_right, within=1, time=float, how="outer"),
        by_left.join(by_left, within=2, time=time_of, lateness=20, how="outer", on_error="skip"),
        pairs,
        flow.add(PairsOfAKey(), pairs.filter(lambda pair: len(pair) == 3).key_by(lambda pair: pair[0]), by_right),
    ]
