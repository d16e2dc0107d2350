"""Columns that go unseen from a source to a keyed operator arrive, all of them, at the sizes of every day."""

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.engines.spark.wire import ROWS_PER_SLICE


@pytest.mark.parametrize("row_group_size", [8192, 100_000])
def test_more_than_a_slice_of_parquet_by_column(tmp_path, row_group_size):
    rows_per_file = 2 * ROWS_PER_SLICE + 1
    for file in range(2):
        numbers = range(file * rows_per_file, (file + 1) * rows_per_file)
        table = pa.table({"key": [number % 7 for number in numbers], "n": numbers})
        pyarrow.parquet.write_table(table, tmp_path / f"{file}.parquet", row_group_size=row_group_size)
    flow, sink = ps.Flow("by-column"), ps.sinks.collect()
    rows = flow.read(ps.sources.parquet(str(tmp_path)), name="rows")
    rows.key_by("key").stateful_map(lambda seen, row: (seen + 1, (row["n"], seen)), init=int, name="seen").write(sink)
    report = flow.run(ps.engines.Spark(parallelism=2))
    assert sink.items == [(number, number // 7) for number in range(2 * rows_per_file)]
    assert report.operators["rows"].emitted == 2 * rows_per_file
