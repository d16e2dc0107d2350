"""`ps.sinks.csv`, `json`, `parquet` and `text`: directories of whole files."""

import random
import resource
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.files import encoders, writers
from tests.connectors.connector_tools import (
    hidden,
    read,
    sink,
    source,
    there_and_back,
    visible,
    write,
    write_all,
    write_and_letters,
)

FORMATS = ["csv", "json", "parquet", "text"]
TABLES = ["csv", "json", "parquet"]
Point = namedtuple("Point", "x y")


def rows_of(kind, *values):
    return list(map(str, values)) if kind == "text" else [{"n": str(value)} for value in values]


# Files and directories


@pytest.mark.parametrize("kind", FORMATS)
def test_files_are_numbered_in_the_order_of_the_output(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 10)
    monkeypatch.setattr(encoders, "_ROWS_PER_GROUP", 2)
    rows = rows_of(kind, *range(50))
    write(sink(kind, tmp_path), rows)
    names = visible(tmp_path)
    assert len(names) > 9
    assert names[1].startswith("part-00000001.")
    assert read(source(kind, tmp_path)) == rows
    assert [row for name in names for row in read(source(kind, tmp_path / name))] == rows
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_without_output_there_is_no_file(tmp_path, kind):
    write(sink(kind, tmp_path / "out"), [])
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_writing_nothing_changes_nothing(tmp_path, kind):
    writer = sink(kind, tmp_path).open()
    for values in ([], rows_of(kind, 1), [], rows_of(kind, 2), []):
        assert writer.write(values) is None
    writer.close()
    assert read(source(kind, tmp_path)) == rows_of(kind, 1, 2)


