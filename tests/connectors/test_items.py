"""`ps.sources.items`."""

import itertools

import pytest

import penstock as ps
from penstock.connectors import memory
from tests.connectors.connector_tools import chunks, read, resumptions


@pytest.mark.parametrize(
    "iterable", [[1, 2, 3], (1, 2, 3), range(1, 4), {1: "a", 2: "b", 3: "c"}, {1: "a", 2: "b", 3: "c"}.keys()]
)
def test_what_can_be_iterated_again_can_be_run_again(iterable):
    source = ps.sources.items(iterable)
    assert source.replayable
    assert read(source) == read(source) == [1, 2, 3]


@pytest.mark.parametrize("make", [lambda: iter([1, 2]), lambda: (x for x in (1, 2)), lambda: map(int, "12")])
def test_an_iterator_can_be_run_once(make):
    source = ps.sources.items(make())
    assert not source.replayable
    assert read(source) == [1, 2]
    with pytest.raises(ps.SourceError, match="read by an earlier run"):
        read(source)


@pytest.mark.parametrize("values", [[], [None], ["", None, 0, [], {}], "text"])
def test_values_are_what_they_are(values):
    assert read(ps.sources.items(values)) == list(values)


def test_what_is_not_iterable_is_refused_at_once():
    with pytest.raises(ps.FlowError, match="give an iterable, not int"):
        ps.sources.items(5)


def test_an_iterator_is_read_only_as_far_as_it_is_needed():
    taken = []
    reading = chunks(ps.sources.items(taken.append(number) or number for number in itertools.count()))
    assert next(reading)[1].values == [0]
    assert taken == [0]


class FirstThree(ps.Operator):
    async def process(self, ctx):
        for _ in range(3):
            await ctx.wait_all()
            await ctx.emit(ctx.inputs[0].pop())


def test_an_endless_source_ends_when_its_reader_has_enough():
    flow, result = ps.Flow("test"), ps.sinks.collect()
    flow.add(FirstThree(), flow.read(ps.sources.items(itertools.count()))).write(result)
    flow.run("sequential")
    assert result.items == [0, 1, 2]


def test_an_iterable_that_raises_is_a_source_error_after_what_came_before_it():
    def values():
        yield 1
        yield 2
        raise ValueError("no third")

    flow, result = ps.Flow("test"), ps.sinks.collect()
    flow.read(ps.sources.items(values())).write(result)
    with pytest.raises(ps.SourceError, match="items: the iterable raised ValueError: no third") as caught:
        flow.run("sequential")
    assert isinstance(caught.value.__cause__, ValueError)
    assert result.items == [1, 2]


def test_reading_resumes_at_every_chunk(monkeypatch):
    monkeypatch.setattr(memory, "_VALUES_PER_CHUNK", 3)
    for iterable in (list(range(10)), dict.fromkeys(range(5)), []):
        for rest, expected in resumptions(ps.sources.items(iterable)):
            assert rest == expected
    assert len(resumptions(ps.sources.items(list(range(10))))) == 4


def test_a_split_stops_at_its_end():
    (chunk,) = ps.sources.items(list(range(10))).read(ps.sources.Split("items", 3, 5), clock=None)
    assert (chunk.values, chunk.end) == ([3, 4], 5)


# A second run on the same checkpoint

CHECKPOINTED = {
    "local": lambda path: ps.engines.Local(threads=2, checkpoint=path / "checkpoint"),
    "spark": lambda path: ps.engines.Spark(parallelism=1, checkpoint=str(path / "checkpoint")),
}


def run_on(tmp_path, engine, iterable):
    """What a run has added to what came before."""
    flow, result = ps.Flow("again"), ps.sinks.collect()
    flow.read(ps.sources.items(iterable), name="in").write(result, name="out")
    flow.run(CHECKPOINTED[engine](tmp_path))
    return result.items


class Countable:
    """Can be iterated again, and nobody knows how long it is."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


async def awaited(values):
    for value in values:
        yield value


@pytest.mark.parametrize("engine", CHECKPOINTED)
def test_a_later_run_reads_on_in_a_list_and_refuses_another(tmp_path, engine):
    values = [{"n": number, "at": str(number)} for number in range(1000)]
    assert run_on(tmp_path, engine, values) == values
    more = [dict(reversed(row.items())) for row in values] + [{"n": 1000}]
    assert run_on(tmp_path, engine, more) == more
    with pytest.raises(ps.SourceError, match=r"items source: .* 500 values, and 1,001 were read; .*new checkpoint"):
        run_on(tmp_path, engine, values[:500])
    for other in ([{"n": -1}, *values, {"n": 1000}], [*more[:-1], {"n": 7}], [*more[:500], {"n": 0}, *more[500:]]):
        with pytest.raises(ps.SourceError, match=r"its first 1,001 values are not what they were; .*new checkpoint"):
            run_on(tmp_path, engine, other)
    assert run_on(tmp_path, engine, more) == more


@pytest.mark.parametrize("engine", CHECKPOINTED)
@pytest.mark.parametrize("make", [iter, awaited])
def test_a_later_run_skips_nothing_of_an_iterator(tmp_path, engine, make):
    assert run_on(tmp_path, engine, make([1, 2, 3])) == [1, 2, 3]
    assert run_on(tmp_path, engine, make([4, 5])) == [1, 2, 3, 4, 5]
    assert run_on(tmp_path, engine, make([])) == [1, 2, 3, 4, 5]


def test_other_iterables_may_only_grow(tmp_path):
    assert run_on(tmp_path, "local", Countable(3)) == [0, 1, 2]
    assert run_on(tmp_path, "local", Countable(5)) == [0, 1, 2, 3, 4]
    with pytest.raises(ps.SourceError, match=r"fewer values than the 5 that an earlier run read; .*new checkpoint"):
        run_on(tmp_path, "local", Countable(4))
