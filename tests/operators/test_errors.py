"""What becomes of a tuple that an operator can't process."""

import json
import traceback

import pytest

import penstock as ps
from tests.helpers import outputs, run


def parse(text):
    return int(text)


@pytest.mark.in_process
def test_fail_names_the_flow_the_operator_the_tuple_and_keeps_the_traceback(engine):
    with pytest.raises(ps.OperatorError) as caught:
        outputs(engine, lambda s: s.map(parse), ["1", "x"])
    error = caught.value
    assert error.operator == "parse"
    assert error.value == "x"
    for part in ("'parse'", "flow 'test'", "test_errors.py", "'x'", "invalid literal"):
        assert part in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert "parse" in [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)]


@pytest.mark.in_process
def test_what_came_before_the_failure_has_reached_the_sink(engine):
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    flow.read(ps.sources.items(["1", "2", "x", "3"])).map(parse).write(result)
    with pytest.raises(ps.OperatorError):
        flow.run(engine)
    assert result.items == [1, 2]


def test_skip_goes_on_and_counts(engine):
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    flow.read(ps.sources.items(["1", "x", "3"])).map(parse, on_error="skip").write(result)
    report = flow.run(engine)
    assert result.items == [1, 3]
    assert report.operators["parse"].failed == 1


def test_dead_letters_lose_nothing(engine):
    flow = ps.Flow("test")
    good, bad = ps.sinks.collect(), ps.sinks.collect()
    flow.read(ps.sources.items(["1", "x", "3", "y"])).map(parse, on_error="dead-letter").write(good)
    flow.dead_letters("parse").write(bad)
    flow.run(engine)
    assert good.items == [1, 3]
    assert [(letter.operator, letter.value) for letter in bad.items] == [("parse", "x"), ("parse", "y")]
    assert bad.items[0].error == "ValueError: invalid literal for int() with base 10: 'x'"


def test_dead_letters_can_be_written_to_a_file(engine, tmp_path):
    flow = ps.Flow("test")
    flow.read(ps.sources.items(["x"])).map(parse, on_error="dead-letter").write(ps.sinks.null())
    flow.dead_letters("parse").write(ps.sinks.json(tmp_path / "dead"))
    flow.run(engine)
    (part,) = (tmp_path / "dead").iterdir()
    assert json.loads(part.read_text())["value"] == "x"


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_keyed_functions_can_skip_and_dead_letter(engine, on_error):
    def divide(total, value):
        return total + 1 / value, total + 1 / value

    def build(stream):
        result = stream.key_by(lambda x: 0).stateful_map(divide, init=float, on_error=on_error)
        return (result,) if on_error == "skip" else (result, stream.flow.dead_letters("divide"))

    results = run(engine, build, [1, 0, 2])
    assert results[0] == [1.0, 1.5]
    if on_error == "dead-letter":
        assert [letter.value for letter in results[1]] == [0]


def test_a_bad_key_is_a_flow_error_that_names_the_operator(engine):
    with pytest.raises(ps.FlowError, match=r"operator 'count': \[1\] \(list\) can't be a key"):
        outputs(engine, lambda s: s.key_by(lambda x: [x]).count(), [1])


def test_a_key_function_that_raises_is_the_operators_error(engine):
    with pytest.raises(ps.OperatorError, match="operator 'count'.*ZeroDivisionError"):
        outputs(engine, lambda s: s.key_by(lambda x: 1 / x).count(), [0])


def test_exceptions_that_python_treats_specially_are_errors_like_others(engine):
    def stops(x):
        raise StopIteration

    with pytest.raises(ps.OperatorError, match="StopIteration"):
        outputs(engine, lambda s: s.map(stops), [1])


class Divide(ps.Operator):
    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            await ctx.emit(10 // value)


def test_a_driver_loop_that_raises_names_the_tuple(engine):
    with pytest.raises(ps.OperatorError, match="operator 'Divide'.* failed on 0: ZeroDivisionError"):
        outputs(engine, lambda s: s.flow.add(Divide(), s), [5, 0])


def test_a_driver_loop_can_dead_letter_and_goes_on(engine):
    def build(stream):
        return stream.flow.add(Divide(), stream, on_error="dead-letter"), stream.flow.dead_letters("Divide")

    good, bad = run(engine, build, [5, 0, 2])
    assert good == [2, 5]
    assert [letter.value for letter in bad] == [0]