@pytest.mark.parametrize("kind", FORMATS)
def test_directories_are_made(tmp_path, kind):
    write(sink(kind, tmp_path / "a" / "b"), rows_of(kind, 1))
    assert read(source(kind, str(tmp_path / "a" / "b"))) == rows_of(kind, 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_mode_error_refuses_output_that_is_there_before_anything_is_read(tmp_path, kind):
    write(sink(kind, tmp_path), rows_of(kind, 1))

    def never():
        raise AssertionError("the source was read")
        yield

    with pytest.raises(ps.SinkError, match=r"already holds output \(part-00000000.*mode='append' or mode='overwrite'"):
        write(sink(kind, tmp_path), never())
    assert read(source(kind, tmp_path)) == rows_of(kind, 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_mode_append_goes_on_after_the_last_file(tmp_path, kind):
    for number in range(3):
        write(sink(kind, tmp_path, mode="append"), rows_of(kind, number))
    assert [name.split(".")[0] for name in visible(tmp_path)] == ["part-00000000", "part-00000001", "part-00000002"]
    assert read(source(kind, tmp_path)) == rows_of(kind, 0, 1, 2)


@pytest.mark.parametrize("kind", FORMATS)
def test_mode_overwrite_leaves_only_the_new_files(tmp_path, monkeypatch, kind):
    (tmp_path / "notes.md").touch()
    with monkeypatch.context() as context:
        context.setattr(writers, "_BYTES_PER_FILE", 1)
        context.setattr(encoders, "_ROWS_PER_GROUP", 1)
        write(sink(kind, tmp_path), rows_of(kind, 1, 2, 3))
    assert len(visible(tmp_path)) == 4
    write(sink(kind, tmp_path, mode="overwrite"), rows_of(kind, 4))
    assert read(source(kind, str(tmp_path / "part-*"))) == rows_of(kind, 4)
    assert "notes.md" in visible(tmp_path)


def test_mode_overwrite_with_nothing_leaves_nothing(tmp_path):
    write(ps.sinks.text(tmp_path), ["old"])
    write(ps.sinks.text(tmp_path, mode="overwrite"), [])
    assert visible(tmp_path) == []


def test_what_is_overwritten_is_there_until_a_new_file_is_whole(tmp_path):
    write(ps.sinks.text(tmp_path), ["old"])
    writer = ps.sinks.text(tmp_path, mode="overwrite").open()
    writer.write(["new"])
    assert read(ps.sources.text(tmp_path)) == ["old"]
    writer.close()
    assert read(ps.sources.text(tmp_path)) == ["new"]


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unknown_mode_is_refused_at_once(kind):
    with pytest.raises(ps.FlowError, match="mode= is 'error', 'append' or 'overwrite', not 'truncate'"):
        sink(kind, "out", mode="truncate")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_appears_when_it_is_whole(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 400)
    monkeypatch.setattr(encoders, "_ROWS_PER_GROUP", 1)
    writer = sink(kind, tmp_path).open()
    written = []
    for number in range(400):
        written += rows_of(kind, number)
        writer.write(written[-1:])
        if visible(tmp_path):
            break
        assert all(name.endswith(".tmp") for name in hidden(tmp_path))
    assert read(source(kind, tmp_path)) == written
    writer.write(rows_of(kind, "last"))
    assert len(visible(tmp_path)) == 1
    writer.close()
    assert read(source(kind, tmp_path)) == [*written, *rows_of(kind, "last")]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_after_a_failure_what_came_before_it_is_there_whole(tmp_path, kind):
    def fails_in_the_end():
        yield from rows_of(kind, 1, 2, 3)
        raise RuntimeError("no more")

    with pytest.raises(ps.SourceError, match="no more"):
        write(sink(kind, tmp_path), fails_in_the_end())
    assert read(source(kind, tmp_path)) == rows_of(kind, 1, 2, 3)
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_directory_that_can_not_be_made_is_a_sink_error_with_its_path(tmp_path, kind):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ps.SinkError) as caught:
            write(sink(kind, path), rows_of(kind, 1))
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_disk_that_is_full_leaves_only_whole_files(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 3000)
    monkeypatch.setattr(encoders, "_ROWS_PER_GROUP", 1)
    rows = rows_of(kind, *range(100), random.Random(0).randbytes(100_000).hex(), "after")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(ps.SinkError, match="can't write to .*File too large"):
            write(sink(kind, tmp_path), rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert hidden(tmp_path) == []
    written = read(source(kind, str(tmp_path / "part-*"))) if visible(tmp_path) else []
    assert written == rows[: len(written)]


# Values that don't fit


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("schema", "bad", "message"),
    [
        ("n int", {"n": "x"}, r"column 'n' \(int\)"),
        ("n int", {"n": 2**31}, r"column 'n' \(int\)"),
        ("n int", {"n": 1.5}, r"column 'n' \(int\): a float does not fit"),
        ("n int", {"n": 1, "m": 2}, "the schema has no column 'm'; it has n"),
        ("n int NOT NULL", {"n": None}, "column 'n' is NOT NULL and has no value"),
        ("n int NOT NULL", {}, "column 'n' is NOT NULL and has no value"),
        ("n int", 5, "a row is a dict|expected rows"),
        ("n date", {"n": datetime(2024, 1, 1, 12)}, r"column 'n' \(date\): a datetime does not fit"),
        ("n timestamp", {"n": 1704067200}, r"column 'n' \(timestamp\): a int does not fit"),
        ("n timestamp_ntz", {"n": datetime(2024, 1, 1, tzinfo=UTC)}, r"column 'n' \(timestamp_ntz\): .* zone"),
        ("n decimal(5,2)", {"n": Decimal("1.234")}, r"column 'n' \(decimal\(5,2\)\)"),
        ("n string", {"n": "\ud800"}, "column 'n'.*surrogates"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_an_error_that_names_the_column(tmp_path, kind, schema, bad, message):
    with pytest.raises(ps.OperatorError, match=message) as caught:
        write(sink(kind, tmp_path, schema), [bad])
    assert caught.value.value == bad


@pytest.mark.parametrize("kind", TABLES)
def test_bad_rows_can_be_skipped_or_become_dead_letters(tmp_path, kind):
    good, bad = [{"n": number} for number in range(4)], [{"n": "x"}, {"n": 2**40}]
    mixed = [bad[0], *good[:2], bad[1], *good[2:], bad[0]]
    report = write(sink(kind, tmp_path / "1", "n int"), mixed, on_error="skip")
    assert report.operators[kind].failed == 3
    letters = write_and_letters(sink(kind, tmp_path / "2", "n int"), mixed)
    assert [letter.value for letter in letters] == [*bad, bad[0]]
    assert all(letter.operator == "out" and "column 'n' (int)" in letter.error for letter in letters)
    for directory in "12":
        assert read(source(kind, tmp_path / directory, "n int")) == good


@pytest.mark.parametrize("kind", TABLES)
def test_bad_rows_are_found_by_their_place_among_those_written(tmp_path, kind):
    writer = sink(kind, tmp_path, "n int").open()
    rejected = write_all(writer, [{"n": value} for value in ("bad", 1, 2, "bad", "bad", 3, "bad")])
    writer.close()
    assert rejected == [0, 3, 4, 6]
    assert read(source(kind, tmp_path, "n int")) == [{"n": value} for value in (1, 2, 3)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("a array<int>", [1.5]),
        ("a array<date>", [datetime(2024, 1, 1)]),
        ("a array<int>", 5),
        ("a map<string,int>", {"x": 1.5}),
        ("a map<string,int>", [1]),
        ("a struct<x:int>", {"x": 1.5}),
        ("a struct<x:int>", {"x": 1, "y": 2}),
        ("a struct<x:int NOT NULL>", {"x": None}),
        ("a struct<x:int>", "x"),
        ("a array<struct<x:int NOT NULL>>", [{"x": 1}, {}]),
    ],
)
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_nested_values_are_checked_as_well(tmp_path, kind, schema, value):
    (letter,) = write_and_letters(sink(kind, tmp_path, schema), [{"a": value}])
    assert "column 'a'" in letter.error


class Opaque:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_value_that_can_not_be_written_at_all_is_that_values_error(tmp_path, kind):
    value = Opaque() if kind == "text" else {"a": Opaque()}
    with pytest.raises(ps.OperatorError):
        write(sink(kind, tmp_path / "1"), [value])
    (letter,) = write_and_letters(sink(kind, tmp_path / "2"), [*rows_of(kind, 1), value, *rows_of(kind, 2)])
    assert letter.value is value


# There and back

SCHEMA = "i long, f double, s string, y boolean, m decimal(10,2), d date, t timestamp, l timestamp_ntz, b binary"
ROW = {
    "i": -(2**63),
    "f": 0.1,
    "s": "ž🐎",
    "y": True,
    "m": Decimal("-1.50"),
    "d": date(1, 1, 1),
    "t": datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
    "l": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "b": b"bytes",
}


@pytest.mark.parametrize("kind", TABLES)
def test_rows_of_all_types_come_back_equal(tmp_path, kind):
    empty = {**dict.fromkeys(ROW), "s": ""}
    rows = [ROW, dict.fromkeys(ROW), empty]
    found = there_and_back(kind, tmp_path, rows, SCHEMA)
    assert found == rows
    assert [list(map(type, row.values())) for row in found] == [list(map(type, row.values())) for row in rows]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_nested_rows_come_back_equal(tmp_path, kind):
    schema = "a array<decimal(3,1)>, m map<string,array<int>>, s struct<x:timestamp,y:struct<z:binary>>"
    rows = [
        {
            "a": [Decimal("1.5"), None],
            "m": {"x": [1, None], "": [], "y": None},
            "s": {"x": datetime(2024, 1, 1, tzinfo=UTC), "y": {"z": b"\xff"}},
        },
        {"a": [], "m": {}, "s": {"x": None, "y": None}},
        dict.fromkeys("ams"),
    ]
    assert there_and_back(kind, tmp_path, rows, schema) == rows


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_maps_may_be_written_as_pairs_and_lists_as_tuples(tmp_path, kind):
    rows = [{"m": [("x", Point(1, 2))], "a": (1, 2)}, {"m": {}, "a": [3]}]
    assert there_and_back(kind, tmp_path, rows, "m map<string,struct<x:int,y:int>>, a array<int>") == [
        {"m": {"x": {"x": 1, "y": 2}}, "a": [1, 2]},
        {"m": {}, "a": [3]},
    ]


@pytest.mark.parametrize("kind", TABLES)
def test_times_in_other_zones_come_back_as_the_same_instant(tmp_path, kind):
    there = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=-5)))
    ((row),) = there_and_back(kind, tmp_path, [{"t": there}], "t timestamp")
    assert row["t"] == there
    assert row["t"].utcoffset() == timedelta(0)


