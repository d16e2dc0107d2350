"""`ps.sinks.collect`, `call`, `console` and `null`."""

import io

import pytest

import penstock as ps
from tests.connectors.connector_tools import write, write_and_letters


def test_collect_holds_what_the_last_run_wrote():
    result = ps.sinks.collect()
    assert result.items == []
    write(result, [1, None, "x"])
    assert result.items == [1, None, "x"]
    first = result.items
    write(result, [2])
    assert (result.items, first) == ([2], [1, None, "x"])


def test_collect_holds_what_came_before_a_failure():
    result = ps.sinks.collect()
    flow = ps.Flow("test")
    flow.read(ps.sources.items([2, 1, 0, 5])).map(lambda x: 2 // x).write(result)
    with pytest.raises(ps.OperatorError):
        flow.run("sequential")
    assert result.items == [1, 2]


def test_call_is_called_with_every_value_in_order():
    seen = []
    write(ps.sinks.call(seen.append), range(5))
    assert seen == [0, 1, 2, 3, 4]


def picky(value):
    if value % 2:
        raise ValueError(f"{value} is odd")


def test_a_function_that_raises_is_an_operator_error_that_names_it_and_the_value():
    with pytest.raises(ps.OperatorError, match=r"'picky' .* failed on 3: ValueError: 3 is odd") as caught:
        write(ps.sinks.call(picky), [2, 3, 4])
    assert (caught.value.operator, caught.value.value) == ("picky", 3)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_function_that_raises_can_be_skipped_or_written_about():
    assert write(ps.sinks.call(picky), range(5), on_error="skip").operators["picky"].failed == 2
    assert write_and_letters(ps.sinks.call(picky), range(5)) == [
        ps.DeadLetter("out", 1, "ValueError: 1 is odd"),
        ps.DeadLetter("out", 3, "ValueError: 3 is odd"),
    ]


def test_a_writer_stops_at_the_first_value_that_it_rejects():
    seen = []
    writer = ps.sinks.call(lambda value: seen.append(1 // value)).open()
    assert writer.write([1, 0, 0, -1]).position == 1
    assert seen == [1]


@pytest.mark.parametrize(("fn", "name"), [(picky, "picky"), (lambda value: None, "call"), ([].append, "append")])
def test_call_is_named_after_its_function(fn, name):
    assert ps.sinks.call(fn).name == name


def test_call_needs_a_function():
    with pytest.raises(ps.FlowError, match="give a function of one tuple, not 5"):
        ps.sinks.call(5)


def test_console_prints_a_line_for_each_value(capsys):
    write(ps.sinks.console(), [1, "x", None])
    assert capsys.readouterr().out == "1\nx\nNone\n"


def test_console_prints_to_another_stream(capsys):
    stream = io.StringIO()
    write(ps.sinks.console(stream), [1, "x"])
    assert stream.getvalue() == "1\nx\n"
    assert capsys.readouterr().out == ""


def test_a_console_that_is_closed_is_an_operator_error():
    stream = io.StringIO()
    stream.close()
    with pytest.raises(ps.OperatorError, match="'console' .* closed file"):
        write(ps.sinks.console(stream), [1])


def test_null_counts():
    assert write(ps.sinks.null(), range(7)).operators["null"].received == 7


def test_what_each_promises_about_writing_again():
    delivery = ps.sinks.Delivery
    assert ps.sinks.collect().delivery is delivery.TRANSACTIONAL
    assert ps.sinks.null().delivery is delivery.IDEMPOTENT
    assert ps.sinks.call(print).delivery is ps.sinks.console().delivery is delivery.AT_LEAST_ONCE
