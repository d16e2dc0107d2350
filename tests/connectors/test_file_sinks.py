"""`ps.sinks.csv`, `json`, `parquet` and `text`: directories of whole files."""

import dataclasses
import json
import random
import resource
import uuid
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.files import writers
from tests.connectors.connector_tools import hidden, read, visible, write, write_and_letters

FORMATS = ["csv", "json", "parquet", "text"]
TABLES = ["csv", "json", "parquet"]


def sink(kind, path, schema=None, **options):
    make = getattr(ps.sinks, kind)
    return make(path, **options) if schema is None else make(path, schema, **options)


def source(kind, path, schema=None, **options):
    make = getattr(ps.sources, kind)
    return make(path, **options) if schema is None else make(path, schema, **options)


def rows_of(kind, *values):
    return list(map(str, values)) if kind == "text" else [{"n": str(value)} for value in values]


def there_and_back(kind, path, rows, schema=None, **options):
    write(sink(kind, path, schema), rows)
    return read(source(kind, path, schema, **options))


# Files and directories


@pytest.mark.parametrize("kind", FORMATS)
def test_files_are_numbered_in_the_order_of_the_output(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 10)
    monkeypatch.setattr(writers, "_ROWS_PER_GROUP", 2)
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
        context.setattr(writers, "_ROWS_PER_GROUP", 1)
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
    monkeypatch.setattr(writers, "_ROWS_PER_GROUP", 1)
    writer = sink(kind, tmp_path).open()
    written = []
    while not visible(tmp_path):
        assert all(name.endswith(".tmp") for name in hidden(tmp_path))
        written += rows_of(kind, len(written))
        writer.write(written[-1:])
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
    monkeypatch.setattr(writers, "_ROWS_PER_GROUP", 1)
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


def test_two_sinks_do_not_write_over_each_other(tmp_path):
    flow = ps.Flow("test")
    values = flow.read(ps.sources.items(["value"]))
    values.write(ps.sinks.text(tmp_path))
    values.map(str.upper).write(ps.sinks.text(tmp_path))
    with pytest.raises(ps.SinkError, match=r"somebody else has written part-00000000\.txt"):
        flow.run("sequential")
    assert len(read(ps.sources.text(tmp_path))) == 1


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
    rejected = writer.write([{"n": value} for value in ("bad", 1, 2, "bad", "bad", 3, "bad")])
    writer.close()
    assert [reject.position for reject in rejected] == [0, 3, 4, 6]
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


# Text


def test_text_is_str_of_each_value(tmp_path):
    write(ps.sinks.text(tmp_path), [1, None, "x", (1, "y")])
    assert (tmp_path / "part-00000000.txt").read_text() == "1\nNone\nx\n(1, 'y')\n"


@pytest.mark.parametrize("value", ["a\nb", "a\r", "\ud800"])
def test_text_that_is_not_a_line_is_refused(tmp_path, value):
    letters = write_and_letters(ps.sinks.text(tmp_path), ["good", value, "good too"])
    assert [letter.value for letter in letters] == [value]
    assert read(ps.sources.text(tmp_path)) == ["good", "good too"]


# JSON

Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Place:
    name: str
    at: object


class Color(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Taste(StrEnum):
    SWEET = "sweet"


ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ([1, 2.5, "x", True], [1, 2.5, "x", True]),
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, Point(2, 3)), {"x": 1, "y": {"x": 2, "y": 3}}),
        ([Point(1, 2)], [{"x": 1, "y": 2}]),
        ({"p": [Point(1, {"q": Point(2, 3)})]}, {"p": [{"x": 1, "y": {"q": {"x": 2, "y": 3}}}]}),
        (Place("here", Point(1, 2)), {"name": "here", "at": {"x": 1, "y": 2}}),
        (
            {"place": Place("here", [Place("there", None)])},
            {"place": {"name": "here", "at": [{"name": "there", "at": None}]}},
        ),
        ([Color.RED, Size.LARGE, Taste.SWEET], ["red", 3, "sweet"]),
        (ID, str(ID)),
        (Decimal("1.50"), "1.50"),
        (b"\xff", "/w=="),
        ([date(2024, 1, 1), time(12, 30)], ["2024-01-01", "12:30:00"]),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00+00:00"),
        ([np.int64(1), np.float32(0.5), np.bool_(True), np.array([1, 2])], [1, 0.5, True, [1, 2]]),
        ({1: "int", None: "none"}, {"1": "int", "null": "none"}),
        (ps.DeadLetter("op", Point(1, 2), "why"), {"operator": "op", "value": {"x": 1, "y": 2}, "error": "why"}),
    ],
)
def test_json_form_of_values(tmp_path, value, expected):
    write(ps.sinks.json(tmp_path), [value])
    assert json.loads((tmp_path / "part-00000000.json").read_text()) == expected


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [1, float("-inf")],
        {"a": {1, 2}},
        object(),
        1j,
        {(1, 2): 3},
        "\ud800",
        np.float32("nan"),
    ],
)
def test_json_refuses_what_has_no_json_form(tmp_path, value):
    letters = write_and_letters(ps.sinks.json(tmp_path), [1, value, 2])
    assert [letter.value is value for letter in letters] == [True]
    assert read(ps.sources.json(tmp_path)) == [1, 2]


