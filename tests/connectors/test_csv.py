"""`ps.sources.csv`; the sink is in `test_file_sinks.py`."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import penstock as ps
from tests.connectors.connector_tools import chunks, compressed, read, read_and_letters, resumptions


@pytest.fixture
def csv(tmp_path):
    """A source that reads one file with this text or these bytes."""

    def csv(data, schema=None, **options):
        path = tmp_path / "a.csv"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return ps.sources.csv(path, schema, **options)

    return csv


def test_without_a_schema_the_header_names_the_columns_and_values_are_strings(csv):
    assert read(csv("user,page\n7,/home\n8,\n")) == [{"user": "7", "page": "/home"}, {"user": "8", "page": None}]


def test_a_header_is_text_whatever_it_looks_like(csv):
    assert read(csv("01,true,,1e3\n1,2,3,4\n")) == [{"01": "1", "true": "2", "": "3", "1e3": "4"}]


@pytest.mark.parametrize(
    "data", ["a,b\n1,2\n", "1,2\n", '"a","b"\n1,2\n', "\ufeffa,b\n1,2\n", "\ufeff1,2\n", "\n\na,b\n1,2\n"]
)
def test_the_header_is_found_by_itself_or_not_there(csv, any_blocks, data):
    assert read(csv(data, "a int, b int")) == [{"a": 1, "b": 2}]


def test_header_false_takes_the_first_line_for_a_row(csv):
    assert read(csv("a,b\n1,2\n", "a string, b string", header=False)) == [{"a": "a", "b": "b"}, {"a": "1", "b": "2"}]


def test_header_true_takes_the_first_line_for_a_header(csv):
    assert read(csv("b,a\n1,2\n", "a int, b int", header=True)) == [{"a": 2, "b": 1}]


def test_columns_are_found_by_the_header_and_others_left_out(csv):
    rows = read(csv("c,b,a\n3,2,1\n", "a int, b int"))
    assert rows == [{"a": 1, "b": 2}]
    assert list(rows[0]) == ["a", "b"]


def test_each_file_has_its_own_header(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n1,2\n")
    (tmp_path / "3.csv").write_text("1,2\n")
    assert read(ps.sources.csv(tmp_path, "a int, b int")) == [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("a,c\n1,2\n", {"schema": "a int, b int", "header": True}, "no column 'b'; it has a, c"),
        ("a,a\n1,2\n", {}, "same name: a, a"),
        ("a,b,a\n1,2,3\n", {"schema": "a int, b int"}, "same name"),
        ('a,"b\n1,2\n', {}, "line 1: the header"),
        (b"\n\xff,b\n1,2\n", {}, "line 2: the header"),
        ("a,b,c\n1,2,3\n", {"limits": ps.sources.Limits(fields=2)}, "3 columns are more than"),
        ("long-name,b\n1,2\n", {"limits": ps.sources.Limits(line_bytes=10)}, "line 1: the header: longer than 10"),
    ],
)
def test_a_header_that_can_not_be_used_is_an_error_with_the_path(csv, data, options, message):
    with pytest.raises(ps.SourceError) as caught:
        read(csv(data, **options), on_error="skip")
    assert "a.csv" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"delimiter": ""}, {"delimiter": ";;"}, {"delimiter": "é"}, {"delimiter": '"'}, {"delimiter": "\n"}]
)
def test_a_delimiter_is_one_character(options):
    with pytest.raises(ps.FlowError, match="single character"):
        ps.sources.csv("x.csv", **options)


def test_without_header_and_schema_columns_have_no_names():
    with pytest.raises(ps.FlowError, match="give a schema="):
        ps.sources.csv("x.csv", header=False)


@pytest.mark.parametrize("kind", ["array<int>", "map<string,int>", "struct<x:int>"])
def test_csv_can_not_hold_nested_columns(kind):
    with pytest.raises(ps.FlowError, match="column 'a' is a .*, which CSV can't hold"):
        ps.sources.csv("x.csv", f"a {kind}")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "true", True),
        ("byte", "-128", -128),
        ("short", "32767", 32767),
        ("int", "2147483647", 2147483647),
        ("long", "-9223372036854775808", -9223372036854775808),
        ("float", "0.5", 0.5),
        ("double", "1e300", 1e300),
        ("string", " x ", " x "),
        ("binary", "x", b"x"),
        ("decimal(10,2)", "1.5", Decimal("1.50")),
        ("decimal(38,20)", "0.12345678901234567890", Decimal("0.12345678901234567890")),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "2024-02-29T12:00:00.000001", datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)),
        ("timestamp", "2024-02-29 12:00:00+02:00", datetime(2024, 2, 29, 10, tzinfo=UTC)),
        ("timestamp", "2024-02-29 12:00:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("timestamp_ntz", "2024-02-29 12:00:00", datetime(2024, 2, 29, 12)),
    ],
)
def test_values_get_the_types_of_the_schema(csv, kind, text, value):
    row, empty = read(csv(f"{text},1\n,2\n", f"a {kind}, b int"))
    assert row == {"a": value, "b": 1}
    assert type(row["a"]) is type(value)
    assert empty == {"a": None, "b": 2}


def test_times_are_in_utc(csv):
    (row,) = read(csv("2024-01-01T00:00:00-05:00\n", "t timestamp"))
    assert row["t"].isoformat() == "2024-01-01T05:00:00+00:00"


def test_times_with_and_without_offset_in_one_column(csv):
    rows = read(csv("2024-01-01T12:00:00+02:00\n2024-01-01T12:00:00\n", "t timestamp"))
    assert [row["t"] for row in rows] == [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (10, 12)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        ("a,b\n", []),
        ("a,b", []),
        ("\n\n", []),
        ("a,b\n1,2", [("1", "2")]),
        ("a,b\r\n1,2\r\n3,4", [("1", "2"), ("3", "4")]),
        ("a,b\n\n1,2\n  \n3,4\n\n", [("1", "2"), ("3", "4")]),
        ('a,b\n,""\n', [(None, "")]),
        ('a,b\n"x, ""y""",5"\n', [('x, "y"', '5"')]),
        ('a,b\n"x\ry",2\n', [("x\ry", "2")]),
        ("a,b\nž,🐎\n", [("ž", "🐎")]),
    ],
)
def test_rows(csv, any_blocks, data, expected):
    assert read(csv(data, "a string, b string")) == [{"a": a, "b": b} for a, b in expected]


