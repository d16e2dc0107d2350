"""How the file sinks write single values: text, JSON, CSV and Parquet."""

import dataclasses
import json
import uuid
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.files import encoders, writers
from tests.connectors.connector_tools import read, sink, there_and_back, write, write_all, write_and_letters

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
    assert (tmp_path / "part-00000000.json").read_bytes() == '{"ž":"🐎\\n"}\n1\n'.encode()


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
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
            rejected += [start + place for place in write_all(writer, rows[start : start + size])]
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
        ([[], (1,), [None, 2.5]], [[], [1.0], [None, 2.5]]),
        ([{"x": 1}, {"y": "z"}], [{"x": 1, "y": None}, {"x": None, "y": "z"}]),
        ([Decimal("1.5"), Decimal("100.25")], [Decimal("1.5"), Decimal("100.25")]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_parquet_columns_are_wide_enough_for_the_first_rows(tmp_path, values, expected, at_once):
    writer = ps.sinks.parquet(tmp_path).open()
    rows = [{"a": value} for value in values]
    for some in [rows] if at_once else [[row] for row in rows]:
        assert writer.write(some) is None
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
    assert [len(write_all(writer, batch)) for batch in batches] == ([1] if at_once else [0, 1, 0])
    writer.close()
    assert read(ps.sources.parquet(tmp_path)) == [first, first]


def test_parquet_keeps_its_columns_after_the_first_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "_ROWS_PER_GROUP", 2)
    rows = [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4.5}, {"a": 5, "b": 6}, {"a": 7}, {"a": 8}]
    letters = write_and_letters(ps.sinks.parquet(tmp_path), rows)
    assert [letter.value for letter in letters] == [{"a": 4.5}, {"a": 5, "b": 6}]
    assert read(ps.sources.parquet(tmp_path)) == [{"a": value} for value in (1, 2, 3, 7, 8)]
    (part,) = tmp_path.iterdir()
    assert pq.ParquetFile(part).num_row_groups == 3


@pytest.mark.parametrize("schema", [None, "a long"])
def test_parquet_in_several_row_groups(tmp_path, monkeypatch, schema):
    monkeypatch.setattr(encoders, "_ROWS_PER_GROUP", 3)
    rows = [{"a": number} for number in range(10)]
    assert there_and_back("parquet", tmp_path, rows, schema) == rows
    (part,) = tmp_path.iterdir()
    assert pq.ParquetFile(part).num_row_groups == 4


def test_parquet_that_can_not_be_encoded_is_a_sink_error(tmp_path):
    with pytest.raises(ps.SinkError, match="no child field"):
        write(ps.sinks.parquet(tmp_path), [{"a": {}}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": "ž\n\u2028", "c": None, "d": True, "e": 0.1, "f": -1 << 70},
        {"a": float("1e300"), "b": 1e-7, "c": -0.0},
        [1, "x", None],
        (1.5, "y"),
        {},
        [],
        {"nested": {"a": [1, {"b": 1e16}]}},
        {1: "a number as a key"},
        {None: 1, True: 2},
    ],
)
def test_json_is_the_same_whoever_is_beside_it(tmp_path, value):
    """Simple values are written another way than others: a neighbour must not change how one looks."""
    write(ps.sinks.json(tmp_path / "alone"), [value])
    write(ps.sinks.json(tmp_path / "beside"), [{"when": date(2026, 11, 16)}, value, {"a": {"b": 1}}])
    alone, beside = (
        (tmp_path / where / "part-00000000.json").read_bytes().splitlines(keepends=True)
        for where in ("alone", "beside")
    )
    assert beside[1:2] == alone
    plain = list(value) if isinstance(value, tuple) else value
    found = json.loads(alone[0])
    assert found == (plain if not isinstance(value, dict) else json.loads(json.dumps(value)))


@pytest.mark.parametrize("value", [{"a": float("nan")}, [float("inf")], {"a": [float("-inf")]}])
def test_json_has_no_word_for_what_is_not_a_finite_number(tmp_path, value):
    with pytest.raises(ps.OperatorError, match="JSON compliant"):
        write(ps.sinks.json(tmp_path), [{"a": 1.0}, value])
