"""`ps.sources.text`."""

import pytest

import penstock as ps
from tests.connectors.connector_tools import chunks, read, read_and_letters, resumptions


@pytest.fixture
def lines_of(tmp_path):
    """The lines of a file with these bytes."""

    def lines_of(data):
        (tmp_path / "a.txt").write_bytes(data)
        return read(ps.sources.text(tmp_path / "a.txt"))

    return lines_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n\n", ["a", "", "b", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\x85c\x0bd\n".encode(), ["a\u2028b\x85c\x0bd"]),
        (b" a \t\n", [" a \t"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("žluťoučký 🐎\n".encode(), ["žluťoučký 🐎"]),
    ],
)
def test_lines_end_at_newlines_and_lose_nothing_else(lines_of, any_blocks, data, expected):
    assert lines_of(data) == expected


def test_files_larger_than_a_block_arrive_in_several_chunks(tmp_path, tiny_blocks):
    expected = [f"{number:03}" for number in range(100)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in expected))
    source = ps.sources.text(tmp_path)
    assert len(list(chunks(source))) > 20
    assert read(source) == expected


def test_lines_longer_than_a_block(lines_of, tiny_blocks):
    assert lines_of(b"a" * 100 + b"\nb\n" + b"c" * 33) == ["a" * 100, "b", "c" * 33]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_reading_resumes_at_every_chunk(tmp_path, tiny_blocks, end, mark):
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_bytes((mark + end.join(f"{name} {n}" for n in range(10))).encode())
    (tmp_path / "bb.txt").touch()
    steps = resumptions(ps.sources.text(tmp_path))
    assert len(steps) > 10
    for rest, expected in steps:
        assert rest == expected


def test_a_split_stops_at_its_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nthree\n")
    (chunk,) = ps.sources.text(path).read(ps.sources.Split(str(path), 4, 8), clock=None)
    assert (chunk.values, chunk.end) == (["two"], 8)


def test_bad_utf_8_names_the_file_and_the_line(tmp_path, any_blocks):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff first\ngood\nanother good\n\xfe middle\nstill good\nlast \xff")
    with pytest.raises(ps.SourceError, match=r"a\.txt, line 1: .*utf-8"):
        read(ps.sources.text(path))
    good = ["good", "another good", "still good"]
    assert read(ps.sources.text(path), on_error="skip") == good
    values, letters = read_and_letters(ps.sources.text(path))
    assert values == good
    assert [letter.value for letter in letters] == ["\ufffd first", "\ufffd middle", "last \ufffd"]
    for letter, number in zip(letters, (1, 4, 6), strict=True):
        assert letter.operator == "in"
        assert letter.error.startswith(f"SourceError: {path}, line {number}: ")


def test_what_comes_before_a_bad_line_has_been_read(tmp_path, any_blocks):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n\xff\nthree\n")
    flow, result = ps.Flow("test"), ps.sinks.collect()
    flow.read(ps.sources.text(tmp_path)).write(result)
    with pytest.raises(ps.SourceError):
        flow.run("sequential")
    assert result.items == ["one", "two"]