@pytest.mark.parametrize("kind", TABLES)
def test_columns_that_are_missing_are_none(tmp_path, kind):
    assert there_and_back(kind, tmp_path, [{"b": 1}, {}], "a int, b int") == [
        {"a": None, "b": 1},
        {"a": None, "b": None},
    ]


TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["", '"', ",", ";", "\n", "\r\n", '""\n"', "\ufeff"]
)
ROWS = st.lists(st.builds(lambda a, b: {"a": a, "b": b}, st.none() | TEXT, TEXT), max_size=5)


@settings(deadline=None)
@given(ROWS, st.sampled_from([",", ";", "\t", "|"]), st.booleans(), st.booleans())
def test_any_text_comes_back_from_csv(rows, delimiter, has_schema, header):
    schema = "a string, b string" if has_schema else None
    with TemporaryDirectory() as directory:
        write(ps.sinks.csv(directory, schema, delimiter=delimiter, header=header), rows)
        found = ps.sources.csv(directory, "a string, b string", header=header, delimiter=delimiter, multiline=True)
        assert (read(found) if rows else []) == rows


@settings(deadline=None)
@given(ROWS, st.booleans())
def test_any_text_comes_back_from_json(rows, has_schema):
    schema = "a string, b string" if has_schema else None
    with TemporaryDirectory() as directory:
        assert (there_and_back("json", directory, rows, schema) if rows else []) == rows


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20), min_size=1, max_size=5))
def test_any_line_comes_back_from_text(lines):
    if lines[0].startswith("\ufeff"):
        lines[0] = "x" + lines[0]
    with TemporaryDirectory() as directory:
        assert there_and_back("text", directory, lines) == lines


@pytest.mark.parametrize("kind", FORMATS)
def test_sinks_say_where_they_write(tmp_path, kind):
    assert sink(kind, tmp_path).describe() == str(tmp_path)
    assert sink(kind, Path("out")).delivery is ps.sinks.Delivery.TRANSACTIONAL


@pytest.mark.parametrize("engine", ["sequential", "local"])
def test_a_run_that_fails_before_it_writes_leaves_what_it_would_have_overwritten(tmp_path, engine):
    write(ps.sinks.text(tmp_path / "out"), ["old"])

    def failing(values, fn):
        flow = ps.Flow("test")
        flow.read(ps.sources.items(values)).map(fn).write(ps.sinks.text(tmp_path / "out", mode="overwrite"))
        with pytest.raises(ps.OperatorError):
            flow.run(engine)
        return read(ps.sources.text(tmp_path / "out"))

    assert failing([0], lambda x: 1 // x) == ["old"]
    assert failing([1, 0], lambda x: 1 // x) == ["1"]
