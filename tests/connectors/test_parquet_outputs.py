"""The Parquet files of one output have the same columns; an output without rows still tells its columns."""

import pyarrow.dataset
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.connectors.files import encoders, writers
from tests.connectors.connector_tools import read, visible, write, write_and_letters

CHECKPOINTED = {
    "local": lambda path: ps.engines.Local(threads=2, checkpoint=path / "checkpoint"),
    "spark": lambda path: ps.engines.Spark(parallelism=2, rows_per_batch=20, checkpoint=str(path / "checkpoint")),
}
ENGINES = {
    "sequential": lambda path: ps.engines.Sequential(),
    "local": lambda path: ps.engines.Local(threads=2),
    "local, checkpoint": CHECKPOINTED["local"],
    "simulated": lambda path: ps.engines.Simulated(cores=2),
    "spark": lambda path: ps.engines.Spark(parallelism=2),
    "spark, checkpoint": CHECKPOINTED["spark"],
}


def rows(*values):
    return [{"n": number, "v": value} for number, value in enumerate(values)]


@pytest.fixture
def small_files(monkeypatch):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 1)
    monkeypatch.setattr(encoders, "_ROWS_PER_GROUP", 2)
    monkeypatch.setattr(encoders, "_MOST_HELD_ROWS", 6)


def schemas(path):
    return [pyarrow.parquet.read_schema(file).remove_metadata() for file in sorted(path.glob("part-*"))]


def test_rows_wait_until_the_type_of_a_column_is_known(tmp_path, small_files):
    expected = rows(None, None, None, 1.5, 2.5, None, 3.5, None, None)
    sink = ps.sinks.parquet(tmp_path)
    writer = sink.open()
    for row in expected:
        assert writer.write([row]) is None
    writer.close()
    assert len(schemas(tmp_path)) > 1
    assert {str(schema) for schema in schemas(tmp_path)} == {"n: int64\nv: double"}
    assert pyarrow.dataset.dataset(tmp_path).to_table().to_pylist() == expected


def test_a_column_that_stays_unknown_for_too_long_stays_empty(tmp_path, small_files):
    letters = write_and_letters(ps.sinks.parquet(tmp_path), rows(*[None] * 8, 1.5, None))
    assert [letter.value["n"] for letter in letters] == [8]
    assert "column 'v'" in letters[0].error
    assert "give a schema=" in letters[0].error
    assert pyarrow.dataset.dataset(tmp_path).to_table().num_rows == 9


def test_the_next_file_has_the_columns_of_the_first(tmp_path, small_files):
    letters = write_and_letters(ps.sinks.parquet(tmp_path), rows(1, 2, 3, "text", 4, 5, 6.5, 7))
    assert [letter.value["v"] for letter in letters] == ["text", 6.5]
    assert all("give a schema=" in letter.error for letter in letters)
    assert {str(schema) for schema in schemas(tmp_path)} == {"n: int64\nv: int64"}


def write_sparse(tmp_path, engine, values, mode="error"):
    flow = ps.Flow("sparse")
    flow.read(ps.sources.items(values), name="in").write(ps.sinks.parquet(tmp_path / "out", mode=mode), name="out")
    flow.run(CHECKPOINTED[engine](tmp_path))


def test_slices_and_batches_of_spark_have_the_same_columns(tmp_path):
    values = rows(*[1.5] * 20, *[None] * 20, *[None] * 19, 2.5)
    write_sparse(tmp_path, "spark", values)
    assert len(schemas(tmp_path / "out")) >= 3
    assert len({str(schema) for schema in schemas(tmp_path / "out")}) == 1
    assert pyarrow.dataset.dataset(tmp_path / "out").to_table().to_pylist() == values


class TwoSlices(ps.Source):
    """Two parts of one batch, the first of which does not know the type of a column."""

    reads_anywhere = True

    def splits(self):
        return [ps.Split(str(part), 0, 5) for part in range(4)]

    def read(self, split, clock):
        value = None if split.partition in "02" else 1.5
        yield ps.Chunk([{"n": int(split.partition), "v": value} for _ in range(5)], 5)


def test_parts_of_one_batch_that_know_less_learn_from_others(tmp_path):
    flow = ps.Flow("sparse")
    flow.read(TwoSlices(), name="in").map(dict).write(ps.sinks.parquet(tmp_path / "out"))
    flow.run(ps.engines.Spark(parallelism=4))
    assert len(schemas(tmp_path / "out")) > 1
    assert {str(schema) for schema in schemas(tmp_path / "out")} == {"n: int64\nv: double"}
    found = pyarrow.dataset.dataset(tmp_path / "out").to_table().to_pylist()
    assert [row["n"] for row in found] == [part for part in range(4) for _ in range(5)]