def test_json_refuses_what_contains_itself(tmp_path):
    endless = []
    endless.append(endless)
    assert len(write_and_letters(ps.sinks.json(tmp_path), [endless])) == 1


def test_json_is_utf_8_and_a_line_each(tmp_path):
    write(ps.sinks.json(tmp_path), [{"ž": "🐎\n"}, 1])
    assert (tmp_path / "part-00000000.json").read_bytes() == '{"ž": "🐎\\n"}\n1\n'.encode()


@pytest.mark.parametrize("kind", TABLES)
def test_named_tuples_and_dataclasses_are_rows(tmp_path, kind):
    assert there_and_back(kind, tmp_path, [Point(1, "a"), Point(2, "b")], "x int, y string") == [
        {"x": 1, "y": "a"},
        {"x": 2, "y": "b"},
    ]
    assert there_and_back(kind, tmp_path / "places", [Place("here", 1)], "name string, at int") == [
        {"name": "here", "at": 1}
    ]


# CSV


def test_csv_has_a_header_in_every_file_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 1)
    write(ps.sinks.csv(tmp_path / "with"), [{"a": 1}, {"a": 2}])
    write(ps.sinks.csv(tmp_path / "without", header=False), [{"a": 1}, {"a": 2}])
    assert [path.read_text() for path in sorted((tmp_path / "with").iterdir())] == ['"a"\n1\n', '"a"\n2\n']
    assert [path.read_text() for path in sorted((tmp_path / "without").iterdir())] == ["1\n", "2\n"]


def test_csv_without_a_schema_writes_each_value_as_it_is(tmp_path):
    values = [
        (None, ""),
        ("", '""'),
        ('say "x"', '"say ""x"""'),
        (True, "true"),
        (2**70, str(2**70)),
        (1e20, "1e+20"),
        (Decimal("1.50"), "1.50"),
        (date(2024, 1, 1), "2024-01-01"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01 00:00:00+00:00"),
        (Size.LARGE, "3"),
        (Color.RED, '"red"'),
        (ID, f'"{ID}"'),
        (np.int64(5), "5"),
        (b"x", '"x"'),
    ]
    write(ps.sinks.csv(tmp_path, header=False, delimiter=";"), [{"a": value, "b": 0} for value, _ in values])
    assert (tmp_path / "part-00000000.csv").read_text() == "".join(f"{text};0\n" for _, text in values)


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_what_is_written_does_not_depend_on_how_many_are_written_at_once(tmp_path, kind):
    moments = [date(2024, 1, 1), datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, tzinfo=UTC)]
    mixed = [1, 0.5, 10**15, 2**60 + 1, Decimal("1.5"), Decimal("1.25"), "x", b"x", True, None, *moments]
    rows = [{"a": value, "b": 1} for value in mixed] + [{"b": 2}, {}, {"b": 3, "c": 4}, {"a": [1, 2.5], "b": 5}]
    rows += [{"a": moments, "b": 6}, {"b": 7, "c": {"x": 1}}, {"b": 8, "c": {"y": 1}}]
    results = []
    for size in (1, 3, len(rows)):
        writer = sink(kind, tmp_path / str(size)).open()
        rejected = []
        for start in range(0, len(rows), size):
            rejected += [start + reject.position for reject in writer.write(rows[start : start + size])]
        writer.close()
        (part,) = (tmp_path / str(size)).iterdir()
        results.append((rejected, pq.read_table(part).to_pylist() if kind == "parquet" else part.read_text()))
    assert results[0] == results[1] == results[2]


def test_csv_columns_are_those_of_the_first_row(tmp_path):
    letters = write_and_letters(ps.sinks.csv(tmp_path), [{}, {"b": 1, "a": 2}, {"a": 3}, {"a": 4, "c": 5}, {}])
    assert [letter.value for letter in letters] == [{}, {"a": 4, "c": 5}]
    assert "the first row has no column 'c', only b, a; give a schema=" in letters[1].error
    assert (tmp_path / "part-00000000.csv").read_text() == '"b","a"\n1,2\n,3\n,\n'


@pytest.mark.parametrize("value", [[1], {"x": 1}, b"\xff", timedelta(1), Fraction(1, 2)])
@pytest.mark.parametrize("make", [lambda path: ps.sinks.csv(path), lambda path: ps.sinks.csv(path, "a binary")])
def test_csv_refuses_what_it_can_not_hold(tmp_path, make, value):
    (letter,) = write_and_letters(make(tmp_path), [{"a": value}])
    assert letter.value == {"a": value}


