"""Files that change between two runs on one checkpoint, or while they are read: an error, never torn rows."""

import gzip
import os
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.connectors.reached import Progress, Reached, resume
from tests.connectors.connector_tools import read

ENGINES = {"local": ps.engines.Local, "spark": ps.engines.Spark}


def numbers(first, end):
    return list(range(first, end))


def as_text(values):
    return "".join(f"{value}\n" for value in values).encode()


def as_csv(values):
    return b"n\n" + as_text(values)


def as_parquet(values):
    out = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table({"n": values}), out)
    return out.getvalue().to_pybytes()


FORMATS = {
    "text": (lambda values: as_text(values), lambda path, **options: ps.sources.text(path, **options), int),
    "csv": (as_csv, lambda path, **options: ps.sources.csv(path, "n long", **options), lambda row: row["n"]),
    "json": (as_text, lambda path, **options: ps.sources.json(path, **options), int),
    "parquet": (as_parquet, lambda path, **options: ps.sources.parquet(path, **options), lambda row: row["n"]),
    "gz": (lambda values: gzip.compress(as_text(values)), lambda path, **o: ps.sources.text(path, **o), int),
}


class Runs:
    """Runs of one flow on one checkpoint; each says what has come so far."""

    def __init__(self, tmp_path, engine="local", kind="text", **options):
        self.encode, make, self.number = FORMATS[kind]
        self.path = tmp_path / f"in.{kind}"
        self.source = make(self.path, **options)
        self.engine = ENGINES[engine]
        self.checkpoint = str(tmp_path / "checkpoint")

    def write(self, values):
        self.path.write_bytes(self.encode(values))

    def run(self, at_end="keep"):
        flow, out = ps.Flow("changes"), ps.sinks.collect()
        flow.read(self.source, name="in").map(self.number).write(out)
        flow.run(self.engine(checkpoint=self.checkpoint), at_end=at_end)
        return out.items


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