def test_a_later_run_has_the_columns_of_an_earlier_one(tmp_path):
    def run(values):
        path = tmp_path / "in.jsonl"
        with path.open("a") as file:
            file.writelines(f'{{"n": 1, "v": {value}}}\n' for value in values)
        flow = ps.Flow("sparse")
        flow.read(ps.sources.json(path), name="in").write(ps.sinks.parquet(tmp_path / "out"), name="out")
        flow.run(CHECKPOINTED["local"](tmp_path))

    run(["1.5"])
    run(["null"])
    assert [str(schema) for schema in schemas(tmp_path / "out")] == ["n: int64\nv: double"] * 2
    with pytest.raises(ps.SinkError, match=r"parquet sink: .*Field v has incompatible types.*give a schema="):
        run(['"text"'])
    assert len(schemas(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"v": None}] * 20 + [{"v": 1}], "column 'v' is int64 now, and was None"),
        ([{"v": 1}] * 20 + [{"v": 1, "w": 1}], "column 'w' is not in the files that are out"),
        ([{"v": 1}] * 20 + [{"v": 1.5}], "incompatible types: int64 vs double"),
    ],
)
def test_batches_that_disagree_say_so(tmp_path, values, message):
    with pytest.raises(ps.SinkError, match=f"parquet sink: .*{message}.*give a schema="):
        write_sparse(tmp_path, "spark", values)
    assert pyarrow.dataset.dataset(tmp_path / "out").to_table().num_rows == 20


def write_nothing(tmp_path, sink, engine):
    flow = ps.Flow("nothing")
    flow.read(ps.sources.items(range(50)), name="in").filter(lambda number: number < 0).write(sink, name="out")
    flow.run(ENGINES[engine](tmp_path))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_output_without_rows_tells_its_columns(tmp_path, engine):
    for folder in "pc":
        (tmp_path / folder).mkdir()
    for _ in range(2 if "checkpoint" in engine else 1):
        write_nothing(tmp_path / "p", ps.sinks.parquet(tmp_path / "parquet", "a long, b string"), engine)
        write_nothing(tmp_path / "c", ps.sinks.csv(tmp_path / "csv", "a long, b string"), engine)
        assert [len(visible(tmp_path / kind)) for kind in ("parquet", "csv")] == [1, 1]
    assert pyarrow.dataset.dataset(tmp_path / "parquet").schema.names == ["a", "b"]
    (file,) = (tmp_path / "csv").glob("part-*")
    assert file.read_text() == '"a","b"\n'
    assert read(ps.sources.parquet(tmp_path / "parquet")) == read(ps.sources.csv(tmp_path / "csv")) == []


@pytest.mark.parametrize(
    "sink",
    [
        lambda path: ps.sinks.parquet(path),
        lambda path: ps.sinks.csv(path),
        lambda path: ps.sinks.csv(path, "a long", header=False),
        lambda path: ps.sinks.json(path, "a long"),
        lambda path: ps.sinks.text(path),
    ],
)
def test_where_no_columns_are_to_tell_there_is_no_file(tmp_path, sink):
    write(sink(tmp_path), [])
    assert visible(tmp_path) == []


def test_a_run_that_fails_leaves_no_file_without_rows(tmp_path):
    flow = ps.Flow("fails")
    flow.read(ps.sources.items([1])).map(lambda number: 1 / 0).write(ps.sinks.parquet(tmp_path, "a long"))
    with pytest.raises(ps.OperatorError):
        flow.run("sequential")
    assert visible(tmp_path) == []


def test_what_is_overwritten_by_nothing_gives_way_to_a_file_without_rows(tmp_path):
    write(ps.sinks.parquet(tmp_path, "a long"), [{"a": 1}])
    write(ps.sinks.parquet(tmp_path, "a long", mode="append"), [])
    assert read(ps.sources.parquet(tmp_path)) == [{"a": 1}]
    write(ps.sinks.parquet(tmp_path, "a long", mode="overwrite"), [])
    assert len(visible(tmp_path)) == 1
    assert read(ps.sources.parquet(tmp_path)) == []


def test_what_no_parquet_file_can_hold_is_not_blamed_on_the_disk(tmp_path):
    flow = ps.Flow("parquet")
    flow.read(ps.sources.items([{"a": {}}])).write(ps.sinks.parquet(tmp_path / "out"))
    with pytest.raises(ps.SinkError, match=r"can hold these rows: .*'a'.*give a schema="):
        flow.run("local")
