"""`ps.sources.spark` and `ps.sinks.spark`, on a real Spark session."""

import json
import os
import queue
import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import penstock as ps
from penstock.connectors import spark
from tests.connectors.connector_tools import read, write, write_and_letters
from tests.waiting import until


@pytest.fixture(scope="module")
def session():
    made = spark.session()
    made.conf.set("spark.sql.shuffle.partitions", 2)
    yield made
    made.stop()


@pytest.fixture
def stream(session, tmp_path):
    """A reader of JSON files, one file to a batch; each list of rows is a file."""

    def stream(*files, schema="n long, name string"):
        for number, rows in enumerate(files):
            path = tmp_path / f"{number}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (number, number))  # the order in which Spark takes files
        return lambda session: session.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(tmp_path))

    return stream


def numbers(*values):
    return [{"n": value, "name": f"number {value}"} for value in values]


class Three(ps.Operator):
    async def process(self, ctx):
        for _ in range(3):
            await ctx.wait_all()
            await ctx.emit(ctx.inputs[0].pop())


def test_the_session_is_one_and_leaves_the_settings_of_the_user_alone(session):
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = []
        write(ps.sinks.spark(lambda frame, _: found.append(frame.sparkSession)), [{"a": 1}])
        assert [each._jsparkSession for each in found] == [session._jsparkSession]
        assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")


def test_rows_of_a_streaming_frame_come_in_the_given_order(session, stream):
    reader = stream(numbers(5, 3, 4, 1, 2))
    assert read(ps.sources.spark(reader, order_by="n")) == numbers(1, 2, 3, 4, 5)
    assert read(ps.sources.spark(reader, order_by=["name"])) == numbers(1, 2, 3, 4, 5)


def test_batches_come_one_after_another(session, stream):
    source = ps.sources.spark(stream(numbers(2, 1), numbers(4, 3), numbers(6, 5)), order_by="n")
    assert read(source) == numbers(1, 2, 3, 4, 5, 6)


def test_nested_values_are_lists_and_dicts_and_times_are_in_utc(session, stream):
    row = {"a": [1], "m": {"x": 2}, "s": {"y": "z"}, "t": "2024-01-01T12:00:00Z"}
    (found,) = read(
        ps.sources.spark(stream([row], schema="a array<int>, m map<string,int>, s struct<y:string>, t timestamp"))
    )
    assert found == {**row, "t": datetime(2024, 1, 1, 12, tzinfo=UTC)}


def test_a_flow_that_has_enough_ends_the_query(session, stream):
    flow, result = ps.Flow("test"), ps.sinks.collect()
    rows = flow.read(ps.sources.spark(stream(*[numbers(number) for number in range(6)])))
    flow.add(Three(), rows).write(result)
    flow.run("sequential")
    assert result.items == numbers(0, 1, 2)
    assert session.streams.active == []


def test_a_reader_that_leaves_while_spark_waits_for_it_does_not_hang(session, stream, monkeypatch):
    is_waiting = threading.Event()

    class NoticedQueue(queue.Queue):
        def put(self, item, block=True, timeout=None):
            if self.full():
                is_waiting.set()
            super().put(item, block, timeout)

    monkeypatch.setattr(spark.queue, "Queue", NoticedQueue)
    source = ps.sources.spark(stream(*[numbers(number) for number in range(4)]))
    reading = source.read(source.splits()[0], clock=None)
    until(lambda: next(reading).values, "a batch")
    assert is_waiting.wait(90)
    leaving = threading.Thread(target=reading.close, daemon=True)
    leaving.start()
    leaving.join(30)
    assert not leaving.is_alive()
    assert session.streams.active == []


def test_a_query_that_fails_is_a_source_error(session, stream):
    with pytest.raises(ps.SourceError, match="spark source: the query failed: .*nowhere"):
        read(ps.sources.spark(stream(numbers(1)), order_by="nowhere"))
    assert session.streams.active == []


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (lambda session: session.range(3), "no streaming DataFrame"),
        (
            lambda session: session.readStream.schema("a int").json("/no/such/place"),
            "the reader raised .*no/such/place",
        ),
        (lambda session: 1 / 0, "the reader raised ZeroDivisionError"),
    ],
)
def test_a_reader_that_gives_no_stream_is_a_source_error(session, reader, message):
    with pytest.raises(ps.SourceError, match=message):
        read(ps.sources.spark(reader))


def test_a_source_needs_a_reader_and_a_sink_a_writer():
    with pytest.raises(ps.FlowError, match="takes a SparkSession"):
        ps.sources.spark("not a function")
    with pytest.raises(ps.FlowError, match="a DataFrame and a batch id"):
        ps.sinks.spark("not a function")


def collected(batches):
    return lambda frame, batch_id: batches.append((batch_id, [row.asDict(recursive=True) for row in frame.collect()]))


def test_a_sink_gets_frames_with_the_rows_in_order(session):
    batches = []
    write(ps.sinks.spark(collected(batches)), numbers(*range(100)))
    assert batches == [(0, numbers(*range(100)))]


def test_a_sink_gets_batch_after_batch(session, monkeypatch):
    monkeypatch.setattr(spark, "_ROWS_PER_BATCH", 2)
    batches = []
    write(ps.sinks.spark(collected(batches)), numbers(*range(5)))
    assert batches == [(0, numbers(0, 1)), (1, numbers(2, 3)), (2, numbers(4))]


def test_a_sink_without_rows_is_not_called(session):
    batches = []
    write(ps.sinks.spark(collected(batches)), [])
    assert batches == []


def test_a_frame_has_every_column_that_a_row_has(session):
    batches = []
    rows = [{"a": 1}, {"a": 2.5, "b": None}, {"b": "x", "d": date(2024, 1, 1), "m": Decimal("1.50"), "l": [1, 2]}]
    write(ps.sinks.spark(collected(batches)), rows)
    empty = dict.fromkeys("abdml")
    ((_, found),) = batches
    assert found == [{**empty, "a": 1.0}, {**empty, "a": 2.5}, {**empty, **rows[2]}]


@pytest.mark.parametrize("mixture", [(1, "x"), (date(2024, 1, 1), datetime(2024, 1, 1, 12))])
def test_a_column_of_several_types_is_a_sink_error_that_names_it(session, mixture):
    with pytest.raises(ps.SinkError, match="column 'a': .* mixed"):
        write(ps.sinks.spark(collected([])), [{"a": value} for value in mixture])


def test_what_is_not_a_row_is_that_values_error(session):
    batches = []
    letters = write_and_letters(ps.sinks.spark(collected(batches)), [{"a": 1}, 5, {"a": 2}, {}])
    assert [letter.value for letter in letters] == [5, {}]
    assert batches == [(0, [{"a": 1}, {"a": 2}])]


def test_a_writer_that_raises_is_a_sink_error(session):
    with pytest.raises(ps.SinkError, match="spark sink: the writer raised ZeroDivisionError") as caught:
        write(ps.sinks.spark(lambda frame, batch_id: 1 / 0), [{"a": 1}])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
