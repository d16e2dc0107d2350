"""Rows in, rows out: every source on every engine, at sizes around every boundary, against plain Python.

The sizes at which engines and connectors cut are lowered here, so that a few rows meet all of them; what they are every
day is tried in `tests/spark/test_columns_in_slices.py`, and here where it takes longer.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors import memory
from penstock.connectors.files import encoders, lines, parquet, writers
from penstock.engines.spark import admission, wire
from tests.properties import engines as drawn
from tests.spark.in_process import InProcess

SLICE, CHUNK, BLOCK_BYTES = 8, 4, 128
SCHEMA = "key long, n long, text string"
SIZES = sorted({0, 1} | {size + more for size in (CHUNK, SLICE, 2 * SLICE, 5 * SLICE) for more in (-1, 0, 1)})
KINDS = ["items", "iterator", "generate", "text", "json", "csv", "parquet", "text.gz", "json.gz", "csv.gz"]
SHAPES = ["as it is", "mapped", "in batches", "by function", "by column", "both", "in sequence", "twice by key"]
SINKS = ["collect", "json", "csv", "text", "parquet"]


@dataclass(frozen=True)
class Case:
    """What is read, what is done with it, and where it goes."""

    kind: str
    sizes: tuple[int, ...]
    rows_per_group: int
    has_huge_row: bool
    shape: str
    sink: str

    def files(self) -> list[list[dict[str, Any]]]:
        """The rows of each file, numbered through."""
        files, first = [], 0
        for size in self.sizes:
            files.append([self._row(number) for number in range(first, first + size)])
            first += size
        return files

    def _row(self, number: int) -> dict[str, Any]:
        text = "ž" * 500 if self.has_huge_row and number == sum(self.sizes) // 2 else str(number)
        return {"key": number * number % 5, "n": number, "text": text}


def cases(sizes: Any, most_files: int = 4) -> Any:
    return st.builds(
        Case,
        st.sampled_from(KINDS),
        st.lists(sizes, min_size=1, max_size=most_files).map(tuple),
        st.sampled_from([1, CHUNK - 1, CHUNK, SLICE, SLICE + 1, 1000]),
        st.booleans(),
        st.sampled_from(SHAPES),
        st.sampled_from(SINKS),
    )


def source_of(case: Case, folder: Path) -> Any:
    files = case.files()
    rows = [row for file in files for row in file]
    match case.kind:
        case "items":
            return ps.sources.items(rows)
        case "iterator":
            return ps.sources.items(iter(rows))
        case "generate":
            return ps.sources.generate(rows.__getitem__, count=len(rows))
        case "parquet":
            schema = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
            for number, file in enumerate(files):
                table = pa.Table.from_pylist(file, schema=schema)
                pyarrow.parquet.write_table(table, folder / f"{number:03d}.parquet", row_group_size=case.rows_per_group)
            return ps.sources.parquet(str(folder))
    form, _, packing = case.kind.partition(".")
    for number, file in enumerate(files):
        data = _encoded(form, file)
        path = folder / f"{number:03d}.{case.kind}"
        path.write_bytes(gzip.compress(data) if packing else data)
    if form == "text":
        return ps.sources.text(str(folder))
    return (ps.sources.json if form == "json" else ps.sources.csv)(str(folder), schema=SCHEMA)


def _encoded(form: str, rows: list[dict[str, Any]]) -> bytes:
    if form == "csv":
        found = ["key,n,text", *(f"{row['key']},{row['n']},{row['text']}" for row in rows)]
    else:
        found = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = "\n".join(found)
    return (text + "\n" * (bool(found) and len(rows) % 2)).encode()  # a last line may lack its end


def seen_by_key(seen: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return seen + 1, {"n": row["n"], "key": row["key"], "seen": seen}


def built(case: Case, flow: ps.Flow, source: Any) -> list[Any]:
    """The streams that come out."""
    rows = flow.read(source, name="rows")
    if case.kind.startswith("text"):
        rows = rows.map(json.loads, name="parse")
    match case.shape:
        case "mapped":
            return [rows.map(dict, name="same")]
        case "in batches":
            return [rows.map_batch(list, name="same")]
        case "by function":
            return [rows.key_by(lambda row: row["key"]).stateful_map(seen_by_key, init=int, name="seen")]
        case "by column":
            return [rows.key_by("key").stateful_map(seen_by_key, init=int, name="seen")]
        case "both":
            return [rows.key_by("key").stateful_map(seen_by_key, init=int, name="seen"), rows.map(dict, name="same")]
        case "in sequence":
            return [rows.scan(lambda count, row: (count + 1, {"n": row["n"], "count": count}), 0, name="count")]
        case "twice by key":
            once = rows.key_by("key").stateful_map(seen_by_key, init=int, name="seen")
            return [once.key_by(lambda row: row["seen"] % 3).stateful_map(seen_by_key, init=int, name="again")]
    return [rows]


def expected(case: Case) -> list[list[dict[str, Any]]]:
    """The same in plain Python."""
    rows = [row for file in case.files() for row in file]

    def seen(rows: list[dict[str, Any]], name: str, modulus: int) -> list[dict[str, Any]]:
        before: Counter[int] = Counter()
        found = []
        for row in rows:
            found.append({"n": row["n"], "key": row["key"], "seen": before[row[name] % modulus]})
            before[row[name] % modulus] += 1
        return found

    match case.shape:
        case "by function" | "by column":
            return [seen(rows, "key", 5)]
        case "both":
            return [seen(rows, "key", 5), rows]
        case "in sequence":
            return [[{"n": row["n"], "count": count} for count, row in enumerate(rows)]]
        case "twice by key":
            return [seen(seen(rows, "key", 5), "seen", 3)]
    return [rows]


class Written:
    """A sink, and what was written to it, read by others than Penstock."""

    def __init__(self, form: str, folder: Path) -> None:
        self._form = form
        self._folder = folder
        self.sink: Any = ps.sinks.collect() if form == "collect" else getattr(ps.sinks, form)(folder)

    def rows(self) -> list[Any]:
        if self._form == "collect":
            return list(self.sink.items)
        found: list[Any] = []
        for path in sorted(self._folder.glob("part-*")):
            match self._form:
                case "json":
                    found += map(json.loads, path.read_text().splitlines())
                case "csv":
                    found += pyarrow.csv.read_csv(path).to_pylist()
                case "text":
                    found += map(eval, path.read_text().splitlines())
                case "parquet":
                    found += pyarrow.parquet.read_table(path).to_pylist()
        return found


def check(case: Case, run: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="rows-") as root:
        folder = Path(root, "in")
        folder.mkdir()
        flow = ps.Flow("rows")
        sinks = []
        for number, stream in enumerate(built(case, flow, source_of(case, folder))):
            sinks.append(Written(case.sink, Path(root, f"out-{number}")))
            stream.write(sinks[-1].sink, name=f"out-{number}")
        run(flow)
        for written, wanted in zip(sinks, expected(case), strict=True):
            assert [_comparable(row) for row in written.rows()] == [_comparable(row) for row in wanted]


def _comparable(row: dict[str, Any]) -> dict[str, str]:
    """CSV guesses the type of what looks like a number."""
    return {name: str(value) for name, value in row.items()}


def small_cuts() -> ExitStack:
    """Everything is cut after a few rows, or bytes."""
    stack = ExitStack()
    for owner, name, value in (
        (wire, "ROWS_PER_SLICE", SLICE),
        (wire, "_BYTES_PER_BATCH", 600),
        (admission, "_LEAST_PART", CHUNK),
        (memory, "_VALUES_PER_CHUNK", CHUNK),
        (memory, "_VALUES_PER_LOOK", 3),
        (parquet, "_ROWS_PER_CHUNK", CHUNK),
        (lines, "_BLOCK_BYTES", BLOCK_BYTES),
        (encoders, "_ROWS_PER_GROUP", CHUNK),
        (writers, "_BYTES_PER_FILE", 3 * BLOCK_BYTES),
    ):
        stack.enter_context(patch.object(owner, name, value))
    return stack


in_process = st.builds(
    InProcess,
    st.integers(1, 3),
    st.sampled_from([CHUNK + 1, SLICE, 2 * SLICE - 1, 3 * SLICE, 1000]),
    st.sampled_from([BLOCK_BYTES - 1, BLOCK_BYTES, 5 * BLOCK_BYTES, 1 << 20]),
)
simulated = st.builds(
    lambda cores, queue_size: ps.engines.Simulated(cores=cores, queue_size=queue_size),
    st.integers(1, 3),
    st.sampled_from([1, CHUNK, SLICE + 1, 1000]),
)
quick = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@settings(quick, max_examples=60)
@given(cases(st.sampled_from(SIZES)), st.one_of(drawn.engines, simulated))
def test_rows_on_engines_of_one_process(case, engine):
    with small_cuts():
        check(case, lambda flow: flow.run(engine))


@settings(quick, max_examples=30)
@given(cases(st.sampled_from(SIZES)), in_process)
@example(Case("parquet", (2 * SLICE + 1,), CHUNK, False, "by column", "collect"), InProcess(2))
@example(Case("csv", (5 * SLICE, 0, SLICE), 1, True, "twice by key", "json"), InProcess(3, bytes_per_batch=BLOCK_BYTES))
def test_rows_in_tasks_and_batches(case, engine):
    with small_cuts():
        check(case, engine.run)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(quick, max_examples=1500)
@given(cases(st.integers(0, 6 * SLICE), most_files=12), in_process)
def test_rows_in_tasks_and_batches_for_longer(case, engine):
    with small_cuts():
        check(case, engine.run)


BIG = [0, 1, *(size + more for size in (8192, 65_536, 131_072) for more in (-1, 0, 1))]


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(quick, max_examples=40)
@given(cases(st.sampled_from(BIG), most_files=3), st.sampled_from([8192, 65_536, 100_000, 1_000_000]))
def test_rows_on_spark_at_the_sizes_of_every_day(case, rows_per_batch):
    check(case, lambda flow: flow.run(ps.engines.Spark(parallelism=2, rows_per_batch=rows_per_batch)))


@settings(quick, max_examples=3)
@given(cases(st.sampled_from(SIZES), most_files=2), st.sampled_from([5 * SLICE, 1000]))
def test_rows_on_spark(case, rows_per_batch):
    """What Spark itself does to them; slices are as long as ever here, for its workers are other processes."""
    check(case, lambda flow: flow.run(ps.engines.Spark(parallelism=2, rows_per_batch=rows_per_batch)))
