"""`ps.sources.parquet`; the sink is in `test_file_sinks.py`."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.files import parquet
from tests.connectors.connector_tools import chunks, read, resumptions


@pytest.fixture
def file(tmp_path):
    """Writes rows to a Parquet file."""

    def file(rows, name="a.parquet", **options):
        pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), tmp_path / name, **options)
        return tmp_path / name

    return file


def numbers(*values):
    return [{"n": value} for value in values]


def test_rows_come_in_the_order_of_names_groups_and_rows(file, tmp_path):
    file(numbers(*range(5, 10)), "b.parquet", row_group_size=2)
    file(numbers(*range(5)), "a.parquet", row_group_size=3)
    file(numbers(), "aa.parquet")
    assert read(ps.sources.parquet(tmp_path)) == numbers(*range(10))


def test_a_schema_picks_columns_and_converts_them(file):
    path = file([{"a": 1, "b": "x", "t": datetime(2024, 1, 1)}])
    assert read(ps.sources.parquet(path, "t timestamp_ntz, a double")) == [{"t": datetime(2024, 1, 1), "a": 1.0}]


def test_nested_values_are_lists_and_dicts(file):
    kinds = pa.schema(
        [
            ("list", pa.list_(pa.int64())),
            ("struct", pa.struct([("x", pa.int64())])),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    rows = [{"list": [1, None], "struct": {"x": 2}, "map": {"y": 3}}, dict.fromkeys(("list", "struct", "map"))]
    path = file(pa.Table.from_pylist(rows, schema=kinds))
    assert read(ps.sources.parquet(path)) == rows
    schema = "list array<long>, struct struct<x:long>, map map<string,long>"
    assert read(ps.sources.parquet(path, schema)) == rows


def test_timestamps_know_that_they_are_utc(file):
    path = file([{"t": datetime(2024, 1, 1, tzinfo=UTC)}])
    for source in (ps.sources.parquet(path), ps.sources.parquet(path, "t timestamp")):
        (row,) = read(source)
        assert row["t"] == datetime(2024, 1, 1, tzinfo=UTC)
        assert row["t"].utcoffset().total_seconds() == 0


@pytest.mark.parametrize(
    ("rows", "schema"),
    [
        ([{"a": 1}], "b int"),
        ([{"a": 2**40}], "a int"),
        ([{"a": "x"}], "a int"),
        ([{"a": 1.5}], "a int"),
        ([{"a": [1]}], "a int"),
        ([{"a": None}, {"a": 1}], "a long NOT NULL"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_a_source_error_with_the_path(file, rows, schema):
    path = file(rows)
    with pytest.raises(ps.SourceError) as caught:
        read(ps.sources.parquet(path, schema))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: b"PAR1 no", lambda data: data[:60] + data[70:]])
def test_a_damaged_file_is_a_source_error_with_its_path(file, damage):
    path = file([{"a": f"value {number}"} for number in range(100)])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ps.SourceError) as caught:
        read(ps.sources.parquet(path))
    assert str(path) in str(caught.value)


def test_reading_resumes_at_every_chunk(file, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_ROWS_PER_CHUNK", 2)
    file(numbers(*range(11)), "a.parquet", row_group_size=5)
    file(numbers(*range(11, 15)), "b.parquet")
    steps = resumptions(ps.sources.parquet(tmp_path))
    assert len(steps) == 9
    for rest, expected in steps:
        assert rest == expected


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("end", range(8))
def test_a_split_is_exactly_its_rows_and_says_where_it_ends(file, monkeypatch, start, end):
    monkeypatch.setattr(parquet, "_ROWS_PER_CHUNK", 2)
    path = file(numbers(*range(7)), row_group_size=3)
    found = list(ps.sources.parquet(path).read(ps.sources.Split(str(path), start, end), clock=None))
    assert [row["n"] for chunk in found for row in chunk.values] == list(range(7))[start:end]
    position = start
    for chunk in found:
        position += len(chunk.values)
        assert chunk.end == position


def test_chunks_are_bounded(file):
    path = file(numbers(*range(20_000)))
    assert max(len(chunk.values) for _, chunk in chunks(ps.sources.parquet(path))) == parquet._ROWS_PER_CHUNK
