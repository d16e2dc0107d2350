"""Slices on their way between tasks: taken apart, put together, in order whoever sends first."""

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.engines.spark import wire
from penstock.engines.spark.columns import column_hashes, key_hashes
from penstock.ordering.keys import key_hash


def row(place, values, positions=None, edge=0):
    return wire.ShuffleRow(
        1, 0, 0, wire.sort_key_through(edge, wire.sort_key_of(0, place)), edge, wire.packed(values, positions)
    )


def slices(rows):
    """As Spark brings them: in the order of places, and, among those of one place, in any."""
    shuffled = random.Random(7).sample(rows, len(rows))
    arriving = wire.batches(sorted(shuffled, key=lambda row: row.sort_key))
    return [(edge, part.sort_key[-1], part.values) for edge, part in wire.slices_of(wire.rows_of(arriving))]


def test_parts_of_a_slice_are_put_in_order():
    rows = [
        row(place, [(place, position) for position in range(task, 100, 3)], (np.arange(task, 100, 3),))
        for place in range(5)
        for task in range(3)
    ]
    assert slices(rows) == [(0, place, [(place, position) for position in range(100)]) for place in range(5)]


def test_several_outputs_of_one_tuple_keep_their_order():
    columns = (np.array([0, 0, 4, 4]), np.array([0, 1, 0, 1])), (np.array([2, 4, 6]), np.array([0, 2, 0]))
    rows = [row(0, ["a", "b", "e", "f"], columns[0]), row(0, ["c", "g", "h"], columns[1])]
    assert slices(rows) == [(0, 0, list("abcefgh"))]


def test_lines_are_put_in_order_as_they_are():
    parts = [(["0\n", "3\n"], [0, 3]), (["1\n", "2\n", "4\n"], [1, 2, 4])]
    rows = [row(0, pa.array(lines, pa.large_binary()), (np.array(at),)) for lines, at in parts]
    ((_, _, lines),) = slices(rows)
    assert b"".join(lines.to_pylist()) == b"0\n1\n2\n3\n4\n"


def test_a_part_of_a_table_is_sent_without_the_rest():
    table = pa.table({"n": range(100_000)})
    assert len(wire.packed(table.slice(5, 10), None)) < 5_000
    assert slices([row(0, table.slice(5, 3))]) == [(0, 0, [{"n": 5}, {"n": 6}, {"n": 7}])]


@pytest.mark.parametrize("rows_per_table", [1, 3, 4, 5, 8, 9, 100])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 7, 8, 9, 40])
def test_tables_are_cut_anew_and_nothing_is_lost(monkeypatch, rows, rows_per_table):
    monkeypatch.setattr(wire, "ROWS_PER_SLICE", 4)
    tables = [
        pa.table({"n": range(start, min(start + rows_per_table, rows))}) for start in range(0, rows, rows_per_table)
    ]
    parts = [part.column("n").to_pylist() for part in wire.in_slices(tables)]
    assert parts == [list(range(start, min(start + 4, rows))) for start in range(0, rows, 4)]


def test_the_inputs_of_an_operator_come_one_after_the_other():
    rows = [row(number, [number], edge=edge) for number in range(3) for edge in range(2)]
    assert slices(rows) == [(edge, number, [number]) for edge in range(2) for number in range(3)]


@pytest.mark.parametrize(
    "keys",
    [
        [0, 9, 10, -1, -10, 99, 100, 2**63 - 1, -(2**63), 12345678901234567],
        [2**63, -(2**70), 5],
        ["", "a", "ž🐎", "x" * 300],
        ["\ud800"],
        [1, 1.0, True, "1", b"1", None, (1, None), float("nan"), 0.5],
        [],
    ],
)
def test_many_hashes_are_those_of_each_key(keys):
    assert key_hashes(keys).tolist() == [key_hash(key) for key in keys]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 7, -12, 10**18, -(2**63)]),
        pa.array([1, None, 3]),
        pa.array([3, 200], pa.uint8()),
        pa.array(["a", "b", None, "a"]),
        pa.array([1.0, 0.5, float("nan"), None]),
        pa.array([True, False, None]),
        pa.array([1_700_000_000_000_000], pa.timestamp("us", tz="UTC")),
        pa.array([], pa.int64()),
    ],
)
def test_hashes_of_a_column_are_those_of_its_rows(column):
    found = column_hashes(pa.table({"key": column}), ["key"])
    assert found.tolist() == [key_hash(key) for key in column.to_pylist()]


def test_a_column_that_can_not_be_a_key_is_left_to_the_operator():
    assert column_hashes(pa.table({"key": [[1], [2]]}), ["key"]) is None
    assert column_hashes(pa.table({"key": [1]}), ["other"]) is None
