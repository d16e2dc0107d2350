"""Sinks that users make: one thread for each, on every engine; and nothing lost when the process is killed."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock as ps
from tests.connectors.sqlite_sink import Sqlite, rows

ROOT = str(Path(__file__).parents[2])
ENGINES = {
    "sequential": lambda path: ps.engines.Sequential(),
    "local": lambda path: ps.engines.Local(threads=4, queue_size=50),
    "local, dedicated": lambda path: ps.engines.Local(threading="dedicated", queue_size=50),
    "local, checkpoint": lambda path: ps.engines.Local(threads=4, checkpoint=path / "checkpoint", checkpoint_seconds=0),
    "simulated": lambda path: ps.engines.Simulated(cores=3, queue_size=50),
    "spark": lambda path: ps.engines.Spark(parallelism=2, rows_per_batch=1000),
    "spark, checkpoint": lambda path: ps.engines.Spark(
        parallelism=2, rows_per_batch=1000, checkpoint=str(path / "checkpoint")
    ),
}


def order(number):
    return {"id": number, "price": number / 2}


@pytest.mark.parametrize("engine", ENGINES)
def test_open_write_and_close_come_from_one_thread(tmp_path, engine):
    sinks = [Sqlite(tmp_path / "one.db"), Sqlite(tmp_path / "two.db")]
    flow = ps.Flow("orders")
    orders = flow.read(ps.sources.items(range(2500))).map(order)
    for sink in sinks:
        orders.write(sink)
    flow.run(ENGINES[engine](tmp_path))
    for sink in sinks:
        assert rows(sink.path) == [(number, number / 2) for number in range(2500)]
        assert len(set(sink.threads)) == 1
        assert len(sink.threads) > 3


@pytest.mark.parametrize("engine", ["sequential", "local", "local, checkpoint"])
def test_a_failure_closes_on_the_same_thread(tmp_path, engine):
    sink = Sqlite(tmp_path / "one.db")
    flow = ps.Flow("orders")
    flow.read(ps.sources.items(range(500))).map(lambda number: order(number) if number < 400 else 1 / 0).write(sink)
    with pytest.raises(ps.OperatorError, match="ZeroDivisionError"):
        flow.run(ENGINES[engine](tmp_path))
    assert len(set(sink.threads)) == 1


class Down(ps.Sink):
    def open(self):
        raise ConnectionError("database is down")


class Dying(ps.Sink):
    def open(self):
        raise SystemExit(3)


@pytest.mark.parametrize("sink", [Down, Dying])
@pytest.mark.parametrize("engine", ["sequential", "local", "local, checkpoint", "spark"])
def test_what_open_raises_is_the_sinks(tmp_path, engine, sink):
    flow = ps.Flow("orders")
    flow.read(ps.sources.items(range(5))).write(sink(), name="base")
    with pytest.raises(ps.SinkError, match=r"sink 'base' of flow 'orders' .* failed when it was opened: ") as told:
        flow.run(ENGINES[engine](tmp_path))
    assert isinstance(told.value.__cause__, ConnectionError | SystemExit)


class Inner(ps.Sink, ps.SinkWriter):
    """Its `write` runs into an error of Penstock's own: perhaps it runs a flow."""

    def __init__(self, error):
        self._error = error

    def open(self):
        return self

    def write(self, values):
        raise self._error


@pytest.mark.parametrize("error", [ps.FlowError("inner flow broke"), ps.ConservationError("mine")], ids=repr)
@pytest.mark.parametrize("engine", ["sequential", "local"])
def test_errors_of_our_tree_from_a_users_sink_name_it(tmp_path, engine, error):
    flow = ps.Flow("orders")
    flow.read(ps.sources.items(range(5))).write(Inner(error), name="base")
    with pytest.raises(
        ps.SinkError, match=r"sink 'base' of flow 'orders' .* failed.*: (FlowError|ConservationError)"
    ) as told:
        flow.run(ENGINES[engine](tmp_path))
    assert told.value.__cause__ is error


class Refusing(ps.Sink):
    def open(self):
        raise ps.SinkError("no such database")


class Closing(ps.Sink, ps.SinkWriter):
    def __init__(self, error=None):
        self.error, self.closed_on = error, None

    def open(self):
        self.opened_on = threading.get_ident()
        return self

    def write(self, values):
        pass

    def close(self):
        self.closed_on = threading.get_ident()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sink_that_does_not_open_leaves_no_other_open(tmp_path, engine):
    sink = Closing()
    flow = ps.Flow("orders")
    numbers = flow.read(ps.sources.items(range(5)))
    numbers.write(Refusing())
    numbers.write(sink)
    with pytest.raises(ps.SinkError, match="no such database"):
        flow.run(ENGINES[engine](tmp_path))
    assert sink.closed_on == getattr(sink, "opened_on", None)


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "sequential"])
def test_a_sink_that_fails_to_close_leaves_no_other_open(tmp_path, engine):
    broken, sink = Closing(ps.SinkError("the disk is full")), Closing()
    flow = ps.Flow("orders")
    numbers = flow.read(ps.sources.items(range(5)))
    numbers.write(broken)
    numbers.write(sink)
    with pytest.raises(ps.SinkError, match="the disk is full"):
        flow.run(ENGINES[engine](tmp_path))
    assert sink.closed_on == sink.opened_on


def run_killed(folder, when, commits, engine):
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); from penstock.engines import local_checkpoint; "
        "local_checkpoint._PAUSES_PER_INTERVAL = 0; from tests.connectors.sqlite_sink import run_and_die; "
        f"run_and_die({str(folder)!r}, {when!r}, {commits}, {engine!r})"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.long)])
def test_an_idempotent_sink_with_a_checkpoint_survives_being_killed(tmp_path, engine):
    (tmp_path / "in").mkdir()
    for number in range(5):
        lines = [f"{row},{row / 2}\n" for row in range(number * 200, number * 200 + 200)]
        (tmp_path / "in" / f"{number}.csv").write_text("".join(lines))
    for when, commits in (("before", 0), ("after", 0), ("before", 1), ("after", 1)):
        killed = run_killed(tmp_path, when, commits, engine)
        assert killed.returncode == -9, killed.stderr[-2000:]
    finished = run_killed(tmp_path, "never", 0, engine)
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert rows(tmp_path / "orders.db") == [(row, row / 2) for row in range(1000)]
