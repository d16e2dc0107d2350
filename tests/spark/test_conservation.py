"""A tuple that is lost or doubled in a batch fails the batch, and nothing of it is published."""

import pickle

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.connectors.files.parquet import ParquetFiles
from penstock.engines.durable.staging import FileStage, ValueStage
from penstock.engines.spark import admission, line_writer, wire
from penstock.engines.spark.doors import Door
from penstock.engines.spark.keyed import KeyedChain
from penstock.runtime.ports import Port
from tests.spark.in_process import InProcess

COUNT = 300


def built(tmp_path, sink=None):
    table = pa.table({"key": [number % 7 for number in range(COUNT)], "n": range(COUNT)})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    flow, sink = ps.Flow("leaky"), sink or ps.sinks.collect()
    rows = flow.read(ps.sources.parquet(tmp_path / "rows.parquet"), name="rows")
    seen = rows.key_by("key").stateful_map(lambda seen, row: (seen + 1, (row["n"], seen)), init=int, name="seen")
    seen.write(sink, name="out")
    rows.map(lambda row: row["n"], name="numbers").write(ps.sinks.collect(), name="all")
    return flow, sink


def once(monkeypatch, owner, name, change):
    right, done = getattr(owner, name), []

    def wrong(*args, **options):
        if done or (broken := change(right, *args, **options)) is None:
            return right(*args, **options)
        done.append(True)
        return broken

    monkeypatch.setattr(owner, name, wrong)
    return done


def lossy_pack(right, values, positions, marks=None):
    if len(values) < 3 or positions is None:
        return None
    return right(
        values.slice(1) if isinstance(values, pa.Table) else values[1:], tuple(c[1:] for c in positions), marks
    )


def lossy_take(right, port, budget):
    if len(port) < 3:
        return None
    values, born = right(port, budget)
    return values[1:], born


def lossy_run(right, step, part, side):
    return right(step, wire.Slice(part.sort_key, part.values[1:], tuple(c[1:] for c in part.positions)), side)


def forgetting_admission(right, source, batch, values, *args):
    parts = right(source, batch, values, *args)
    return parts[:-1] if len(parts) > 1 else None


