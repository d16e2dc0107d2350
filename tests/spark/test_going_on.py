"""Runs that go on, batch by batch and life by life: what an earlier one has read is neither lost nor repeated."""

import gzip

import pytest

import penstock as ps
from penstock.state.buckets import CACHE, BucketId, LoadedBucket
from tests.spark.in_process import InProcess


def test_a_compressed_file_that_was_read_is_not_read_again(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()

    def lines(file):
        return [f"{file}-{number}" for number in range(5)]

    def run():
        flow, sink = ps.Flow("compressed"), ps.sinks.collect()
        flow.read(ps.sources.text(folder), name="lines").write(sink, name="out")
        InProcess(checkpoint=str(tmp_path / "checkpoint")).run(flow, closes=False)
        return sink.items

    for file in range(2):
        (folder / f"{file}.txt.gz").write_bytes(gzip.compress("\n".join(lines(file)).encode()))
    assert run() == run() == lines(0) + lines(1)
    (folder / "2.txt.gz").write_bytes(gzip.compress("\n".join(lines(2)).encode()))
    assert run() == lines(0) + lines(1) + lines(2)


class Signs(ps.Operator):
    """A source with two outputs."""

    inputs = 0
    outputs = 2

    async def process(self, ctx):
        for number in range(20):
            await ctx.emit(number)
            await ctx.emit_many([-number] * (number % 3), 1)


@pytest.mark.parametrize("rows_per_batch", [7, 1000])
def test_a_driver_loop_that_reads_has_all_its_outputs(rows_per_batch):
    flow, sinks = ps.Flow("signs"), [ps.sinks.collect(), ps.sinks.collect()]
    for stream, sink in zip(flow.add(Signs(), name="signs"), sinks, strict=True):
        stream.write(sink)
    InProcess(tasks=2, rows_per_batch=rows_per_batch).run(flow)
    assert sinks[0].items == list(range(20))
    assert sinks[1].items == [-number for number in range(20) for _ in range(number % 3)]


class Two(ps.Operator):
    """Reads two tuples, and returns."""

    async def process(self, ctx):
        for _ in range(2):
            if await ctx.wait_all():
                await ctx.emit(ctx.inputs[0].pop())


def test_a_loop_that_has_returned_leaves_what_comes_in_later_batches():
    flow, sink, others = ps.Flow("two"), ps.sinks.collect(), ps.sinks.collect()
    rows = flow.read(ps.sources.generate(lambda n: n, count=100), name="rows")
    flow.add(Two(), rows, name="two").write(sink)
    rows.write(others)
    assert InProcess(tasks=2, rows_per_batch=3).run(flow) == 34
    assert sink.items == [0, 1]
    assert others.items == list(range(100))


def test_states_that_are_gone_are_told_by_the_task_that_needs_them(tmp_path):
    """It reads those of a window before it works on anything."""

    def run(count):
        flow = ps.Flow("windows")
        numbers = flow.read(ps.sources.items(range(count)), name="in").key_by(lambda n: n % 3)
        window = ps.windows.tumbling(1000, time=lambda n: n)
        numbers.window(window).count(name="counted").write(ps.sinks.null(), name="out")
        InProcess(checkpoint=str(tmp_path / "checkpoint")).run(flow, closes=False)

    run(10)
    states = list((tmp_path / "checkpoint" / "state").rglob("*"))
    assert states
    for path in states:
        if path.is_file():
            path.unlink()
    CACHE.put("", BucketId("", 0), LoadedBucket(sizes=[1 << 40]))  # as in a new process: nothing else has room
    with pytest.raises(ps.CheckpointError, match="states of operator 'counted', is missing"):
        run(20)
