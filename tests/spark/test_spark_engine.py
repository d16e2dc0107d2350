"""The Spark engine as its users meet it: files, sinks, errors, checkpoints, rescaling, stopping."""

import json
import threading

import pytest

import penstock as ps
from tests.waiting import until


def lines_of(folder):
    return [line for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def until_so(job, condition):
    """Wait for a batch to change what is asked about; a job that has ended changes nothing any more."""
    until(lambda: condition() or not job.is_running, "what the job was to do")
    assert condition(), "the job has ended"


def write_numbers(folder, files, count):
    folder.mkdir()
    for number in range(files):
        start = number * count // files
        lines = [json.dumps({"n": n}) for n in range(start, (number + 1) * count // files)]
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("bytes_per_batch", [1 << 20, 3_000])
def test_files_in_files_out(tmp_path, bytes_per_batch):
    write_numbers(tmp_path / "in", 3, 1_000)

    def run(engine, out):
        flow = ps.Flow("files")
        rows = flow.read(ps.sources.json(tmp_path / "in", schema="n long"))
        counted = rows.key_by(lambda row: row["n"] % 10).stateful_map(
            lambda s, row: (s + 1, row | {"seen": s}), init=int
        )
        counted.write(ps.sinks.json(out))
        counted.map(lambda row: {"n": row["n"]}).write(ps.sinks.csv(tmp_path / f"csv-{engine.name}"))
        return flow.run(engine)

    run(ps.engines.Sequential(), tmp_path / "expected")
    report = run(ps.engines.Spark(bytes_per_batch=bytes_per_batch, parallelism=3), tmp_path / "out")
    assert lines_of(tmp_path / "out") == lines_of(tmp_path / "expected")
    numbers = [line for line in lines_of(tmp_path / "csv-spark") if line != '"n"']
    assert numbers == [line for line in lines_of(tmp_path / "csv-sequential") if line != '"n"']
    assert report.operators["stateful_map"].received == report.operators["json-2"].received == 1_000
    assert report.operators["stateful_map"].busy_seconds > 0


@pytest.mark.parametrize("tasks", [1, 3])
def test_lines_are_written_where_the_keys_are_and_put_in_order(tmp_path, tasks):
    def run(engine, out):
        flow = ps.Flow("lines")
        counted = flow.read(ps.sources.items(range(500))).key_by(lambda x: x % 7).count()
        unwritable = counted.map(lambda pair: {"pair": pair, "bad": {1} if pair[1] % 10 == 3 else None})
        unwritable.write(ps.sinks.json(out), name="sink", on_error="skip")
        return flow.run(engine)

    expected = run(ps.engines.Sequential(), tmp_path / "expected").operators
    found = run(ps.engines.Spark(parallelism=tasks, rows_per_batch=130), tmp_path / "out").operators
    assert lines_of(tmp_path / "out") == lines_of(tmp_path / "expected")
    for name in expected:
        assert (found[name].received, found[name].emitted, found[name].failed) == (
            expected[name].received,
            expected[name].emitted,
            expected[name].failed,
        ), name
    assert found["sink"].failed == 49
    assert found["sink"].busy_seconds > 0


@pytest.mark.parametrize("where", ["key", "function", "sink"])
def test_of_many_failures_the_first_is_told(tmp_path, where):
    """All of these keys fail, in several tasks; with one thread, the tuple 40 would be the first."""
    bad = {"function": lambda pair: 1 / (pair[0] < 40), "sink": lambda pair: pair if pair[0] < 40 else {pair}}
    flow = ps.Flow("failing")
    keyed = flow.read(ps.sources.items(range(100))).key_by(lambda x: x % 31)
    counted = keyed.stateful_map(lambda s, x: (s, (x / (where != "key" or x < 40), x)), init=int, name="keyed")
    mapped = counted.map(bad.get(where, lambda pair: pair), name="function")
    mapped.write(ps.sinks.json(tmp_path / "out"), name="sink")
    with pytest.raises(ps.OperatorError, match=r"failed on [({]*40") as told:
        flow.run(ps.engines.Spark(parallelism=4))
    assert told.value.operator == {"key": "keyed"}.get(where, where)


def test_append_and_overwrite(tmp_path):
    def run(values, mode):
        flow = ps.Flow("modes")
        flow.read(ps.sources.items(values)).write(ps.sinks.text(tmp_path / "out", mode=mode))
        flow.run("spark")
        return lines_of(tmp_path / "out")

    assert run([1, 2], "error") == ["1", "2"]
    assert run([3], "append") == ["1", "2", "3"]
    assert run([4], "overwrite") == ["4"]
    with pytest.raises(ps.SinkError, match="already holds output"):
        run([5], "error")


def test_functions_of_the_driver_are_called_in_order():
    seen, frames = [], []
    flow = ps.Flow("driver")
    rows = flow.read(ps.sources.items([{"n": n} for n in range(5)]))
    rows.write(ps.sinks.call(seen.append))
    rows.write(ps.sinks.spark(lambda frame, batch: frames.append((batch, frame.count()))))
    flow.run("spark")
    assert seen == [{"n": n} for n in range(5)]
    assert frames == [(0, 5)]


def test_an_error_names_operator_tuple_and_traceback():
    def inverse(x):
        return 1 / (x - 3)

    flow = ps.Flow("failing")
    flow.read(ps.sources.items(list(range(6)))).map(inverse).key_by(lambda x: x).count().write(ps.sinks.collect())
    with pytest.raises(ps.OperatorError, match="'inverse' of flow 'failing'.*failed on 3: ZeroDivisionError") as caught:
        flow.run("spark")
    assert (caught.value.operator, caught.value.value) == ("inverse", 3)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "return 1 / (x - 3)" in str(caught.value.__cause__.__cause__)


def test_an_error_of_a_keyed_operator():
    def fails(state, x):
        raise KeyError("no such page")

    flow = ps.Flow("failing")
    flow.read(ps.sources.items([1, 2])).key_by(lambda x: x).stateful_map(fails, init=int).write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match="'fails' of flow 'failing'.*KeyError"):
        flow.run("spark")


def test_what_can_not_be_pickled_is_one_sentence():
    lock = threading.Lock()
    flow = ps.Flow("unpicklable")
    flow.read(ps.sources.items([1])).map(lambda x: (lock, x)).write(ps.sinks.null())
    with pytest.raises(ps.FlowError, match="can't be pickled.*lock.*make connections, locks and files inside"):
        flow.run("spark")


def test_a_checkpoint_of_another_flow_is_refused(tmp_path):
    def run(name, keyed_by, operator="counted"):
        flow = ps.Flow(name)
        flow.read(ps.sources.items([{"a": 1, "b": 2}])).key_by(keyed_by).count(name=operator).write(ps.sinks.null())
        flow.run("spark", checkpoint=str(tmp_path / "checkpoint"))

    run("one", "a")
    with pytest.raises(ps.CheckpointError, match="belongs to the flow 'one', not to 'two'"):
        run("two", "a")
    with pytest.raises(ps.CheckpointError, match="'counted' was running count by key a and is running count by key b"):
        run("one", "b")
    with pytest.raises(ps.CheckpointError, match="rename .*checkpoint counted renamed"):
        run("one", "a", operator="renamed")


def test_a_checkpoint_that_can_not_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    flow = ps.Flow("unwritable")
    flow.read(ps.sources.items([1])).write(ps.sinks.null())
    with pytest.raises(ps.CheckpointError, match="can't be written"):
        flow.run("spark", checkpoint=str(tmp_path / "file" / "checkpoint"))


def test_two_drivers_can_not_share_a_checkpoint(tmp_path):
    flow = ps.Flow("endless")
    flow.read(ps.sources.generate(lambda i: i, rate=100)).write(ps.sinks.null())
    job = flow.start("spark", checkpoint=str(tmp_path / "checkpoint"))
    try:
        until_so(job, lambda: job.metrics()["null"].received > 0)
        with pytest.raises(ps.CheckpointError, match="in use by another run"):
            flow.run("spark", checkpoint=str(tmp_path / "checkpoint"))
    finally:
        job.stop()


def test_an_endless_flow_is_rescaled_and_stopped():
    """Rescaled at every batch, a keyed count goes on as if nothing had happened."""
    result = ps.sinks.collect()
    flow = ps.Flow("endless")
    numbers = flow.read(ps.sources.generate(lambda i: i, rate=2_000))
    numbers.key_by(lambda x: x % 5).count(name="counted").write(result)
    job = flow.start("spark", parallelism=2)
    seen = 0
    for replicas in (3, 1, 7, 2):
        until_so(job, lambda before=seen: job.metrics()["counted"].received > before)
        seen = job.metrics()["counted"].received
        job.rescale("counted", replicas)
    until_so(job, lambda: job.metrics()["counted"].received > seen)
    job.stop()
    assert result.items == [(n % 5, n // 5 + 1) for n in range(len(result.items))]
    assert len(result.items) > seen > 0


def test_what_can_not_be_rescaled_says_so():
    flow = ps.Flow("narrow")
    numbers = flow.read(ps.sources.items([1, 2]))
    numbers.zip(numbers.map(str), name="pairs").write(ps.sinks.null())
    job = flow.start("spark")
    try:
        with pytest.raises(ps.FlowError, match="'pairs' sees all tuples in one sequence"):
            job.rescale("pairs", 2)
        with pytest.raises(ps.FlowError, match="has no operator 'pears'"):
            job.rescale("pears", 2)
    finally:
        job.stop()


def test_a_file_that_changed_is_an_error(tmp_path):
    """Between the admission and the read: what a retry would read is not what was admitted."""
    from penstock.connectors.reached import check
    from penstock.engines.spark.stages import Descriptor

    path = tmp_path / "in.txt"
    path.write_text("1\n")
    source = ps.sources.text(path)
    admitted = Descriptor("text", 0, str(path), 0, 2, identity=source.identity(str(path), 2))
    check(source, admitted.split)
    path.write_text("1\n2\n")  # the same bytes up to the end of what was admitted
    check(source, admitted.split)
    path.write_text("2\n3\n")
    with pytest.raises(ps.SourceError, match="has changed since this run was to read it"):
        check(source, admitted.split)


def test_a_flow_as_a_step_of_another_query(tmp_path):
    from penstock.connectors.spark_session import session

    spark = session(None, {})
    result = ps.sinks.collect()
    flow = ps.Flow("step")
    rows = flow.read(ps.sources.items([]), name="rows")
    rows.key_by("key").stateful_map(lambda s, row: (s + 1, (row["id"], s)), init=int, name="n").write(result)
    step = ps.spark.step(flow, checkpoint=str(tmp_path / "step"), order_by="id")
    try:
        for batch in range(3):
            step(spark.range(batch * 4, batch * 4 + 4).selectExpr("id", "id % 2 AS key"), batch)
        step(spark.range(8, 12).selectExpr("id", "id % 2 AS key"), 2)  # Spark calls again when it does not know
    finally:
        step.close()
    assert result.items == [(n, n // 2) for n in range(12)]


def test_a_report_tells_of_batches(tmp_path):
    write_numbers(tmp_path / "in", 2, 1_000)
    flow = ps.Flow("batches")
    flow.read(ps.sources.json(tmp_path / "in"), name="in").write(ps.sinks.null())
    report = flow.run(ps.engines.Spark(bytes_per_batch=3_000))
    assert [batch.number for batch in report.batches] == list(range(len(report.batches)))
    assert len(report.batches) > 2
    assert sum(batch.rows for batch in report.batches) == 1_000
    left = [batch.left["in"] for batch in report.batches]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert all(batch.seconds > 0 for batch in report.batches)
    assert f"{len(report.batches)} batches" in str(report)


def test_stop_without_draining_ends_in_the_middle_of_a_batch(tmp_path):
    """The batch would never end; the next run does it again, with a function that returns."""

    def make(fn, result):
        flow = ps.Flow("stopped")
        flow.read(ps.sources.items(range(3))).map(fn).key_by(lambda x: x).count(name="n").write(result)
        return flow

    def stuck(x):
        (tmp_path / "begun").touch()
        threading.Event().wait()

    options = {"checkpoint": str(tmp_path / "checkpoint")}
    job = make(stuck, ps.sinks.collect()).start("spark", **options)
    until_so(job, (tmp_path / "begun").exists)
    job.stop(drain=False)
    assert job.wait().batches == ()
    result = ps.sinks.collect()
    make(lambda x: x, result).run("spark", **options)
    assert result.items == [(0, 1), (1, 1), (2, 1)]


def test_two_queries_do_not_share_a_directory(tmp_path):
    def run(checkpoint, values, mode="error"):
        flow = ps.Flow("shared")
        flow.read(ps.sources.items(values)).write(ps.sinks.text(tmp_path / "out", mode=mode))
        flow.run("spark", checkpoint=str(tmp_path / checkpoint))

    run("one", [])
    with pytest.raises(ps.SinkError, match="belongs to another query"):
        run("two", [1])
    run("one", [1, 2])
    run("two", [3], mode="append")
    assert lines_of(tmp_path / "out") == ["1", "2", "3"]
    run("one", [1, 2, 4])
    assert lines_of(tmp_path / "out") == ["1", "2", "3", "4"]


def test_every_function_runs_once_for_each_tuple(tmp_path):
    """Whatever samples a stage before it runs it, as some of Spark's exchanges do, runs it twice."""

    def noted(what):
        def note(x):
            with (tmp_path / what).open("a") as file:
                file.write("x\n")
            return x

        return note

    flow = ps.Flow("once")
    keyed = flow.read(ps.sources.items(range(60))).map(noted("before")).key_by(lambda x: x % 7).count()
    keyed.map(noted("behind")).map_batch(lambda pairs: list(map(noted("gathered"), pairs))).write(ps.sinks.null())
    flow.run(ps.engines.Spark(parallelism=3, rows_per_batch=25))
    for what in ("before", "behind", "gathered"):
        assert len((tmp_path / what).read_text().splitlines()) == 60, what


def test_a_source_that_is_ahead_waits_for_the_others():
    """One tuple in a hundred of the second stream comes through: the first must not be read to its end meanwhile."""
    flow = ps.Flow("unequal")
    ahead = flow.read(ps.sources.generate(lambda i: i, count=210_000), name="ahead")
    thinned = flow.read(ps.sources.generate(lambda i: i, count=210_000), name="thinned").filter(lambda x: x % 100 == 0)
    result = ps.sinks.collect()
    ahead.zip(thinned).write(result)
    report = flow.run(ps.engines.Spark(rows_per_batch=70_000))
    assert result.items == [(i, i * 100) for i in range(2_100)]
    assert [batch.rows for batch in report.batches[:3]] == [140_000, 70_000, 70_000]
