"""`ps.sources.json`; the sink is in `test_file_sinks.py`."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import penstock as ps
from tests.connectors.connector_tools import compressed, read, read_and_letters, resumptions


@pytest.fixture
def json(tmp_path):
    """A source that reads one file with this text or these bytes."""

    def json(data, schema=None, **options):
        path = tmp_path / "a.json"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return ps.sources.json(path, schema, **options)

    return json


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        ("\n \n\t\n", []),
        ("1\n", [1]),
        ("1", [1]),
        ('{"a": 1}\r\n[1, 2.5]\r\n', [{"a": 1}, [1, 2.5]]),
        ('"x"\n\nnull\ntrue\n', ["x", None, True]),
        ("\ufeff1\n2\n", [1, 2]),
        ("\ufeff", []),
        ('"ž🐎\\u0000\\n"\n', ["ž🐎\x00\n"]),
        ('"[[[[{{{{"\n', ["[[[[{{{{"]),
    ],
)
def test_each_line_is_a_value_and_blank_ones_are_nothing(json, any_blocks, data, expected):
    assert read(json(data)) == expected


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "true", True),
        ("byte", "-128", -128),
        ("short", "32767", 32767),
        ("int", "2147483647", 2147483647),
        ("long", "9223372036854775807", 9223372036854775807),
        ("float", "0.5", 0.5),
        ("double", "3", 3.0),
        ("string", '"x"', "x"),
        ("binary", '"/w=="', b"\xff"),
        ("decimal(10,2)", "1.5", Decimal("1.50")),
        ("decimal(10,2)", '"1.5"', Decimal("1.50")),
        ("decimal(10,2)", "1e2", Decimal("100.00")),
        ("decimal(38,20)", "0.12345678901234567890", Decimal("0.12345678901234567890")),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("timestamp", '"2024-02-29T12:00:00.000001"', datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)),
        ("timestamp", '"2024-02-29 12:00:00+02:00"', datetime(2024, 2, 29, 10, tzinfo=UTC)),
        ("timestamp_ntz", '"2024-02-29T12:00:00"', datetime(2024, 2, 29, 12)),
        ("array<int>", "[1, null]", [1, None]),
        ("array<decimal(3,1)>", "[1.5]", [Decimal("1.5")]),
        ("map<string,date>", '{"x": "2024-02-29", "y": null}', {"x": date(2024, 2, 29), "y": None}),
        ("struct<x: int, y: array<string>>", '{"y": ["z"], "w": 1}', {"x": None, "y": ["z"]}),
    ],
)
def test_values_get_the_types_of_the_schema(json, kind, text, value):
    row, null, missing = read(json(f'{{"a": {text}, "b": 1}}\n{{"a": null}}\n{{}}\n', f"a {kind}"))
    assert row == {"a": value}
    assert type(row["a"]) is type(value)
    assert null == missing == {"a": None}


def test_times_with_an_offset_are_in_utc(json):
    (row,) = read(json('{"t": "2024-01-01T00:00:00-05:00"}', "t timestamp"))
    assert row["t"].isoformat() == "2024-01-01T05:00:00+00:00"


def test_doubles_beside_decimals_stay_floats(json):
    (row,) = read(json('{"d": 1.10, "f": 1.10}', "d decimal(5,2), f double"))
    assert repr(row) == "{'d': Decimal('1.10'), 'f': 1.1}"


def test_keys_of_objects_are_strings():
    with pytest.raises(ps.FlowError, match="map<int,string>"):
        ps.sources.json("x.json", "a map<int, string>")


def test_not_a_number_is_read_as_python_reads_it(json):
    (row,) = read(json('{"a": NaN}', "a double"))
    assert math.isnan(row["a"])


BAD_LINES = [
    ('{"a": 1', "not JSON: Expecting ',' delimiter at column 8"),
    ("nothing", "not JSON: Expecting value at column 1"),
    ('{"a": 1} {"a": 2}', "not JSON: Extra data at column 10"),
    (b'{"a": "\xff"}', "'utf-8' codec can't decode"),
    ("[1]", "expected an object with the fields a, t, found [1]"),
    ("null", "expected an object"),
    ('{"a": "1"}', "column 'a': '1' is not a int"),
    ('{"a": true}', "column 'a': True is not a int"),
    ('{"a": 1.0}', "column 'a': 1.0 is not a int"),
    ('{"a": 2147483648}', "column 'a': 2147483648 is not a int"),
    ('{"a": null}', "column 'a' is NOT NULL and has no value"),
    ("{}", "column 'a' is NOT NULL and has no value"),
    ('{"a": 1, "t": "yesterday"}', "column 't': 'yesterday' is not a timestamp"),
    ('{"a": 1, "t": "0001-01-01T00:00:00+14:00"}', "column 't': '0001-01-01T00:00:00+14:00' is not a timestamp"),
    ('{"a":' + "[" * 65 + "]" * 65 + "}", "nested more than 64 deep"),
    ("1" * 5000, "Exceeds the limit"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_LINES)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_bad_lines_are_found_by_their_numbers_and_nothing_else_is_lost(json, any_blocks, bad, message, end):
    bad = bad.encode() if isinstance(bad, str) else bad
    lines = [bad, b'{"a": 1}', b'{"a": 2}', bad, bad, b'{"a": 3}', b"", b'{"a": 4}', bad]
    source = json(b"\n".join(lines) + end, "a int NOT NULL, t timestamp")
    with pytest.raises(ps.SourceError) as caught:
        read(source)
    assert f"a.json, line 1: {message}" in str(caught.value)
    good = [{"a": number, "t": None} for number in (1, 2, 3, 4)]
    assert read(source, on_error="skip") == good
    rows, letters = read_and_letters(source)
    assert rows == good
    assert [letter.value for letter in letters] == [bad.decode("utf-8", "replace")] * 4
    for letter, number in zip(letters, (1, 4, 5, 9), strict=True):
        assert letter.operator == "in"
        assert f"a.json, line {number}: {message}" in letter.error


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "1"),
        ("byte", "128"),
        ("double", '"1.5"'),
        ("double", "true"),
        ("double", "1" + "0" * 400),
        ("string", "1"),
        ("binary", '"not base64!"'),
        ("decimal(5,2)", "1.234"),
        ("decimal(5,2)", "12345"),
        ("decimal(5,2)", '"NaN"'),
        ("decimal(5,2)", "true"),
        ("decimal(5,2)", "[]"),
        ("date", '"2024-02-30"'),
        ("date", "20240229"),
        ("timestamp_ntz", '"2024-02-29T12:00:00Z"'),
        ("array<int>", '{"x": 1}'),
        ("array<int>", '[1, "2"]'),
        ("map<string,int>", "[]"),
        ("map<string,int>", '{"x": "1"}'),
        ("struct<x:int not null>", "{}"),
        ("struct<x:int>", '{"x": "1"}'),
    ],
)
def test_a_value_of_another_type_names_the_column_and_the_type(json, kind, text):
    with pytest.raises(ps.SourceError) as caught:
        read(json(f'{{"a": {text}}}', f"a {kind}"))
    assert "a.json, line 1: column 'a': " in str(caught.value)
    assert f"is not a {kind.removesuffix(' not null>')}" in str(caught.value)


@pytest.mark.parametrize("nesting", [1, 3])
def test_nesting_is_limited(json, nesting):
    limits = ps.sources.Limits(nesting=nesting)
    deep = "[" * nesting + r'"]\"[{[{\\"' + "]" * nesting
    assert len(read(json(deep, limits=limits))) == 1
    with pytest.raises(ps.SourceError, match=f"line 1: nested more than {nesting} deep"):
        read(json(f'{{"a": {deep}}}', limits=limits))


def test_nesting_that_python_can_not_parse_is_a_bad_line_whatever_the_limit(json):
    deep = "[" * 200_000 + "]" * 200_000
    good, letters = read_and_letters(json(f"1\n{deep}\n2\n", limits=ps.sources.Limits(nesting=1_000_000)))
    assert good == [1, 2]
    assert "a.json, line 2: " in letters[0].error


@pytest.mark.parametrize("suffix", ["", ".zst"])
@pytest.mark.parametrize("schema", [None, "n int"])
def test_reading_resumes_at_every_chunk(tmp_path, tiny_blocks, suffix, schema):
    for name in "ab":
        lines = [f'{{"n": {number}, "name": "{name}"}}' for number in range(6)]
        data = "\r\n".join(["\ufeff" + lines[0], "bad", "", *lines[1:], '{"n": "bad"}']).encode()
        (tmp_path / f"{name}{suffix}").write_bytes(compressed(data, suffix) if suffix else data)
    steps = resumptions(ps.sources.json(tmp_path, schema))
    assert len(steps) > 10
    for rest, expected in steps:
        assert rest == expected
