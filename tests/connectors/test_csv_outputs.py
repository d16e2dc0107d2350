"""The CSV files of one output have the same columns, in the same order."""

import json

import pytest

import penstock as ps
from penstock.connectors.files import writers
from tests.connectors.connector_tools import read, write

CHECKPOINTED = {
    "local": lambda path: ps.engines.Local(threads=2, checkpoint=path / "checkpoint"),
    "spark": lambda path: ps.engines.Spark(parallelism=1, checkpoint=str(path / "checkpoint")),
}


def run(tmp_path, engine, rows, **options):
    """One more run of a flow that reads lines which are added at the end of a file."""
    with (tmp_path / "in.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    flow = ps.Flow("columns")
    flow.read(ps.sources.json(tmp_path / "in.jsonl"), name="in").write(
        ps.sinks.csv(tmp_path / "out", **options), name="out"
    )
    flow.run(CHECKPOINTED[engine](tmp_path))


def texts(path):
    return [file.read_text() for file in sorted(path.glob("part-*"))]


@pytest.mark.parametrize("engine", CHECKPOINTED)
def test_a_later_run_writes_the_columns_of_the_first(tmp_path, engine):
    run(tmp_path, engine, [{"a": 1, "b": 'x,"\n'}])
    run(tmp_path, engine, [{"b": 'y,"\n', "a": 2}, {"b": None, "a": 3}, {"b": "", "a": None}])
    assert texts(tmp_path / "out") == ['"a","b"\n1,"x,""\n"\n', '"a","b"\n2,"y,""\n"\n3,\n,""\n']
    with pytest.raises(ps.SinkError, match=r"csv sink: .*'out'.*: a, b in the first, and a, c in another; give a sche"):
        run(tmp_path, engine, [{"a": 4, "c": 4}])
    assert len(texts(tmp_path / "out")) == 2


def test_without_a_header_the_checkpoint_remembers_the_columns(tmp_path):
    run(tmp_path, "local", [{"a": 1, "b": "x"}], header=False, delimiter=";")
    run(tmp_path, "local", [{"b": "y", "a": 2}], header=False, delimiter=";")
    assert texts(tmp_path / "out") == ['1;"x"\n', '2;"y"\n']
    with pytest.raises(ps.SinkError, match="a, b in the first, and b in another"):
        run(tmp_path, "local", [{"b": "z"}], header=False, delimiter=";")


class Slices(ps.Source):
    """Parts of one batch whose rows have the same columns in another order."""

    reads_anywhere = True

    def splits(self):
        return [ps.Split(str(part), 0, 5) for part in range(4)]

    def read(self, split, clock):
        number = int(split.partition)
        row = {"a": number, "b": "x"} if number < 2 else {"b": "x", "a": number}
        yield ps.Chunk([row for _ in range(5)], 5)


def test_slices_of_one_batch_write_the_columns_of_the_first(tmp_path):
    flow = ps.Flow("slices")
    flow.read(Slices(), name="in").map(dict).write(ps.sinks.csv(tmp_path))
    flow.run(ps.engines.Spark(parallelism=4))
    assert len(texts(tmp_path)) > 1
    assert {text.splitlines()[0] for text in texts(tmp_path)} == {'"a","b"'}
    assert [row["a"] for row in read(ps.sources.csv(tmp_path))] == [str(part) for part in range(4) for _ in range(5)]


def test_the_next_file_of_a_run_has_the_columns_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "_BYTES_PER_FILE", 1)
    writer = ps.sinks.csv(tmp_path).open()
    for row in [{"a": 1, "b": 2}, {"b": 3, "a": 4}, {"a": 5}]:
        assert writer.write([row]) is None
    assert "the first row has no column 'c', only a, b; give a schema=" in str(writer.write([{"c": 1}]).error)
    writer.close()
    assert texts(tmp_path) == ['"a","b"\n1,2\n', '"a","b"\n4,3\n', '"a","b"\n5,\n']


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_what_is_appended_has_the_columns_of_what_is_there(tmp_path, has_checkpoint):
    def append(rows):
        if has_checkpoint:
            run(tmp_path, "local", rows, mode="append")
        else:
            write(ps.sinks.csv(tmp_path / "out", mode="append"), rows)

    write(ps.sinks.csv(tmp_path / "out"), [{"a": 1, "b": 2}])
    append([{"b": 3, "a": 4}])
    assert texts(tmp_path / "out") == ['"a","b"\n1,2\n', '"a","b"\n4,3\n']
    with pytest.raises(ps.SinkError, match="a, b in the first, and a in another"):
        append([{"a": 5}])


def test_what_is_overwritten_has_no_say(tmp_path):
    write(ps.sinks.csv(tmp_path / "out"), [{"z": 1}])
    run(tmp_path, "local", [{"a": 1}], mode="overwrite")
    assert texts(tmp_path / "out") == ['"a"\n1\n']
