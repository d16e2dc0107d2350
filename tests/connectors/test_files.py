"""Which files a path stands for, and what is true of all that are read line by line."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.files.lines import last_line_end, next_line
from tests.connectors.connector_tools import chunks, compressed, read, read_and_letters, resumptions

SUFFIXES = [".gz", ".bz2", ".zst", ".lz4"]


@pytest.fixture
def tree(tmp_path):
    for name in ("b.txt", "a.txt", "c.log", "_marker", ".hidden.txt"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "d.txt").write_text("d.txt 1\n")
    return tmp_path


def names(source):
    return list(dict.fromkeys(line.split()[0] for line in read(source)))


def test_a_directory_is_its_files_in_the_order_of_their_names_without_hidden_ones(tree):
    assert read(ps.sources.text(tree)) == ["a.txt 1", "a.txt 2", "b.txt 1", "b.txt 2", "c.log 1", "c.log 2"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("[bc].*", ["b.txt", "c.log"]),
        ("**/*.txt", ["a.txt", "b.txt", "d.txt"]),
        ("?marker*", None),
    ],
)
def test_a_glob_is_the_files_that_match_without_hidden_ones(tree, pattern, expected):
    source = ps.sources.text(str(tree / pattern))
    if expected is None:
        with pytest.raises(ps.SourceError, match="no file matches"):
            read(source)
    else:
        assert names(source) == expected


def test_a_list_is_read_in_its_own_order_and_each_file_once(tree):
    paths = [tree / "c.log", str(tree / "*.txt"), tree / "a.txt", tree / "sub"]
    assert names(ps.sources.text(paths)) == ["c.log", "a.txt", "b.txt", "d.txt"]


def test_a_hidden_file_is_read_when_it_is_named(tree):
    assert names(ps.sources.text(tree / "_marker")) == ["_marker"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    (tmp_path / "[x].txt").write_text("here\n")
    assert read(ps.sources.text(tmp_path / "[x].txt")) == ["here"]


@pytest.mark.parametrize("make", [ps.sources.text, ps.sources.json, ps.sources.csv, ps.sources.parquet])
@pytest.mark.parametrize("missing", ["no-such-file", "no-*-match", "empty"])
def test_where_there_is_nothing_the_error_names_the_path(tmp_path, make, missing):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_SUCCESS").touch()
    with pytest.raises(ps.SourceError) as caught:
        read(make(tmp_path / missing))
    assert str(tmp_path / missing) in str(caught.value)


@pytest.mark.parametrize("make", [ps.sources.text, ps.sources.json, ps.sources.csv, ps.sources.parquet])
def test_an_empty_list_of_paths_is_refused_at_once(make):
    with pytest.raises(ps.FlowError, match="list of paths is empty"):
        make([])


def test_a_file_that_goes_away_is_a_source_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x\n")
    reading = chunks(ps.sources.text([path, tmp_path]))
    path.unlink()
    with pytest.raises(ps.SourceError, match=r"a\.txt"):
        list(reading)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_compressed_files_are_read_as_what_they_hold(tmp_path, any_blocks, suffix):
    expected = [f"line {number}" for number in range(50)]
    data = "".join(f"{line}\n" for line in expected).encode()
    (tmp_path / f"a.txt{suffix}").write_bytes(compressed(data, suffix))
    assert read(ps.sources.text(tmp_path)) == expected


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_compressed_files_are_resumed_at_every_chunk(tmp_path, tiny_blocks, suffix):
    for name in "ab":
        data = "".join(f"{name} {number}\n" for number in range(9)).encode()
        (tmp_path / f"{name}.txt{suffix}").write_bytes(compressed(data, suffix))
    steps = resumptions(ps.sources.text(tmp_path))
    assert len(steps) > 5
    for rest, expected in steps:
        assert rest == expected


def test_gzip_with_several_members_is_one_file(tmp_path, any_blocks):
    parts = [b"one\ntwo", b" and a half\nthree\n", b"", b"four"]
    (tmp_path / "a.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    assert read(ps.sources.text(tmp_path)) == ["one", "two and a half", "three", "four"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_compressed_file_has_no_lines(tmp_path, suffix):
    (tmp_path / f"a{suffix}").touch()
    (tmp_path / f"b{suffix}").write_bytes(compressed(b"", suffix))
    assert read(ps.sources.text(tmp_path)) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: b"not compressed at all"])
def test_a_damaged_compressed_file_is_a_source_error_with_its_path(tmp_path, suffix, damage):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(damage(compressed(b"line\n" * 1000, suffix)))
    with pytest.raises(ps.SourceError) as caught:
        read(ps.sources.text(path))
    assert str(path) in str(caught.value)


def test_a_compressed_file_that_got_shorter_is_not_taken_for_read(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    with pytest.raises(ps.SourceError, match="has it changed"):
        list(chunks(ps.sources.text(path), {str(path): 8}))


def test_decompressed_bytes_are_limited(tmp_path, tiny_blocks):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"0\n" * 50))
    assert len(read(ps.sources.text(path, ps.sources.Limits(decompressed_bytes=100)))) == 50
    with pytest.raises(ps.SourceError, match=r"bomb\.gz: more than 99 bytes"):
        read(ps.sources.text(path, ps.sources.Limits(decompressed_bytes=99)))


def test_decompressed_bytes_do_not_limit_plain_files(tmp_path):
    (tmp_path / "a.txt").write_text("long enough\n")
    assert read(ps.sources.text(tmp_path, ps.sources.Limits(decompressed_bytes=1))) == ["long enough"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("ends", ["\n", ""])
def test_a_line_that_is_too_long_is_one_bad_line(tmp_path, any_blocks, suffix, ends):
    data = ("a\n" + "b" * 100 + "\nc\n" + "d" * 20 + "\n" + "e" * 50 + ends).encode()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compressed(data, suffix) if suffix else data)
    source = ps.sources.text(path, ps.sources.Limits(line_bytes=21))
    good, letters = read_and_letters(source)
    assert good == ["a", "c", "d" * 20]
    for letter, number, start in zip(letters, (2, 5), "be", strict=True):
        assert letter.value == start * 21
        assert f"a.txt{suffix}, line {number}: longer than 21 bytes" in letter.error
    for rest, expected in resumptions(source):
        assert rest == expected


def test_of_a_line_that_is_too_long_only_the_beginning_is_kept(tmp_path, tiny_blocks):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 100_000 + b"\ngood\n")
    good, (letter,) = read_and_letters(ps.sources.text(path, ps.sources.Limits(line_bytes=20)))
    assert good == ["good"]
    assert letter.value == "x" * 20


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts the bytes read as Linux does")
def test_many_bad_lines_do_not_read_the_file_again_for_each(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"[]\n" * 100_000 + b"bad\n" * 200)
    source = ps.sources.json(path)
    before = bytes_read()
    values = [value for _, chunk in chunks(source, {str(path): 300_000}) for value in chunk.values]
    assert bytes_read() - before < 4 * path.stat().st_size
    where = [str(value.error).split(":")[0] for value in values]
    assert where == [f"{path}, line {number}" for number in range(100_001, 100_201)]


def bytes_read():
    return int(Path("/proc/self/io").read_text().split()[1])


def test_finding_the_next_line_keeps_no_line_in_memory(tmp_path):
    """A line of any length must not be read at once just to find its end."""
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        file.truncate(200 << 20)
        file.seek(200 << 20)
        file.write(b"\nshort\n")
    tracemalloc.start()
    try:
        assert next_line(str(path), 5) == (200 << 20) + 1
        assert last_line_end(str(path), 0, 200 << 20, quoted_newlines=False) == 0
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("position", range(12))
def test_the_next_line_begins_at_a_position_or_behind_it(tmp_path, any_blocks, position):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nend")
    assert next_line(str(path), position) == min(start for start in (0, 4, 8, 11) if start >= position)
