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
