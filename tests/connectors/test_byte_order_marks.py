"""A byte order mark is dropped at the very start of a file; anywhere else it is text, however the file is cut."""

import pytest

import penstock as ps
from tests.connectors.connector_tools import read, read_and_letters

MARK = b"\xef\xbb\xbf"
ENGINES = {
    "sequential": lambda: ps.engines.Sequential(),
    "local": lambda: ps.engines.Local(threads=2),
    "spark": lambda: ps.engines.Spark(parallelism=2, bytes_per_batch=16),
}


def run(source, engine):
    flow, out = ps.Flow("test"), ps.sinks.collect()
    flow.read(source).write(out)
    flow.run(ENGINES[engine]())
    return out.items


@pytest.mark.parametrize("header", [b"", b"a,b\n"])
@pytest.mark.parametrize("multiline", [False, True])
def test_in_csv_at_every_cut(tmp_path, any_blocks, header, multiline):
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_bytes(MARK + header + MARK + b"x,1\n" + (MARK + b"y,2\n") * 5 + b"z," + MARK + b"\n")
    source = ps.sources.csv(tmp_path, "a string, b string", multiline=multiline)
    first = "\ufeffx"
    rows = [first, *["\ufeffy"] * 5, "z"] * 2
    assert [row["a"] for row in read(source)] == rows
    assert read(source)[-1]["b"] == "\ufeff"
    if multiline:
        return
    path = str(tmp_path / "1.csv")
    size = (tmp_path / "1.csv").stat().st_size
    for near in range(1, size):
        middle = source.cut(ps.sources.Split(path, 0, size), near)
        halves = [ps.sources.Split(path, 0, middle), ps.sources.Split(path, middle, size)]
        found = [row["a"] for half in halves for chunk in source.read(half, clock=None) for row in chunk.values]
        assert found == rows[:7], near


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree(tmp_path, engine):
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_bytes(MARK + b"a,b\n" + (MARK + b"x,1\n") * 8)
    assert run(ps.sources.csv(tmp_path), engine) == [{"a": "\ufeffx", "b": "1"}] * 16


def test_in_a_file_whose_bad_lines_are_looked_for(tmp_path):
    """Each half of a block that does not parse begins somewhere else."""
    (tmp_path / "a.csv").write_bytes(b"a,b\n" + (MARK + b"x,1\n") * 5 + MARK + b"bad\n" + (MARK + b"x,1\n") * 2)
    values, letters = read_and_letters(ps.sources.csv(tmp_path, "a string, b long"))
    assert values == [{"a": "\ufeffx", "b": 1}] * 7
    assert [letter.value for letter in letters] == ["\ufeffbad"]


def test_in_text_and_json(tmp_path, any_blocks):
    (tmp_path / "a").write_bytes((MARK + b"1\n") * 8)
    assert read(ps.sources.text(tmp_path)) == ["1", *["\ufeff1"] * 7]
    values, letters = read_and_letters(ps.sources.json(tmp_path))
    assert values == [1]
    assert ["not JSON" in letter.error for letter in letters] == [True] * 7