def test_csv_can_not_hold_nested_columns():
    with pytest.raises(ps.FlowError, match="csv sink: column 'a' is a array<int>, which CSV can't hold"):
        ps.sinks.csv("out", "a array<int>")


@pytest.mark.parametrize("delimiter", ["", ";;", "é", '"', "\n"])
def test_a_delimiter_is_one_character(delimiter):
    with pytest.raises(ps.FlowError, match="csv sink: delimiter= is a single character"):
        ps.sinks.csv("out", delimiter=delimiter)


# Parquet


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([None, 1], [None, 1]),
        ([None, None], [None, None]),
        ([[], [1], [None, 2.5]], [[], [1.0], [None, 2.5]]),
        ([{"x": 1}, {"y": "z"}], [{"x": 1, "y": None}, {"x": None, "y": "z"}]),
        ([Decimal("1.5"), Decimal("100.25")], [Decimal("1.5"), Decimal("100.25")]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_parquet_columns_are_wide_enough_for_the_first_rows(tmp_path, values, expected, at_once):
    writer = ps.sinks.parquet(tmp_path).open()
    rows = [{"a": value} for value in values]
    for some in [rows] if at_once else [[row] for row in rows]:
        assert list(writer.write(some)) == []
    writer.close()
    assert read(ps.sources.parquet(tmp_path)) == [{"a": value} for value in expected]


def test_parquet_columns_are_all_that_the_first_rows_have(tmp_path):
    writer = ps.sinks.parquet(tmp_path).open()
    writer.write([{"a": 1}, {"b": 2, "a": 3}])
    writer.write([{"c": 4}])
    writer.close()
    assert read(ps.sources.parquet(tmp_path)) == [
        {"a": 1, "b": None, "c": None},
        {"a": 3, "b": 2, "c": None},
        {"a": None, "b": None, "c": 4},
    ]


@pytest.mark.parametrize(
    ("first", "bad"),
    [
        ({"a": 1}, {"a": "x"}),
        ({"a": 1}, {"a": True}),
        ({"a": 2**60 + 1}, {"a": 0.5}),
        ({"a": date(2024, 1, 1)}, {"a": datetime(2024, 1, 1, 12)}),
        ({"a": datetime(2024, 1, 1)}, {"a": datetime(2024, 1, 1, tzinfo=UTC)}),
        ({"a": [date(2024, 1, 1)]}, {"a": [datetime(2024, 1, 1, 12)]}),
        ({"a": {"x": date(2024, 1, 1)}}, {"a": {"x": datetime(2024, 1, 1, 12)}}),
        ({"a": 1}, {"a": Decimal("1.5")}),
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 2**64}),
        ({"a": 1}, {"a": Fraction(1, 2)}),
        ({"a": 1}, 5),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_parquet_rejects_rows_that_do_not_agree_with_the_first_ones(tmp_path, first, bad, at_once):
    writer = ps.sinks.parquet(tmp_path).open()
    batches = [[first, bad, first]] if at_once else [[first], [bad], [first]]
    assert [len(writer.write(batch)) for batch in batches] == ([1] if at_once else [0, 1, 0])
    writer.close()
    assert read(ps.sources.parquet(tmp_path)) == [first, first]


def test_parquet_keeps_its_columns_after_the_first_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "_ROWS_PER_GROUP", 2)
    rows = [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4.5}, {"a": 5, "b": 6}, {"a": 7}, {"a": 8}]
    letters = write_and_letters(ps.sinks.parquet(tmp_path), rows)
    assert [letter.value for letter in letters] == [{"a": 4.5}, {"a": 5, "b": 6}]
    assert read(ps.sources.parquet(tmp_path)) == [{"a": value} for value in (1, 2, 3, 7, 8)]
    (part,) = tmp_path.iterdir()
    assert pq.ParquetFile(part).num_row_groups == 3


@pytest.mark.parametrize("schema", [None, "a long"])
def test_parquet_in_several_row_groups(tmp_path, monkeypatch, schema):
    monkeypatch.setattr(writers, "_ROWS_PER_GROUP", 3)
    rows = [{"a": number} for number in range(10)]
    assert there_and_back("parquet", tmp_path, rows, schema) == rows
    (part,) = tmp_path.iterdir()
    assert pq.ParquetFile(part).num_row_groups == 4


def test_parquet_that_can_not_be_encoded_is_a_sink_error(tmp_path):
    with pytest.raises(ps.SinkError, match="no child field"):
        write(ps.sinks.parquet(tmp_path), [{"a": {}}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_sinks_say_where_they_write(tmp_path, kind):
    assert sink(kind, tmp_path).describe() == str(tmp_path)
    assert sink(kind, Path("out")).delivery is ps.sinks.Delivery.TRANSACTIONAL
