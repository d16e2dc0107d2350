"""Valid Parquet whose values Python has no place for: that row is unreadable, the others come through."""

from datetime import datetime

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.connectors.files import parquet
from tests.connectors.connector_tools import read, read_and_letters

BEYOND = 1 << 61
ENGINES = {
    "sequential": lambda: ps.engines.Sequential(),
    "local": lambda: ps.engines.Local(threads=2),
    "simulated": lambda: ps.engines.Simulated(cores=2),
    "spark": lambda: ps.engines.Spark(parallelism=2),
}


def of_type(kind, *values):
    return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)


BAD = {
    "timestamp": of_type(pa.timestamp("us"), 0, BEYOND, 1),
    "timestamp with a zone": of_type(pa.timestamp("us", "UTC"), 0, BEYOND, 1),
    "timestamp, at the edge of a zone": of_type(pa.timestamp("us", "Asia/Tokyo"), 0, 253402300799000000, 1),
    "milliseconds": of_type(pa.timestamp("ms"), 0, BEYOND, 1),
    "before the first year": of_type(pa.timestamp("us"), 0, -BEYOND, 1),
    "date": of_type(pa.date32(), 0, 1 << 30, 1),
    "list": pa.ListArray.from_arrays([0, 1, 2, 3], of_type(pa.timestamp("us"), 0, BEYOND, 1)),
    "struct": pa.StructArray.from_arrays([of_type(pa.timestamp("us"), 0, BEYOND, 1)], ["t"]),
    "text that is no UTF-8": pa.Array.from_buffers(
        pa.string(), 3, [None, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffb")]
    ),
}


def write_rows(path, column, repeat=1):
    table = pa.table({"n": pa.array(range(3)), "v": column})
    pyarrow.parquet.write_table(pa.concat_tables([table] * repeat), path)


@pytest.mark.parametrize("what", BAD)
def test_a_value_that_python_has_no_place_for(tmp_path, what):
    write_rows(tmp_path / "a.parquet", BAD[what])
    values, (letter,) = read_and_letters(ps.sources.parquet(tmp_path))
    assert [row["n"] for row in values] == [0, 2]
    assert letter.value["n"] == 1
    assert "a.parquet, row 2: column 'v'" in letter.error
    assert [row["n"] for row in read(ps.sources.parquet(tmp_path), on_error="skip")] == [0, 2]
    with pytest.raises(ps.SourceError, match=r"a\.parquet, row 2: column 'v'"):
        read(ps.sources.parquet(tmp_path))


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("n long, v timestamp_ntz", of_type(pa.timestamp("ms"), 0, BEYOND, 1)),
        ("n long, v timestamp_ntz", of_type(pa.timestamp("ns"), 0, 1, 1000)),
        ("n long, v decimal(3,1)", pa.array(["1.0", "12345.0", "2.0"]).cast(pa.decimal128(9, 1))),
        ("n long, v short", pa.array([1, 1 << 20, 2])),
        ("n long, v string NOT NULL", pa.array(["a", None, "b"])),
    ],
)
def test_a_value_that_the_schema_has_no_place_for(tmp_path, schema, column):
    write_rows(tmp_path / "a.parquet", column)
    values, (letter,) = read_and_letters(ps.sources.parquet(tmp_path, schema))
    assert [row["n"] for row in values] == [0, 2]
    assert letter.value["n"] == 1
    assert "a.parquet, row 2: " in letter.error
    assert "'v'" in letter.error


@pytest.mark.parametrize("by", ["function", "column"])
@pytest.mark.parametrize("engine", ENGINES)
def test_other_rows_come_through_on_every_engine(tmp_path, engine, by):
    write_rows(tmp_path / "a.parquet", BAD["timestamp"], repeat=400)
    flow, values, letters = ps.Flow("test"), ps.sinks.collect(), ps.sinks.collect()
    rows = flow.read(ps.sources.parquet(tmp_path), name="in", on_error="dead-letter")
    (rows.map(dict) if by == "function" else rows).key_by(
        "n" if by == "column" else lambda row: row["n"]
    ).count().write(values)
    flow.dead_letters("in").write(letters)
    report = flow.run(ENGINES[engine]())
    assert values.items == [(n, count) for count in range(1, 401) for n in (0, 2)]
    assert [letter.value["n"] for letter in letters.items] == [1] * 400
    assert [int(letter.error.split("row ")[1].split(":")[0]) for letter in letters.items] == list(range(2, 1201, 3))
    counts = report.operators["in"]
    assert (counts.received, counts.emitted, counts.failed) == (1200, 800, 400)


@pytest.mark.parametrize("by", ["function", "column"])
def test_a_flow_that_fails_says_where_on_spark(tmp_path, by):
    write_rows(tmp_path / "a.parquet", BAD["timestamp"])
    flow = ps.Flow("test")
    rows = flow.read(ps.sources.parquet(tmp_path), name="in")
    rows.key_by("n" if by == "column" else lambda row: row["n"]).count().write(ps.sinks.null())
    with pytest.raises(ps.SourceError, match=r"a\.parquet, row 2: column 'v'"):
        flow.run(ps.engines.Spark(parallelism=2))


def test_tables_and_rows_say_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_ROWS_PER_CHUNK", 7)
    write_rows(tmp_path / "a.parquet", BAD["timestamp"], repeat=5)
    source = ps.sources.parquet(tmp_path / "a.parquet")
    split = ps.sources.Split(str(tmp_path / "a.parquet"), 2, 14)
    pieces = [piece if isinstance(piece, list) else piece.column("n").to_pylist() for piece in source.tables(split)]
    by_table = [one.raw["n"] if isinstance(one, ps.sources.Unreadable) else one for piece in pieces for one in piece]
    chunks = [value for chunk in source.read(split, clock=None) for value in chunk.values]
    by_row = [one.raw["n"] if isinstance(one, ps.sources.Unreadable) else one["n"] for one in chunks]
    assert by_table == by_row == [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert chunks[0]["v"] == datetime(1970, 1, 1, 0, 0, 0, 1)
