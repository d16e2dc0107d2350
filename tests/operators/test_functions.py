"""map, filter, flat_map, inspect, branch, map_batch, map_arrow, map_async, scan."""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from tests.helpers import outputs, run


def test_map(engine):
    assert outputs(engine, lambda s: s.map(lambda x: x * 2), [1, 2, 3]) == [2, 4, 6]


def test_filter(engine):
    assert outputs(engine, lambda s: s.filter(lambda x: x % 2), range(6)) == [1, 3, 5]


def test_flat_map_takes_lists_and_generators(engine):
    def twice(x):
        yield x
        yield -x

    assert outputs(engine, lambda s: s.flat_map(twice).flat_map(lambda x: [x] * abs(x)), [1, 2]) == [
        1,
        -1,
        2,
        2,
        -2,
        -2,
    ]


def test_flat_map_gives_all_or_nothing(engine):
    def fails_late(x):
        yield x
        if x == 2:
            raise ValueError("late")
        yield x

    assert outputs(engine, lambda s: s.flat_map(fails_late, on_error="skip"), [1, 2, 3]) == [1, 1, 3, 3]


def test_flat_map_that_returns_none_says_what_to_return(engine):
    def oops(x):
        return None

    with pytest.raises(ps.OperatorError, match="returns an iterable of outputs; oops returned NoneType"):
        outputs(engine, lambda s: s.flat_map(oops), [1])


@pytest.mark.in_process
def test_inspect_sees_everything_and_changes_nothing(engine):
    seen = []
    assert outputs(engine, lambda s: s.inspect(seen.append), [1, 2, 3]) == [1, 2, 3] == seen


def test_branch_sends_each_value_to_one_side(engine):
    even, odd = run(engine, lambda s: s.branch(lambda x: x % 2 == 0), range(5))
    assert (even, odd) == ([0, 2, 4], [1, 3])


def test_fan_out_gives_every_reader_everything(engine):
    def both(stream):
        return stream.map(str), stream, stream.filter(bool)

    assert run(engine, both, [0, 1]) == [["0", "1"], [0, 1], [1]]


def test_map_batch(engine):
    assert outputs(engine, lambda s: s.map_batch(lambda xs: [x + 1 for x in xs]), [1, 2, 3]) == [2, 3, 4]


def test_map_batch_may_change_the_length(engine):
    def doubled_odds(values):
        return [x for x in values if x % 2 for _ in range(2)]

    assert outputs(engine, lambda s: s.map_batch(doubled_odds), [1, 2, 3]) == [1, 1, 3, 3]


def test_map_arrow(engine):
    def add_total(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("total", pc.multiply(batch["price"], batch["count"]))

    rows = [{"price": 2, "count": 3}, {"price": 5, "count": 7}]
    result = outputs(engine, lambda s: s.map_arrow(add_total, schema="total long"), rows)
    assert result == [{"total": 6}, {"total": 35}]


def test_map_arrow_gets_the_types_of_the_declared_schema(engine, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,\n,x\n")
    seen = []

    def note_types(batch):
        seen.append(batch.schema.types)
        return batch

    flow = ps.Flow("types")
    result = ps.sinks.collect()
    rows = flow.read(ps.sources.csv(tmp_path, schema="a int, b string"))
    rows.filter(lambda row: True).map_arrow(note_types, schema="a long, b string").write(result)
    flow.run(engine)
    assert all(types == [pa.int32(), pa.string()] for types in seen)
    assert result.items == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_map_arrow_that_leaves_a_column_out_is_told(engine):
    with pytest.raises(ps.OperatorError, match="no column 'b'"):
        outputs(engine, lambda s: s.map_arrow(lambda batch: batch, schema="a long, b long"), [{"a": 1}])


def test_map_async_keeps_the_order(engine):
    async def slow_first(x):
        for _ in range(10 - x):
            await asyncio.sleep(0)
        return x * x

    assert outputs(engine, lambda s: s.map_async(slow_first, concurrency=4), range(10)) == [x * x for x in range(10)]


def test_map_async_times_out(engine):
    async def hangs(x):
        await asyncio.Event().wait()

    with pytest.raises(ps.OperatorError, match="TimeoutError"):
        outputs(engine, lambda s: s.map_async(hangs, timeout=0.01), [1])


def test_map_async_on_error(engine):
    async def fails(x):
        if x == 2:
            raise ValueError("two")
        return x

    assert outputs(engine, lambda s: s.map_async(fails, on_error="skip"), [1, 2, 3]) == [1, 3]


def test_scan_with_a_factory_and_with_a_value(engine):
    def total(state, value):
        return state + value, state + value

    assert outputs(engine, lambda s: s.scan(total, init=0), [1, 2, 3]) == [1, 3, 6]
    assert outputs(engine, lambda s: s.scan(total, init=int), [1, 2, 3]) == [1, 3, 6]


def test_an_operator_that_is_shared_state_of_two_streams_runs_twice(engine):
    def total(state, value):
        return state + value, state + value

    left, right = run(engine, lambda s: (s.scan(total, init=0), s.scan(total, init=10)), [1, 2])
    assert (left, right) == ([1, 3], [11, 13])
