"""The Spark engine against what else one can write on Spark, on local[2]: ratios from one run.

penstock bench spark [--quick] [--only counts|numbering|chain|state|overhead]

All contestants share one Spark session, read the same Parquet files, write JSON files, and recover exactly once from a
checkpoint. A batch's time is the time from one entry of Spark's commit log to the next, for Penstock as for the others,
so everything between two batches is in it. The first batches of a run, which meet every key once, don't count.
Contestants take turns, and the median of all their batches counts. All that each has written in each of its runs is
compared with what it should be: who loses rows has no time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet
from pyspark.sql import Row, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

import penstock as ps
from penstock.connectors.spark_session import session
from penstock.plan.groups import make_plan

CORES = 2
FILES_PER_BATCH = CORES
REPEATS = 3
MOST_SECONDS_PER_MILLION = 60  # who needs more for a batch gets a tenth of the rows and of the keys
EVENTS = "user bigint, position bigint, value bigint"
COUNTS = "user bigint, count bigint"
NUMBERS = "user bigint, position bigint, number bigint"
_STORE = "spark.sql.streaming.stateStore"
# Meant in favour of Spark's own streams: a shuffle partition for each core, state as changelogs, its rows not counted,
# and the cheaper checkpoint logs that Penstock uses as well. Each was chosen from what is known of it, not by a sweep.
SPARKS_OWN = {
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
}


# Input, and how time is taken


@dataclass(frozen=True)
class Input:
    """A directory of Parquet files, two for each batch; the first `warm` batches are not measured."""

    folder: Path
    rows_per_batch: int
    batches: int
    warm: int
    files_per_batch: int = FILES_PER_BATCH


@dataclass(frozen=True)
class Work:
    """Where one run writes."""

    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


@dataclass(frozen=True)
class Rows:
    """What is to be written, by column; and whether in this order."""

    columns: dict[str, Any]
    in_order: bool


Run = Callable[[Input, Work], list[float]]
"""Runs one contestant over an input, and tells the seconds of every measured batch."""
Wanted = Callable[[str, Input], Rows | None]
"""What a contestant is to write for an input; `None` for one that writes nothing."""


class Places:
    """Makes inputs and places to work in, all in one temporary directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made = 0

    def folder(self) -> Path:
        self._made += 1
        made = self._root / f"{self._made:04d}"
        made.mkdir()
        return made

    def events(self, rows: int, keys: int, measured: int) -> Input:
        """Every key once (or as often as a batch has room), then keys at random."""
        random = np.random.default_rng(7)
        warm = -(-keys // rows)
        first = random.permutation(np.arange(warm * rows) % keys)
        users = [*first.reshape(warm, rows), *(random.integers(0, keys, rows) for _ in range(measured))]
        folder = self.folder()
        write_batches(folder, users)
        return Input(folder, rows, len(users), warm)

    def run(self, name: str, contestant: Run, given: Input, wanted: Wanted) -> list[float]:
        """The seconds of its batches, if its output is right."""
        work = Work(self.folder())
        try:
            seconds = contestant(given, work)
            check_output(name, work.output, wanted(name, given))
            return seconds
        finally:
            shutil.rmtree(work.folder, ignore_errors=True)


def write_batches(folder: Path, batches: list[Any], files_per_batch: int = FILES_PER_BATCH) -> None:
    position = 0
    for number, users in enumerate(batches):
        for part, share in enumerate(np.array_split(users, files_per_batch)):
            positions = np.arange(position, position + len(share))
            table = pa.table(
                {"user": share.astype(np.int64), "position": positions, "value": positions * 7919 % 10_007}
            )
            path = folder / f"{number:04d}-{part}.parquet"
            pa.parquet.write_table(table, path, row_group_size=1 << 20)
            # Spark takes files in the order of these times, Penstock in the order of names.
            made_at = time.time_ns() // 10**9 - 100_000 + number * files_per_batch + part
            os.utime(path, (made_at, made_at))
            position += len(share)


def batch_seconds(checkpoint: Path, given: Input) -> list[float]:
    """From each batch's commit to the next one's."""
    commits = sorted((int(path.name), path) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    if len(commits) != given.batches:
        raise RuntimeError(f"{len(commits)} batches instead of {given.batches}")
    seconds = np.diff([path.stat().st_mtime_ns for _, path in commits]) / 1e9
    return [float(one) for one in seconds[given.warm - 1 :]]


def check_output(name: str, output: Path, wanted: Rows | None) -> None:
    """Whoever promises an order is held to it; the rows of the others are compared as a set."""
    if wanted is None:
        return
    files = sorted(path for path in output.rglob("part-*.json") if path.is_file() and path.stat().st_size)
    tables = [pyarrow.json.read_json(path) for path in files]
    found = [np.concatenate([table[column].to_numpy() for table in tables]) for column in wanted.columns]
    columns = list(wanted.columns.values())
    if not wanted.in_order:
        found, columns = ([column[np.lexsort(of)] for column in of] for of in (found, columns))
    if not all(map(np.array_equal, found, columns)):
        raise RuntimeError(f"{name} has written {len(found[0]):,} rows, and {len(columns[0]):,} others were wanted")


def users_of(given: Input) -> Any:
    """In the order of the stream."""
    return pa.parquet.read_table(given.folder, columns=["user"])["user"].to_numpy()


def numbers_of(users: Any) -> Any:
    """The how-manieth each is of its user's."""
    order = np.argsort(users, kind="stable")
    ordered = users[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    numbers = np.empty(len(users), dtype=np.int64)
    numbers[order] = np.arange(len(users)) - np.repeat(firsts, np.diff(firsts, append=len(users))) + 1
    return numbers


def by_turns(places: Places, contestants: dict[str, tuple[Run, Input]], wanted: Wanted) -> dict[str, float]:
    """The median rows a second of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(REPEATS):
        for name, (run, given) in contestants.items():
            seconds[name] += places.run(name, run, given, wanted)
    return {name: contestants[name][1].rows_per_batch / statistics.median(taken) for name, taken in seconds.items()}


def too_slow(seconds: list[float], given: Input) -> bool:
    return statistics.median(seconds) / given.rows_per_batch * 1e6 > MOST_SECONDS_PER_MILLION


def ratio_and_goal(ratio: float, goal: float | None) -> str:
    if goal is None:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} (goal {goal:g}: {'met' if ratio >= goal else 'MISSED'})"


def print_rates(rates: dict[str, float], goals: dict[str, dict[str, float]]) -> None:
    """Rows a second, and how many times as fast each of Penstock's is."""
    ours = [name for name in rates if name.startswith("penstock")]
    print(f"  {'':<28}{'rows/s':>10}   " + "".join(f"{name + ' /':<26}" for name in ours).rstrip())
    for name, rate in rates.items():
        line = f"  {name:<28}{rate:>10,.0f}   "
        if name not in ours:
            told = [ratio_and_goal(rates[mine] / rate, goals.get(name, {}).get(mine)) for mine in ours]
            line += "".join(f"{one:<26}" for one in told)
        print(line.rstrip())
    sys.stdout.flush()


# How each side runs


class Contest:
    """The session, and the two ways to run something on it."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def penstock(self, build: Callable[[Any, Path], None]) -> Run:
        def run(given: Input, work: Work) -> list[float]:
            flow = ps.Flow("bench")
            build(flow.read(ps.sources.parquet(given.folder)), work.output)
            flow.run(
                ps.engines.Spark(
                    session=self.spark, checkpoint=str(work.checkpoint), rows_per_batch=given.rows_per_batch
                )
            )
            (log,) = (work.checkpoint / "spark").iterdir()
            return batch_seconds(log, given)

        return run

    def stream(self, build: Callable[[Any], Any]) -> Run:
        """A streaming query with Spark's own file sink."""

        def run(given: Input, work: Work) -> list[float]:
            writer = build(self._frame(given)).writeStream.format("json").option("path", str(work.output))
            return self._finished(writer, given, work)

        return run

    def each_batch(self, build: Callable[[Any], Any], mode: str = "append") -> Run:
        """A frame for each batch, written to a directory of its own, which makes it exactly once."""

        def run(given: Input, work: Work) -> list[float]:
            def write(frame: Any, batch: int) -> None:
                build(frame).write.mode("overwrite").json(str(work.output / f"batch={batch}"))

            return self._finished(self._frame(given).writeStream.foreachBatch(write), given, work, mode)

        return run

    def updates(self, build: Callable[[Any], Any]) -> Run:
        """A query in update mode, which Spark's own file sink does not take."""

        def run(given: Input, work: Work) -> list[float]:
            def write(frame: Any, batch: int) -> None:
                frame.write.mode("overwrite").json(str(work.output / f"batch={batch}"))

            writer = build(self._frame(given)).writeStream.foreachBatch(write)
            return self._finished(writer, given, work, "update")

        return run

    def bare(self, act: Callable[[Any], object]) -> Run:
        """`foreachBatch` and nothing else."""

        def run(given: Input, work: Work) -> list[float]:
            return self._finished(self._frame(given).writeStream.foreachBatch(lambda frame, _: act(frame)), given, work)

        return run

    def _frame(self, given: Input) -> Any:
        spark = self.spark.newSession()
        for name, value in SPARKS_OWN.items():
            spark.conf.set(name, value)
        reader = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", given.files_per_batch)
        return reader.parquet(str(given.folder))

    def _finished(self, writer: Any, given: Input, work: Work, mode: str = "append") -> list[float]:
        writer = writer.outputMode(mode).option("checkpointLocation", str(work.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return batch_seconds(work.checkpoint, given)


# Counts: for every event, how many there were of its user so far


def user_of(event):
    return event["user"]


def counted(count, event):
    count += 1
    return count, {"user": event["user"], "count": count}


class CountRows(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Row]:  # noqa: N802, N803 (Spark's names)
        count = self._count.get()[0] if self._count.exists() else 0
        for _ in rows:
            count += 1
            yield Row(user=key[0], count=count)
        self._count.update((count,))

    def close(self):
        pass


def numbered_on(user: int, frames: Iterator[pd.DataFrame], count: int) -> pd.DataFrame:
    rows = sum(map(len, frames))
    return pd.DataFrame({"user": np.full(rows, user), "count": np.arange(count + 1, count + rows + 1)})


class CountFrames(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 (Spark's names)
        count = self._count.get()[0] if self._count.exists() else 0
        frame = numbered_on(key[0], rows, count)
        self._count.update((count + len(frame),))
        yield frame

    def close(self):
        pass


def count_with_state(key, frames, state):
    count = state.get[0] if state.exists else 0
    frame = numbered_on(key[0], frames, count)
    state.update((count + len(frame),))
    yield frame


def with_state(name: str, processor: Callable[[], StatefulProcessor]) -> Callable[[Any], Any]:
    def build(frame):
        grouped = getattr(frame.groupBy("user"), name)
        return grouped(processor(), outputStructType=COUNTS, outputMode="Append", timeMode="None")

    return build


def in_pandas_with_state(frame):
    return frame.groupBy("user").applyInPandasWithState(
        count_with_state, COUNTS, "count bigint", "append", GroupStateTimeout.NoTimeout
    )


BY_FUNCTION, BY_COLUMN = "penstock by function", "penstock by column"
GROUP_BY = "JVM groupBy().count()"


def counts(contest: Contest, places: Places, rows: int) -> None:
    def penstock(key):
        return contest.penstock(
            lambda events, out: (
                events.key_by(key).stateful_map(counted, init=int, name="count").write(ps.sinks.json(out))
            )
        )

    fast = {
        BY_FUNCTION: penstock(user_of),
        BY_COLUMN: penstock("user"),
        GROUP_BY: contest.updates(lambda frame: frame.groupBy("user").count()),
    }
    slow = {"applyInPandasWithState": contest.stream(in_pandas_with_state)}
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        print("protobuf is not installed (pip install protobuf): both transformWithState are left out")
    else:
        slow = {
            "transformWithState": contest.stream(with_state("transformWithState", CountRows)),
            "transformWithStateInPandas": contest.stream(with_state("transformWithStateInPandas", CountFrames)),
            **slow,
        }
    goals = {
        100_000: {
            GROUP_BY: {BY_COLUMN: 1},
            "transformWithState": dict.fromkeys((BY_FUNCTION, BY_COLUMN), 4),
            "transformWithStateInPandas": dict.fromkeys((BY_FUNCTION, BY_COLUMN), 3),
            "applyInPandasWithState": dict.fromkeys((BY_FUNCTION, BY_COLUMN), 2),
        },
        1_000_000: {GROUP_BY: {BY_COLUMN: 3}},
    }
    for keys in (5_000, 100_000, 1_000_000):
        given = places.events(rows, keys, measured=2)
        runs = {name: (run, given) for name, run in fast.items()}
        fewer: list[str] = []
        if keys == 100_000:
            small = places.events(rows // 10, keys // 10, measured=2)
            for name, run in slow.items():
                is_small = too_slow(places.run(name, run, small, wanted_counts), small)
                runs[name] = (run, small if is_small else given)
                fewer += [name] * is_small
        print(f"\nrunning count of each key, {rows:,} rows a batch, {keys:,} keys: median of {REPEATS * 2} batches")
        if fewer:
            print(f"  with a tenth of the rows and of the keys: {', '.join(fewer)}")
        print_rates(by_turns(places, runs, wanted_counts), goals.get(keys, {}))
        shutil.rmtree(given.folder)
    print("  groupBy().count() gives a row for each key and batch, the others one for each event; Penstock's in order")


def wanted_counts(name: str, given: Input) -> Rows:
    users = users_of(given)
    if name != GROUP_BY:
        return Rows({"user": users, "count": numbers_of(users)}, in_order=name.startswith("penstock"))
    totals: Counter[int] = Counter()
    found: list[tuple[int, int]] = []
    for batch in users.reshape(given.batches, given.rows_per_batch):
        totals.update(batch.tolist())
        found += [(user, totals[user]) for user in np.unique(batch).tolist()]
    columns = np.array(found).T
    return Rows({"user": columns[0], "count": columns[1]}, in_order=False)


# Numbering each user's events in order


def numbered(number, event):
    number += 1
    return number, {"user": event["user"], "position": event["position"], "number": number}


def number_frame(frame):
    frame = frame.sort_values("position")
    return pd.DataFrame({"user": frame["user"], "position": frame["position"], "number": np.arange(1, len(frame) + 1)})


def numbering(contest: Contest, places: Places, rows: int) -> None:
    def by_window(frame):
        number = sf.row_number().over(Window.partitionBy("user").orderBy("position"))
        return frame.select("user", "position", number.alias("number"))

    penstock = contest.penstock(
        lambda events, out: (
            events.key_by("user").stateful_map(numbered, init=int, name="number").write(ps.sinks.json(out))
        )
    )
    window = contest.each_batch(by_window)
    in_pandas = contest.each_batch(lambda frame: frame.groupBy("user").applyInPandas(number_frame, NUMBERS))
    contestants = {"penstock": penstock, "JVM row_number() over": window, "applyInPandas": in_pandas}
    keys = rows // 10
    given = places.events(rows, keys, measured=2)
    small = places.events(rows // 10, keys // 10, measured=2)
    is_small = too_slow(places.run("applyInPandas", in_pandas, small, wanted_numbers), small)
    runs = {name: (run, given) for name, run in contestants.items()}
    if is_small:
        runs["applyInPandas"] = (in_pandas, small)
    print(f"\nnumbering the events of {keys:,} users, {rows:,} rows a batch: median of {REPEATS * 2} batches")
    if is_small:
        print("  with a tenth of the rows and of the users: applyInPandas")
    rates = by_turns(places, runs, wanted_numbers)
    print_rates(rates, {"JVM row_number() over": {"penstock": 1}, "applyInPandas": {"penstock": 10}})
    print("  the other two begin at 1 in every batch; Penstock goes on, and its output is in order")


def wanted_numbers(name: str, given: Input) -> Rows:
    users = users_of(given)
    if name == "penstock":
        numbers = numbers_of(users)
    else:
        numbers = np.concatenate([numbers_of(batch) for batch in users.reshape(given.batches, given.rows_per_batch)])
    return Rows({"user": users, "position": np.arange(len(users)), "number": numbers}, in_order=name == "penstock")


# Five stateless functions


def cleaned(row):
    return {"user": row["user"], "position": row["position"], "value": abs(row["value"])}


def scaled(row):
    return {"user": row["user"], "position": row["position"], "value": row["value"] * 3 + 1}


def mixed(row):
    return {"user": row["user"] % 1000, "position": row["position"], "value": row["value"]}


def folded(row):
    return {"user": row["user"], "position": row["position"], "value": row["value"] % 997}


def summed(row):
    return {"user": row["user"], "position": row["position"], "value": row["value"] + row["user"]}


STEPS = (cleaned, scaled, mixed, folded, summed)
_ARROW = pa.schema([("user", pa.int64()), ("position", pa.int64()), ("value", pa.int64())])


def all_by_hand(batches):
    for batch in batches:
        rows = [summed(folded(mixed(scaled(cleaned(row))))) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, _ARROW)


def one_by_hand(step):
    def run(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pylist([step(row) for row in batch.to_pylist()], _ARROW)

    return run


def chain(contest: Contest, places: Places, rows: int) -> None:
    def penstock(events, out):
        for step in STEPS:
            events = events.map(step)
        events.write(ps.sinks.json(out))

    def chained(frame):
        for step in STEPS:
            frame = frame.mapInArrow(one_by_hand(step), EVENTS)
        return frame

    def by_udfs(frame):
        column = sf.struct("user", "position", "value")
        for step in STEPS:
            column = sf.udf(step, f"struct<{EVENTS.replace(' bigint', ':bigint')}>")(column)
        return frame.select(column.alias("row")).select("row.*")

    contestants = {
        "penstock": contest.penstock(penstock),
        "one mapInArrow": contest.stream(lambda frame: frame.mapInArrow(all_by_hand, EVENTS)),
        "five mapInArrow": contest.stream(chained),
        "five Python UDFs": contest.stream(by_udfs),
    }
    given = places.events(rows, rows // 10, measured=3)
    print(f"\nfive stateless functions, {rows:,} rows a batch: median of {REPEATS * 3} batches")
    rates = by_turns(places, {name: (run, given) for name, run in contestants.items()}, wanted_rows)
    goals = {"one mapInArrow": 1 / 1.05, "five mapInArrow": 2, "five Python UDFs": 3}
    print_rates(rates, {name: {"penstock": round(goal, 2)} for name, goal in goals.items()})


def wanted_rows(name: str, given: Input) -> Rows:
    """What the five functions make of all rows, by columns."""
    table = pa.parquet.read_table(given.folder)
    users = table["user"].to_numpy() % 1000
    values = (np.abs(table["value"].to_numpy()) * 3 + 1) % 997 + users
    return Rows({"user": users, "position": table["position"].to_numpy(), "value": values}, name == "penstock")


# State: ten times as many keys, as many of them touched


def state(contest: Contest, places: Places, rows: int) -> None:
    rows, touched, warm, measured = rows // 10, rows // 20, 3, 6
    random = np.random.default_rng(11)
    users = random.choice(100_000, touched, replace=False)
    batches = [random.permutation(np.tile(users, rows // touched)) for _ in range(warm + measured)]
    ready = places.folder()
    write_batches(ready, batches)
    states = {}
    for keys in (100_000, 1_000_000):
        given = Input(places.folder(), keys, 1, 1)
        write_batches(given.folder, [random.permutation(keys)])
        states[keys] = (given, Work(places.folder()))
        count_on(contest, *states[keys])
    seconds: dict[int, list[float]] = {keys: [] for keys in states}
    for repeat in range(REPEATS):
        for keys, (given, work) in states.items():
            for path in sorted(ready.iterdir()):
                os.link(path, given.folder / f"more-{repeat}-{path.name}")
            more = Input(given.folder, rows, len(batches), warm)  # each run has a log of its own
            seconds[keys] += count_on(contest, more, work)
    for keys, (given, work) in states.items():
        check_output(f"penstock with {keys:,} keys", work.output, wanted_counts("penstock", given))
    print(f"\nkeyed state, {rows:,} rows a batch for the same {touched:,} keys: {REPEATS * measured} batches")
    for keys, taken in seconds.items():
        print(
            f"  {keys:>9,} keys in all   median {statistics.median(taken) * 1e3:>6.0f} ms   "
            f"mean {statistics.mean(taken) * 1e3:>6.0f} ms   most {max(taken) * 1e3:>6.0f} ms"
        )
    few, many = seconds.values()
    ratio = statistics.median(many) / statistics.median(few)
    print(f"  ratio of the medians {ratio:.2f}  (goal at most 1.2: {'met' if ratio <= 1.2 else 'MISSED'})", end="")
    print(f", of the means {statistics.mean(many) / statistics.mean(few):.2f}", flush=True)


def count_on(contest: Contest, given: Input, work: Work) -> list[float]:
    """Go on where the last run of this checkpoint has ended."""

    def build(events, out):
        events.key_by("user").stateful_map(counted, init=int, name="count").write(ps.sinks.json(out))

    return contest.penstock(build)(given, work)


# An almost empty batch


def same(batches):
    yield from batches


def overhead(contest: Contest, places: Places, rows: int) -> None:
    warm, measured = 4, 10
    folder = places.folder()
    write_batches(folder, [np.arange(1) + number for number in range(warm + measured)], files_per_batch=1)
    given = Input(folder, 1, warm + measured, warm, files_per_batch=1)

    def build(events, out):
        events.key_by("user").stateful_map(counted, init=int, name="count").write(ps.sinks.json(out))

    flow = ps.Flow("bench")
    build(flow.read(ps.sources.parquet(folder)), places.folder())
    exchanges = len(make_plan(flow.validate()).levels) - 1

    def exchanged(frame):
        frame = frame.mapInArrow(same, EVENTS)
        for _ in range(exchanges):
            frame = frame.repartition(CORES, "user").mapInArrow(same, EVENTS)
        return frame

    contestants = {
        "penstock": contest.penstock(build),
        "bare foreachBatch": contest.bare(lambda frame: exchanged(frame).toArrow()),
        "foreachBatch writing JSON": contest.each_batch(exchanged),
    }

    def wanted(name: str, given: Input) -> Rows | None:
        if name.startswith("bare"):
            return None
        return wanted_counts(name, given) if name == "penstock" else Rows({"user": users_of(given)}, in_order=False)

    rates = by_turns(places, {name: (run, given) for name, run in contestants.items()}, wanted)
    print(f"\na batch of one row, {exchanges} exchanges: median of {REPEATS * measured} batches")
    for name, rate in rates.items():
        line = f"  {name:<34}{1e3 / rate:>7.0f} ms"
        if name != "penstock":
            ratio = rate / rates["penstock"]
            line += f"   penstock takes {ratio:.2f} of it"
            if name == "bare foreachBatch":
                line += f"  (goal at most 1.3: {'met' if ratio <= 1.3 else 'MISSED'})"
        print(line, flush=True)


def main(arguments: list[str]) -> None:
    parts = {"counts": counts, "numbering": numbering, "chain": chain, "state": state, "overhead": overhead}
    parser = argparse.ArgumentParser(prog="penstock bench spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 rows a batch: fixed costs weigh more")
    parser.add_argument("--only", choices=list(parts))
    options = parser.parse_args(arguments)
    rows = 100_000 if options.quick else 1_000_000
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary directories go
    spark = session(f"local[{CORES},4]", {"spark.driver.memory": "4g"})
    print(f"Python {sys.version.split()[0]}, Spark {spark.version}, local[{CORES}]")
    print("settings of Spark's own streams:")
    for setting, value in SPARKS_OWN.items():
        print(f"  {setting.removeprefix('spark.sql.')} = {value.split('.')[-1]}")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        contest, places = Contest(spark), Places(Path(folder))
        try:
            for name, part in parts.items():
                if options.only in (None, name):
                    part(contest, places, rows)
        finally:
            with suppress(Exception):  # after a signal its connection may be in the middle of an answer
                spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