LEAKS = {
    "a slice that is cut off": (wire, "in_slices", lambda right, tables: list(right(tables))[:-1] or None),
    "a slice that comes twice": (wire, "in_slices", lambda right, tables: [*(found := list(right(tables))), found[0]]),
    "a reader that skips rows": (
        ParquetFiles,
        "tables",
        lambda right, source, split: (table.slice(1) for table in right(source, split)),
    ),
    "a row that is sent twice": (Door, "rows", lambda right, door, part: [*right(door, part)] * 2),
    "a row that is not sent": (Door, "rows", lambda right, door, part: [*right(door, part)][1:]),
    "a tuple that is not packed": (wire, "packed", lossy_pack),
    "a queue in a task": (Port, "take", lossy_take),
    "a keyed function that skips": (KeyedChain, "run", lossy_run),
    "a stage of values": (ValueStage, "write", lambda right, stage, values: right(stage, values[1:]) or False),
    "a stage that doubles": (ValueStage, "write", lambda right, stage, values: right(stage, values * 2) or False),
}
FOR_FILES = {
    "lines that are not joined": (
        line_writer.LineWriter,
        "_lines",
        lambda right, writer, values: right(writer, values[1:]) if len(values) > 2 else None,
    ),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_nothing_of_a_batch_that_does_not_add_up_is_published(monkeypatch, tmp_path, leak):
    monkeypatch.setattr(wire, "ROWS_PER_SLICE", 64)
    done = once(monkeypatch, *LEAKS[leak])
    flow, sink = built(tmp_path)
    with pytest.raises(ps.ConservationError, match=r"flow 'leaky': .* Nothing of batch 0 was published\. .* defect"):
        InProcess(tasks=2).run(flow)
    assert done
    assert sink.items == []


@pytest.mark.parametrize("leak", FOR_FILES)
def test_nor_are_its_files(monkeypatch, tmp_path, leak):
    done = once(monkeypatch, *FOR_FILES[leak])
    flow, _ = built(tmp_path, ps.sinks.json(tmp_path / "out"))
    with pytest.raises(ps.ConservationError, match="Nothing of batch 0 was published"):
        InProcess(tasks=2).run(flow)
    assert done
    assert list((tmp_path / "out").glob("part-*")) == []


def test_without_a_leak_everything_arrives(tmp_path):
    flow, sink = built(tmp_path)
    assert InProcess(tasks=2, rows_per_batch=100).run(flow) == 3
    assert sink.items == [(number, number // 7) for number in range(COUNT)]


def test_a_part_of_a_list_that_is_not_read(monkeypatch):
    monkeypatch.setattr(admission, "_LEAST_PART", 10)
    once(monkeypatch, pickle, "loads", lambda right, data: found[1:] if type(found := right(data)) is list else None)
    flow = ps.Flow("leaky")
    flow.read(ps.sources.items(list(range(100))), name="rows").write(ps.sinks.collect())
    with pytest.raises(ps.ConservationError, match="100 tuples of source 'rows' were admitted and 99 were read"):
        InProcess(tasks=2).run(flow)


def test_a_line_that_is_not_read(monkeypatch, tmp_path):
    from penstock.connectors.files import lines

    (tmp_path / "lines.txt").write_text("".join(f"{number}\n" for number in range(100)))
    right = lines._plain_pieces
    monkeypatch.setattr(lines, "_plain_pieces", lambda *args: (block[:-3] for block in right(*args)))
    flow = ps.Flow("leaky")
    flow.read(ps.sources.text(tmp_path / "lines.txt"), name="rows").write(ps.sinks.collect())
    with pytest.raises(ps.ConservationError, match=r"to read .*lines\.txt from 0 to 290, and ended at 287"):
        InProcess(tasks=1).run(flow)


def sabotage(owner, name, change):
    """In the process of a task: the next call goes wrong, and those after it are right again."""
    right = getattr(owner, name)

    def wrong(*args):
        setattr(owner, name, right)
        return change(right, *args)

    setattr(owner, name, wrong)


LEAKS_IN_TASKS = {
    "a door": (lambda: Door, "rows", lambda right, door, part: right(door, wire.Slice(part.sort_key, part.values[1:]))),
    "a stage": (lambda: FileStage, "write", lambda right, stage, values: right(stage, [*values, values[0]])),
}


@pytest.mark.parametrize("leak", LEAKS_IN_TASKS)
def test_on_spark_itself(tmp_path, leak):
    owner, name, change = LEAKS_IN_TASKS[leak]

    def number(n):
        if n == 0:
            sabotage(owner(), name, change)
        return n

    def build(fn):
        flow = ps.Flow("leaky")
        numbers = flow.read(ps.sources.generate(fn, count=50), name="rows").map(int, name="same")
        numbers.key_by(lambda n: n % 3).count(name="count").write(ps.sinks.json(tmp_path / "counts"))
        numbers.map(lambda n: {"n": n}, name="row").write(ps.sinks.json(tmp_path / "numbers"))
        return flow

    with pytest.raises(ps.ConservationError, match="Nothing of batch 0 was published"):
        build(number).run(ps.engines.Spark(parallelism=2))
    assert [*tmp_path.glob("*/part-*")] == []
    build(int).run(ps.engines.Spark(parallelism=2))
    lines = [path.read_text().splitlines() for path in sorted((tmp_path / "numbers").glob("part-*"))]
    assert sum(map(len, lines)) == 50


class Two(ps.Operator):
    """Reads two tuples, and returns."""

    async def process(self, ctx):
        for _ in range(2):
            if await ctx.wait_all():
                await ctx.emit(ctx.inputs[0].pop())


@pytest.mark.parametrize("rows_per_batch", [3, 1000])
def test_what_may_be_missing_is_not_missed(rows_per_batch):
    flow = ps.Flow("lenient")
    sinks = [ps.sinks.collect() for _ in range(4)]
    rows = flow.read(ps.sources.generate(lambda n: n, count=50), name="rows")
    good = rows.map(lambda n: (1 // (n % 3), n)[1], name="skips", on_error="skip")
    dead = good.key_by(lambda n: n % 2).stateful_map(
        lambda s, n: (s + 1, (1 // (n % 5), n)[1]), init=int, name="dies", on_error="dead-letter"
    )
    dead.write(sinks[0])
    flow.dead_letters("dies").write(sinks[1])
    timed = good.key_by(lambda n: n % 2).window(ps.windows.tumbling(5, time=lambda n: n % 10, on_late="dead-letter"))
    timed.count(name="windows").write(ps.sinks.null())
    flow.dead_letters("windows").write(sinks[2])
    flow.add(Two(), rows, name="two").write(sinks[3])
    InProcess(tasks=2, rows_per_batch=rows_per_batch).run(flow)
    kept = [n for n in range(50) if n % 3]
    assert sinks[0].items == [n for n in kept if n % 5]
    assert [letter.value for letter in sinks[1].items] == [n for n in kept if not n % 5]
    assert sinks[2].items
    assert sinks[3].items == [0, 1]
