"""Schemas: Spark DDL strings in, Arrow types and checked rows out."""

from collections import namedtuple
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.schema import Schema, ddl_type

INSTANT, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def only_type(text):
    ((field),) = Schema.parse(f"a {text}").arrow
    return field.type


@pytest.mark.parametrize(
    ("names", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("byte tinyint", pa.int8()),
        ("short smallint", pa.int16()),
        ("int integer INT Integer", pa.int32()),
        ("long bigint BIGINT", pa.int64()),
        ("float real", pa.float32()),
        ("double Double", pa.float64()),
        ("string varchar(5) CHAR(1)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp timestamp_ltz TIMESTAMP", INSTANT),
        ("timestamp_ntz", LOCAL),
        ("decimal dec numeric DECIMAL(10) decimal(10,0)", pa.decimal128(10, 0)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("decimal(5,2)", pa.decimal128(5, 2)),
        ("decimal(38,38)", pa.decimal128(38, 38)),
        ("array<int> ARRAY<INT>", pa.list_(pa.int32())),
        ("array<array<string>>", pa.list_(pa.list_(pa.string()))),
        ("map<string,map<int,date>>", pa.map_(pa.string(), pa.map_(pa.int32(), pa.date32()))),
        ("struct<>", pa.struct([])),
    ],
)
def test_types(names, arrow):
    for name in names.split():
        assert only_type(name) == arrow


@pytest.mark.parametrize(
    "text", ["struct<x int, y: array<string> not null>", "STRUCT< x : INT,y array<string>NOT NULL >"]
)
def test_structs(text):
    assert only_type(text) == pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.string()), False)])


@pytest.mark.parametrize(
    "text",
    [
        "user long, page string",
        "  user\tLONG ,\n page String ",
        "user: long, page: string",
        "user:long,page:string",
        "`user` long, `page` string",
        "user long COMMENT 'who, it\\'s said', page string comment \"what \\\" <int>\"",
    ],
)
def test_ways_to_write_the_same_columns(text):
    assert Schema.parse(text) == Schema(pa.schema([("user", pa.int64()), ("page", pa.string())]))


def test_not_null_and_comment_go_together():
    schema = Schema.parse("a int NOT NULL COMMENT 'x', b int not null, c int comment 'NOT NULL'")
    assert [field.nullable for field in schema.arrow] == [False, False, True]


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, unique=True))
def test_any_name_fits_between_backticks(names):
    text = ", ".join(f"`{name.replace('`', '``')}` int" for name in names)
    assert Schema.parse(text).names == tuple(names)


def test_names_that_are_also_words_of_the_language():
    assert Schema.parse("not int, comment string, array int, größe date").names == ("not", "comment", "array", "größe")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found the end"),
        ("   ", "found the end"),
        (",", "expected a column name, found ','"),
        ("a int,", "found the end"),
        ("a int,, b int", "expected a column name"),
        ("a", "column 'a' has no type"),
        ("a:", "column 'a' has no type"),
        ("a, b int", "column 'a' has no type"),
        ("a int b int", "expected ',' or the end, found b"),
        ("a integr", "column 'a' has the unknown type 'integr'; known are boolean"),
        ("a int(5)", "expected ',' or the end, found ("),
        ("a int-", "can't read '-'"),
        ("a-b int", "can't read '-b int'"),
        ("`a int", "can't read"),
        ("`` int", "can't read"),
        ("'a' int", "expected a column name"),
        ("a int, A.b int", "can't read '.b int'"),
        ("a int, a string", "two columns are called 'a'"),
        ("a int not", "expected NULL after NOT"),
        ("a int not nil", "expected NULL after NOT"),
        ("a int comment", "found the end"),
        ("a int comment x", "expected a quoted text after COMMENT"),
        ("a int comment, b int", "expected a quoted text after COMMENT"),
        ("a array", "expected <, found the end"),
        ("a array<", "has no type"),
        ("a array<>", "has no type"),
        ("a array<int", "expected >, found the end"),
        ("a array<int>>", "found >"),
        ("a array<int,int>", "expected >, found ,"),
        ("a map<int>", "expected ,, found >"),
        ("a map<int,int,int>", "expected >, found ,"),
        ("a struct", "expected <"),
        ("a struct<x int", "expected ',' or >, found the end"),
        ("a struct<x int, x int>", "two columns are called 'x'"),
        ("a struct<int>", "column 'int' has no type"),
        ("a varchar", "expected ("),
        ("a varchar(x)", "expected a number, found 'x'"),
        ("a varchar(²)", "expected a number"),
        ("a decimal(", "found the end"),
        ("a decimal()", "expected a number"),
        ("a decimal(5", "expected )"),
        ("a decimal(0)", "1 to 38 digits"),
        ("a decimal(39,2)", "1 to 38 digits"),
        ("a decimal(5,6)", "1 to 38 digits"),
        ("a decimal(5,2,1)", "1 to 38 digits"),
    ],
)
def test_what_does_not_parse_is_a_flow_error_that_quotes_the_schema(text, message):
    with pytest.raises(ps.FlowError) as caught:
        Schema.parse(text)
    assert f"the schema {text!r} does not parse" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("make", [ps.sources.csv, ps.sources.json, ps.sources.parquet, ps.sinks.csv, ps.sinks.parquet])
