"""Where arrival matters, what the local engine recorded is what the sequential engine repeats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.testing import shuffled


class Greedy(ps.Operator):
    """Everything that depends on arrival, in one loop."""

    inputs = 2
    controls = 1

    async def process(self, ctx):
        left, right = ctx.inputs
        (control,) = ctx.controls
        while await ctx.wait_any({left: 2, right: 1, control: 1}):
            await ctx.emit(("sees", len(left), len(right), len(control), left.closed, right.closed))
            await ctx.emit_many(left.pop_all())
            if await ctx.wait_all({right: 1}):
                await ctx.emit(right.pop())
            await ctx.emit_many(("control", value) for value in control.pop_all())


def run(engine, left, right):
    flow = ps.Flow("arrivals")
    streams = [flow.read(ps.sources.items(values)) for values in (left, right)]
    merged = streams[0].merge(streams[1].map(str), name="merged")
    greedy = flow.add(Greedy(), *streams, None, name="greedy")
    flow.connect(greedy.filter(lambda value: isinstance(value, int) and value % 2), "greedy", control=0)
    sinks = [ps.sinks.collect(), ps.sinks.collect()]
    merged.write(sinks[0])
    greedy.write(sinks[1])
    report = flow.run(engine)
    return [sink.items for sink in sinks], report


@given(
    st.lists(st.integers(), max_size=12),
    st.lists(st.integers(), max_size=12),
    st.integers(1, 4),
    st.integers(0, 2**32),
    st.sampled_from([1, 3, 1000]),
)
def test_a_shuffled_run_is_repeated_exactly(left, right, workers, seed, queue_size):
    recording = shuffled(seed, workers, record_arrivals=True, queue_size=queue_size)
    outputs, report = run(recording, left, right)
    trace = ps.Arrivals.from_json(report.arrivals.to_json())
    repeated, _ = run(ps.engines.Sequential(arrivals=trace), left, right)
    assert repeated == outputs


@given(st.lists(st.integers(), max_size=50), st.lists(st.integers(), max_size=50), st.integers(1, 4))
def test_a_threaded_run_is_repeated_exactly(left, right, threads):
    outputs, report = run(ps.engines.Local(threads=threads, record_arrivals=True), left, right)
    repeated, _ = run(ps.engines.Sequential(arrivals=report.arrivals), left, right)
    assert repeated == outputs


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_the_same_seed_is_the_same_interleaving(seed, workers):
    def traced():
        trace = []

        def watch(worker, cell, point, began, ended):
            trace.append((worker.number, cell and cell.name, point, began, ended))

        outputs, _ = run(shuffled(seed, workers, watch=watch, queue_size=2), range(8), range(5))
        return outputs, trace

    assert traced() == traced()
