"""`ps.sources.generate`."""

import itertools

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.connectors import memory
from tests.connectors.connector_tools import chunks, read, read_and_letters, resumptions


def square(number):
    return number * number


def run_for(source, clock):
    flow, result = ps.Flow("test"), ps.sinks.collect()
    started = clock.now()
    flow.read(source).write(result)
    flow.run(ps.engines.Sequential(clock=clock))
    return result.items, clock.now() - started


def test_values_are_made_from_their_index_up_to_the_count():
    assert read(ps.sources.generate(square, count=4)) == [0, 1, 4, 9]
    assert read(ps.sources.generate(square, count=0)) == []


def test_without_a_rate_no_time_passes():
    assert run_for(ps.sources.generate(square, count=1000), FakeClock())[1] == 0


@pytest.mark.parametrize(
    ("count", "rate", "seconds"), [(1, 10, 0), (2, 10, 0.1), (101, 10, 10), (5, 0.5, 8), (1001, 1e6, 0.001)]
)
@pytest.mark.parametrize("start", [0.0, 1e6])
def test_the_first_value_comes_at_once_and_the_others_at_the_rate(count, rate, seconds, start):
    values, passed = run_for(ps.sources.generate(square, count, rate), FakeClock(start))
    assert values == [square(number) for number in range(count)]
    assert passed == pytest.approx(seconds, abs=1e-6)


def test_each_value_comes_when_it_is_due():
    clock, seen = FakeClock(), []
    flow = ps.Flow("test")
    flow.read(ps.sources.generate(square, count=5, rate=4)).write(ps.sinks.call(lambda _: seen.append(clock.now())))
    flow.run(ps.engines.Sequential(clock=clock))
    assert seen == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_while_a_value_is_not_due_the_chunk_is_empty_and_says_how_long():
    clock = FakeClock()
    source = ps.sources.generate(square, rate=2)
    reading = source.read(source.splits()[0], clock)
    assert list(next(reading).values) == [0]
    assert next(reading) == ps.sources.Chunk((), 1, idle_seconds=0.5)
    clock.sleep(0.2)
    assert next(reading).idle_seconds == pytest.approx(0.3)
    clock.sleep(0.3)
    assert list(next(reading).values) == [1]


def test_a_slow_flow_catches_up():
    clock = FakeClock()
    flow = ps.Flow("test")
    flow.read(ps.sources.generate(square, count=21, rate=10)).write(
        ps.sinks.call(lambda value: clock.sleep(1) if value == 0 else None)
    )
    flow.run(ps.engines.Sequential(clock=clock))
    assert clock.now() == pytest.approx(2)


def inverse(number):
    return 1 / (number - 2)


def test_a_function_that_raises_is_an_operator_error_with_the_index():
    with pytest.raises(ps.OperatorError, match="failed on 2: ZeroDivisionError") as caught:
        read(ps.sources.generate(inverse, count=5))
    assert caught.value.operator == "generate"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_function_that_raises_can_be_skipped_or_written_about():
    source = ps.sources.generate(inverse, count=5)
    assert read(source, on_error="skip") == [-0.5, -1, 1, 0.5]
    values, letters = read_and_letters(source)
    assert values == [-0.5, -1, 1, 0.5]
    assert letters == [ps.DeadLetter("in", 2, "ZeroDivisionError: division by zero")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5,), "give a function"),
        ((square, -1), "count=-1 is less than 0"),
        ((square, 5, 0), "rate=0 is not more than 0"),
        ((square, 5, -2.5), "rate=-2.5 is not more than 0"),
    ],
)
def test_what_can_not_be_generated_is_refused_at_once(arguments, message):
    with pytest.raises(ps.FlowError, match=message):
        ps.sources.generate(*arguments)


def test_reading_resumes_at_every_chunk(monkeypatch):
    monkeypatch.setattr(memory, "_VALUES_PER_CHUNK", 1)
    steps = resumptions(ps.sources.generate(inverse, count=5))
    assert len(steps) == 5
    for rest, expected in steps:
        assert rest == expected


def test_an_endless_one_is_not_bounded():
    source = ps.sources.generate(square)
    assert not source.bounded
    values = (value for _, chunk in chunks(source) for value in chunk.values)
    assert list(itertools.islice(values, 5_000)) == [square(number) for number in range(5_000)]


def test_it_describes_itself():
    assert ps.sources.generate(square, 1_000, 2.5).describe() == "1,000 tuples, 2.5 a second"
    assert ps.sources.generate(square).describe() == "endless"