def test_connectors_parse_their_schema_at_once(make):
    with pytest.raises(ps.FlowError, match="the schema 'a integr' does not parse"):
        make("path", "a integr")
    with pytest.raises(ps.FlowError, match="a schema is a string such as .*, not dict"):
        make("path", {"a": "int"})


@pytest.mark.parametrize(
    "text",
    [
        *("boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date"),
        *("timestamp", "timestamp_ntz", "decimal(5,2)"),
        *("array<int>", "map<string,array<long>>", "struct<x:int,y:decimal(1,0)>"),
    ],
)
def test_types_are_shown_as_they_are_written(text):
    assert ddl_type(only_type(text)) == text


def test_types_that_no_schema_has_are_shown_as_arrow_shows_them():
    assert ddl_type(pa.time64("us")) == "time64[us]"


def table(schema, *rows):
    return Schema.parse(schema).table(rows).to_pylist(maps_as_pydicts="strict")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", True, True),
        ("int", np.int64(5), 5),
        ("long", 2**63 - 1, 2**63 - 1),
        ("double", 1, 1.0),
        ("double", np.float32(0.5), 0.5),
        ("string", "ž", "ž"),
        ("binary", b"\xff", b"\xff"),
        ("decimal(5,2)", Decimal("1.5"), Decimal("1.50")),
        ("decimal(5,2)", 3, Decimal("3.00")),
        ("date", date(2024, 1, 1), date(2024, 1, 1)),
        ("timestamp", datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp_ntz", datetime(2024, 1, 1), datetime(2024, 1, 1)),
        ("timestamp_ntz", np.datetime64("2024-01-01", "us"), datetime(2024, 1, 1)),
        ("array<int>", (1, None), [1, None]),
        ("array<int>", np.array([1, 2]), [1, 2]),
        ("array<int> NOT NULL", np.array([1, 2]), [1, 2]),
        ("map<string,int>", {"x": 1}, {"x": 1}),
        ("map<string,int>", [("x", 1)], {"x": 1}),
        ("struct<x:int,y:int>", {"y": 2}, {"x": None, "y": 2}),
    ],
)
def test_values_that_fit(kind, value, expected):
    assert table(f"a {kind}", {"a": value}) == [{"a": expected}]


def test_rows_get_the_columns_of_the_schema_in_its_order():
    (row,) = table("b int, a int", {"a": 1})
    assert list(row.items()) == [("b", None), ("a", 1)]
    assert table("a int") == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 1),
        ("byte", 128),
        ("int", True),
        ("int", 1.0),
        ("int", 1.5),
        ("int", Decimal("1.5")),
        ("int", "1"),
        ("long", 2**63),
        ("double", "1.5"),
        ("double", 2**60 + 1),
        ("string", 1),
        ("binary", 1),
        ("decimal(5,2)", 1.5),
        ("decimal(5,2)", Decimal("1.234")),
        ("decimal(5,2)", Decimal("1234.5")),
        ("date", "2024-01-01"),
        ("date", 5),
        ("date", datetime(2024, 1, 1, 12)),
        ("timestamp", 5),
        ("timestamp", "2024-01-01"),
        ("timestamp", date(2024, 1, 1)),
        ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=UTC)),
        ("array<int>", 5),
        ("array<int>", "12"),
        ("array<int>", [1.5]),
        ("array<array<date>>", [[datetime(2024, 1, 1)]]),
        ("map<string,int>", [5]),
        ("map<string,int>", {"x": 1.5}),
        ("map<string,int>", {5: 1}),
        ("map<string,int>", {None: 1}),
        ("struct<x:int>", {"x": 1.5}),
        ("struct<x:int>", {"y": 1}),
        ("struct<x:int>", 5),
        ("struct<x:int>", namedtuple("Point", "x")(1)),
    ],
)
def test_values_that_do_not_fit_name_the_column_and_its_type(kind, value):
    with pytest.raises(ValueError, match="^column 'a'") as caught:
        table(f"a {kind}", {"a": value})
    assert f"column 'a' ({kind}): " in str(caught.value) or "NOT NULL" in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ("a int NOT NULL", {"a": None}),
        ("a int NOT NULL", {}),
        ("a struct<x:int NOT NULL>", {"a": {}}),
        ("a array<struct<x:int NOT NULL>>", {"a": [{"x": None}]}),
        ("a map<string,struct<x:int NOT NULL>>", {"a": {"k": {"x": None}}}),
    ],
)
def test_not_null_at_any_depth(schema, row):
    with pytest.raises(ValueError, match="column 'a' is NOT NULL and has no value"):
        table(schema, row)


def test_not_null_inside_of_something_that_is_null_is_fine():
    assert table("a struct<x:int NOT NULL>", {"a": None}) == [{"a": None}]


def test_columns_that_the_schema_lacks_are_refused():
    with pytest.raises(ValueError, match="the schema has no column 'b', 'c'; it has a"):
        table("a int", {"a": 1, "b": 2, "c": 3})


def test_what_is_not_a_row_is_refused():
    with pytest.raises(ValueError, match="a row is a dict with the columns a, not tuple"):
        table("a int", (1,))