def test_a_row_of_empty_values_is_a_row_also_between_tabs(csv):
    rows = read(csv("a\tb\n1\t2\n\t\n3\t\n", delimiter="\t"))
    assert rows == [{"a": "1", "b": "2"}, {"a": None, "b": None}, {"a": "3", "b": None}]


MULTILINE = 'a,b\n1,"x\ny"\n2,"one ""quoted""\r\n\n,word"\n"3\n",z\n4,w'
MULTILINE_ROWS = [("1", "x\ny"), ("2", 'one "quoted"\r\n\n,word'), ("3\n", "z"), ("4", "w")]


def test_multiline_values(csv, any_blocks):
    rows = read(csv(MULTILINE, multiline=True))
    assert [(row["a"], row["b"]) for row in rows] == MULTILINE_ROWS


def test_a_multiline_header(csv, any_blocks):
    assert read(csv('"a\nb",c\n1,2\n', multiline=True)) == [{"a\nb": "1", "c": "2"}]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("a,b\n" + "".join(f"{n},x{n}\n" for n in range(20)), {}),
        ("a,b\n" + "".join(f"{n},x{n}\r\n" for n in range(20)), {"schema": "a int, b string"}),
        ("".join(f"{n},x{n}\n" for n in range(20)), {"schema": "a int, b string"}),
        ("\ufeffa,b\n1,2\n\n3,4", {}),
        (MULTILINE * 3, {"multiline": True}),
        ("a,b\n" + "1,2\nbad\n3,4\n\n5,6,7\n" * 3, {}),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_reading_resumes_at_every_chunk(tmp_path, tiny_blocks, data, options, suffix):
    for name in "ab":
        content = data.encode()
        (tmp_path / f"{name}.csv{suffix}").write_bytes(compressed(content, suffix) if suffix else content)
    steps = resumptions(ps.sources.csv(tmp_path, **options))
    assert len(steps) > 2
    for rest, expected in steps:
        assert rest == expected