CHANGES = {
    "shorter": (numbers(0, 1000), numbers(0, 500)),
    "other rows, longer": (numbers(0, 1000), numbers(5000, 9000)),
    "other rows, as many bytes": (numbers(1000, 2000), numbers(5000, 6000)),
    "another row at the end, and longer": (numbers(0, 1000), [*numbers(0, 998), 10833, *numbers(0, 1000)]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_was_rewritten_between_two_runs(tmp_path, kind, change):
    before, after = CHANGES[change]
    runs = Runs(tmp_path, "local", kind)
    runs.write(before)
    assert runs.run() == before
    runs.write(after)
    with pytest.raises(ps.SourceError, match=r"in\.\w+ has changed since an earlier run read it.*on_change='restart'"):
        runs.run()
    again = Runs(tmp_path, "local", kind, on_change="restart")
    assert again.run() == before + after
    assert again.run() == before + after


@pytest.mark.parametrize("kind", ["csv", "parquet", "gz"])
def test_a_file_that_was_replaced_between_two_runs_on_spark(tmp_path, kind):
    before, after = CHANGES["other rows, longer"]
    runs = Runs(tmp_path, "spark", kind)
    runs.write(before)
    assert runs.run() == before
    assert runs.run() == before
    replace(runs.path, runs.encode(after))
    with pytest.raises(ps.SourceError, match=r"has changed since an earlier run read it.*on_change='restart'"):
        runs.run()
    assert Runs(tmp_path, "spark", kind, on_change="restart").run() == before + after


def replace(path, data):
    """As editors and rotations do: another file gets the name."""
    path.with_suffix(".new").write_bytes(data)
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.parametrize("kind", ["text", "csv", "json"])
def test_lines_that_were_added_are_read_by_the_next_run(tmp_path, engine, kind):
    runs = Runs(tmp_path, engine, kind)
    runs.write(numbers(0, 700))
    assert runs.run() == numbers(0, 700)
    with runs.path.open("ab") as file:
        file.write(as_text(numbers(700, 1500)))
    assert runs.run() == numbers(0, 1500)
    assert runs.run() == numbers(0, 1500)


@pytest.mark.parametrize("kind", ["parquet", "gz"])
def test_whole_files_can_not_grow(tmp_path, kind):
    runs = Runs(tmp_path, "local", kind)
    runs.write(numbers(0, 700))
    runs.run()
    runs.write(numbers(0, 1500))
    with pytest.raises(ps.SourceError, match="has changed since an earlier run"):
        runs.run()


def test_a_copy_of_a_file_is_the_same_file(tmp_path, engine):
    runs = Runs(tmp_path, engine)
    runs.write(numbers(0, 500))
    runs.run()
    shutil.copyfile(runs.path, tmp_path / "copy")  # another inode, another time
    os.replace(tmp_path / "copy", runs.path)
    assert runs.run() == numbers(0, 500)


def test_a_line_without_an_end_waits_until_it_has_one(tmp_path, engine):
    runs = Runs(tmp_path, engine, "csv")
    runs.path.write_bytes(b"n\n1\n108")
    assert runs.run() == [1]
    assert runs.run() == [1]
    with runs.path.open("ab") as file:
        file.write(b"33\n4")
    assert runs.run() == [1, 10833]
    assert runs.run(at_end="close") == [1, 10833, 4]


def test_a_run_that_closes_reads_a_last_line_without_an_end(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"1\n2")
    assert read(ps.sources.text(tmp_path)) == ["1", "2"]


def test_sequential_leaves_a_line_without_an_end_as_others_do(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"1\n2")
    flow, out = ps.Flow("test"), ps.sinks.collect()
    flow.read(ps.sources.text(tmp_path)).write(out)
    flow.run("sequential", at_end="keep")
    assert out.items == ["1"]


@pytest.mark.parametrize(
    ("data", "whole"),
    [(b'1,"a\nb"\n2,"c\n', 8), (b'1,"a', 0), (b'1,"a\nb', 0), (b'1,"a\nb"', 0), (b'1,"a\nb"\n', 8), (b"1,a\n2,b\n", 8)],
)
def test_a_quoted_line_break_is_no_end_of_a_line(tmp_path, any_blocks, data, whole):
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    source = ps.sources.csv(path, "n long, s string", multiline=True)
    assert [split.end for split in resume(source, closes=False)] == [whole][: bool(whole)]


def changing(path, data, on, how):
    """A function that changes the file when it sees a value for the first time."""
    done = []

    def change(line):
        if line == on and not done:
            done.append(True)
            how(path, data)
        return line

    return change


def truncate(path, data):
    with path.open("r+b") as file:
        file.truncate(50)


def rewrite(path, data):
    path.write_bytes(data)


def copytruncate(path, data):
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


IN_MEMORY = {
    "sequential": lambda: ps.engines.Sequential(),
    "local": lambda: ps.engines.Local(threads=2, queue_size=4),
    "simulated": lambda: ps.engines.Simulated(cores=2, queue_size=4),
}


@pytest.mark.parametrize("how", [truncate, rewrite, copytruncate, replace])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_file_that_changes_while_it_is_read(tmp_path, tiny_blocks, name, how):
    path = tmp_path / "in.txt"
    before = [str(number) for number in range(1000, 3000)]
    path.write_bytes(as_text(before))
    flow, out = ps.Flow("test"), ps.sinks.collect()
    other = as_text(numbers(100_000, 103_000))
    flow.read(ps.sources.text(path)).map(changing(path, other, "1002", how)).write(out)
    with pytest.raises(ps.SourceError, match=r"in\.txt: the file (was|became|is)"):
        flow.run(IN_MEMORY[name]())
    assert out.items == before[: len(out.items)]


@pytest.mark.parametrize("how", [truncate, rewrite, replace])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_file_that_changes_before_it_is_read(tmp_path, tiny_blocks, name, how):
    first, path = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(as_text(numbers(0, 1000)))
    path.write_bytes(as_text(numbers(1000, 3000)))
    flow, out = ps.Flow("test"), ps.sinks.collect()
    other = as_text(numbers(100_000, 103_000))
    flow.read(ps.sources.text([first, path])).map(changing(path, other, "2", how)).write(out)
    with pytest.raises(ps.SourceError, match=r"b\.txt has changed since this run was to read it"):
        flow.run(IN_MEMORY[name]())
    assert out.items == [str(number) for number in range(1000)][: len(out.items)]


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_file_that_only_grows_while_it_is_read_is_read_as_it_was(tmp_path, tiny_blocks, name):
    path = tmp_path / "in.txt"
    before = [str(number) for number in range(1000, 3000)]
    path.write_bytes(as_text(before))
    flow, out = ps.Flow("test"), ps.sinks.collect()

    def grow(path, data):
        with path.open("ab") as file:
            file.write(data)

    flow.read(ps.sources.text(path)).map(changing(path, b"more\n", "1002", grow)).write(out)
    flow.run(IN_MEMORY[name]())
    assert out.items == before


@pytest.mark.parametrize("kind", ["parquet", "gz"])
def test_a_whole_file_that_changes_while_it_is_read(tmp_path, kind, tiny_blocks):
    encode, make, number = FORMATS[kind]
    path = tmp_path / f"in.{kind}"
    path.write_bytes(encode(numbers(0, 30_000)))
    flow, out = ps.Flow("test"), ps.sinks.collect()
    change = changing(path, encode(numbers(50_000, 99_000)), 2, replace)
    flow.read(make(path)).map(lambda row: change(number(row))).write(out)
    with pytest.raises(ps.SourceError, match="the file has changed while it was read"):
        flow.run("sequential")
    assert out.items == numbers(0, len(out.items))


class Once:
    """Changes a file when it sees a line, in whatever process, once."""

    def __init__(self, path, data, on):
        self.path, self.data, self.on = str(path), data, on

    def __call__(self, line):
        if line == self.on and not os.path.exists(self.path + ".done"):
            open(self.path + ".done", "w").close()
            with open(self.path + ".new", "wb") as file:
                file.write(self.data)
            os.replace(self.path + ".new", self.path)
        return line


@pytest.mark.parametrize("grows", [False, True])
def test_a_file_that_changes_between_two_batches_on_spark(tmp_path, grows):
    path = tmp_path / "in.txt"
    before = [str(number) for number in range(1000, 3000)]
    path.write_bytes(as_text(before))
    flow, out = ps.Flow("test"), ps.sinks.collect()
    after = as_text([*before, *numbers(3000, 4000)]) if grows else as_text(numbers(100_000, 103_000))
    flow.read(ps.sources.text(path)).map(Once(path, after, "1002")).write(out)
    engine = ps.engines.Spark(bytes_per_batch=4000, parallelism=2)
    if grows:
        flow.run(engine)
        assert out.items == before
    else:
        with pytest.raises(ps.SourceError, match=r"in\.txt has changed since this run was to read it"):
            flow.run(engine)
        assert out.items == before[: len(out.items)]


def test_what_a_file_is_known_by_was_taken_from_the_file_that_was_read(tmp_path, tiny_blocks):
    """Between the last read and the checkpoint another file may get the name."""
    path = tmp_path / "in.txt"
    path.write_bytes(as_text(numbers(1000, 2000)))
    source = ps.sources.text(path)
    (split,) = resume(source)
    reading = source.read(split, FakeClock())
    progress = Progress(source)
    progress.advance(str(path), next(reading).end)
    replace(path, as_text(numbers(5000, 9000)))
    with pytest.raises(ps.SourceError, match="was replaced while it was read"):
        next(reading)
    reached = Reached.from_json(progress.reached().to_json())
    with pytest.raises(ps.SourceError, match="has changed since an earlier run read it"):
        list(resume(source, reached))


def test_positions_of_checkpoints_without_identities_are_still_read(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"1\n2\n")
    source = ps.sources.text(path)
    reached = Reached.from_json({str(path): 2})
    assert [split.start for split in resume(source, reached)] == [2]
    path.write_bytes(b"1")
    with pytest.raises(ps.SourceError, match="has 1 bytes"):
        list(resume(source, reached))


def test_on_change_is_checked():
    for make in (ps.sources.csv, ps.sources.json, ps.sources.text, ps.sources.parquet):
        with pytest.raises(ps.FlowError, match="on_change= is 'error' or 'restart', not 'ignore'"):
            make("x", on_change="ignore")
