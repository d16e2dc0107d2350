"""`ps.sources.socket`, against real servers on the loopback."""

import contextlib
import socket
import threading
import tracemalloc

import pytest

import penstock as ps
from penstock.connectors import socket as module
from tests.connectors.connector_tools import read, read_and_letters


@contextlib.contextmanager
def server(*pieces, reset=None):
    """A TCP server that sends these bytes to whoever connects first, and hangs up (rudely, after an event)."""

    def serve():
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                for piece in pieces:
                    connection.sendall(piece)
                if reset is not None and reset.wait(10):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture(params=[3, 64 * 1024])
def any_packets(request, monkeypatch):
    """What comes is taken three bytes at a time, or all at once."""
    monkeypatch.setattr(module, "_BLOCK_BYTES", request.param)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([], []),
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"one\ntwo"], ["one", "two"]),
        ([b"o", b"ne", b"\nt", b"wo\n", b"", b"\n"], ["one", "two", ""]),
        ([b"one\r", b"\ntwo\r\n"], ["one", "two"]),
        (["žluťoučký 🐎\n".encode()], ["žluťoučký 🐎"]),
        ([b"".join(b"%d\n" % number for number in range(20_000))], [str(number) for number in range(20_000)]),
    ],
)
def test_each_line_is_a_value_until_the_server_hangs_up(any_packets, sent, expected):
    with server(*sent) as port:
        assert read(ps.sources.socket("127.0.0.1", port)) == expected


def test_a_refused_connection_is_a_source_error_with_the_address():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ps.SourceError, match=f"socket 127.0.0.1:{port}: can't connect"):
        read(ps.sources.socket("127.0.0.1", port))


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("x" * 70, 80), ("no such host", 80)])
def test_an_address_that_can_not_be_is_a_source_error(host, port):
    with pytest.raises(ps.SourceError, match="can't connect"):
        read(ps.sources.socket(host, port))


def test_a_line_that_is_not_utf_8_is_found_by_its_number(any_packets):
    sent = [b"one\n", b"\xff two\nthree\n", b"four \xff"]
    with server(*sent) as port, pytest.raises(ps.SourceError, match=f"127.0.0.1:{port}, line 2: .*utf-8"):
        read(ps.sources.socket("127.0.0.1", port))
    with server(*sent) as port:
        good, letters = read_and_letters(ps.sources.socket("127.0.0.1", port))
    assert good == ["one", "three"]
    assert [letter.value for letter in letters] == ["\ufffd two", "four \ufffd"]
    assert "line 4" in letters[1].error


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_too_long_is_one_bad_line(any_packets, end):
    with server(b"first\n", b"x" * 100, b"\nlast\n", b"y" * 8 + end) as port:
        source = ps.sources.socket("127.0.0.1", port, ps.sources.Limits(line_bytes=7))
        good, letters = read_and_letters(source)
    assert good == ["first", "last"]
    assert [letter.value for letter in letters] == ["x" * 7, "y" * 7]
    assert "line 2: longer than 7 bytes" in letters[0].error


def test_an_endless_line_does_not_fill_the_memory():
    with server(*[b"x" * 65_536] * 64) as port:
        source = ps.sources.socket("127.0.0.1", port, ps.sources.Limits(line_bytes=1 << 20))
        tracemalloc.start()
        try:
            _, (letter,) = read_and_letters(source)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
    assert len(letter.value) == 1 << 20


def test_a_connection_that_breaks_is_a_source_error_after_what_came_before_it():
    flow, values, reset = ps.Flow("test"), [], threading.Event()

    def take(value):
        values.append(value)
        reset.set()

    with server(b"one\ntw", reset=reset) as port:
        flow.read(ps.sources.socket("127.0.0.1", port)).write(ps.sinks.call(take))
        with pytest.raises(ps.SourceError, match=f"127.0.0.1:{port}: the connection broke"):
            flow.run("sequential")
    assert values == ["one"]


def test_a_flow_that_stops_hangs_up():
    with server(b"one\ntwo\n", *[b"more\n" * 10_000] * 1000) as port:
        flow, taken = ps.Flow("test"), ps.sinks.collect()
        flow.add(TakeTwo(), flow.read(ps.sources.socket("127.0.0.1", port))).write(taken)
        flow.run("sequential")
    assert taken.items == ["one", "two"]


class TakeTwo(ps.Operator):
    async def process(self, ctx):
        for _ in range(2):
            await ctx.wait_all()
            await ctx.emit(ctx.inputs[0].pop())


def test_nothing_has_come_yet_is_an_empty_chunk_worth_waiting_for():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = ps.sources.socket("127.0.0.1", listener.getsockname()[1])
        reading = source.read(source.splits()[0], clock=None)
        chunk = next(reading)
        assert (chunk.values, chunk.end) == ((), 0)
        assert chunk.idle_seconds > 0
        reading.close()


def test_it_is_neither_bounded_nor_replayable():
    source = ps.sources.socket("localhost", 7)
    assert (source.bounded, source.replayable, source.describe()) == (False, False, "localhost:7")