def test_a_large_file_arrives_in_several_chunks(csv, tiny_blocks):
    source = csv("a\n" + "".join(f"{n}\n" for n in range(100)), "a int")
    assert len(list(chunks(source))) > 10
    assert [row["a"] for row in read(source)] == list(range(100))


BAD_LINES = [
    ("1", "expected 2 columns (a, b), found 1"),
    ("1,2,3", "expected 2 columns (a, b), found 3"),
    ("x,2", "column 'a': 'x' is not a int"),
    ("99999999999,2", "column 'a': '99999999999' is not a int"),
    (",2", "column 'a' is NOT NULL and has no value"),
    ('1,"2', "a quote is opened and never closed"),
    ("1,2\r3,4", "a quote or a carriage return"),
    (b"1,\xff", "not UTF-8"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_LINES)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_bad_lines_are_found_by_their_numbers_and_nothing_else_is_lost(csv, any_blocks, bad, message, end):
    bad = bad.encode() if isinstance(bad, str) else bad
    lines = [bad, b"1,one", b"2,two", bad, bad, b"3,three", b"", b"4,four", bad]
    source = csv(b"\n".join(lines) + end, "a int NOT NULL, b string")
    with pytest.raises(ps.SourceError) as caught:
        read(source)
    assert f"a.csv, line 1: {message}" in str(caught.value)
    good = [{"a": 1, "b": "one"}, {"a": 2, "b": "two"}, {"a": 3, "b": "three"}, {"a": 4, "b": "four"}]
    assert read(source, on_error="skip") == good
    rows, letters = read_and_letters(source)
    assert rows == good
    assert [letter.value for letter in letters] == [bad.decode("utf-8", "replace")] * 4
    for letter, number in zip(letters, (1, 4, 5, 9), strict=True):
        assert letter.operator == "in"
        assert f"a.csv, line {number}: {message}" in letter.error


def test_line_numbers_count_the_header(csv, any_blocks):
    with pytest.raises(ps.SourceError, match=r"a\.csv, line 5: column 'a': 'x' is not a int"):
        read(csv("a\n1\n2\n3\nx\n4\n", "a int"))


def test_line_numbers_count_the_lines_inside_of_values(csv, any_blocks):
    data = 'a,b\n1,"x\n\ny"\nbad\n"2\n",ok\n3,"four\nfive",6\n7,8\n'
    rows, letters = read_and_letters(csv(data, multiline=True))
    assert [row["a"] for row in rows] == ["1", "2\n", "7"]
    assert [letter.value for letter in letters] == ["bad", '3,"four\nfive",6']
    for letter, number in zip(letters, (5, 8), strict=True):
        assert f"a.csv, line {number}: " in letter.error


def test_an_open_quote_in_a_multiline_file_takes_the_rest_with_it_and_says_where_it_was_opened(csv, any_blocks):
    rows, (letter,) = read_and_letters(csv('a,b\n1,2\n3,"4\n5,6\n7,8\n', multiline=True))
    assert rows == [{"a": "1", "b": "2"}]
    assert letter.value == '3,"4\n5,6\n7,8'
    assert "a.csv, line 3: a quote is opened and never closed" in letter.error


def test_a_quote_that_closes_in_a_later_line_does_not_hide_a_row(csv, any_blocks):
    rows, letters = read_and_letters(csv('1,"x\ny"\n2,z\n', "a string, b string"))
    assert rows == [{"a": "2", "b": "z"}]
    assert [letter.value for letter in letters] == ['1,"x', 'y"']


def test_open_quotes_and_carriage_returns_can_not_make_up_for_each_other(csv):
    rows, letters = read_and_letters(csv('"x\ny"\rz\n', "a string"))
    assert rows == []
    assert [letter.value for letter in letters] == ['"x', 'y"\rz']


def test_a_multiline_file_full_of_open_quotes_is_limited_by_line_bytes(csv, tiny_blocks):
    source = csv('a,b\n1,"' + "x\n" * 100, multiline=True, limits=ps.sources.Limits(line_bytes=50))
    _, letters = read_and_letters(source)
    assert "a.csv, line 2: longer than 50 bytes" in letters[0].error
