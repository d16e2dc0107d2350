"""Functions without state in companion processes: the same output, whatever happens to the companions."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import penstock as ps


def processes(threads=2, **options):
    return ps.engines.Local(threads=threads, workers="processes", **options)


def result(make, engine, values=range(200)):
    flow = ps.Flow("companions")
    sink = ps.sinks.collect()
    make(flow.read(ps.sources.items(values))).write(sink)
    report = flow.run(engine)
    return sink.items, report


def children():
    """The processes that this one has started and not yet seen end."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.fixture(autouse=True)
def no_process_left_behind():
    before = children()
    yield
    assert children() - before == set()


FLOWS = {
    "chain": lambda s: s.map(lambda x: x + 1).filter(lambda x: x % 3).flat_map(lambda x: [x] * (x % 3)),
    "batch": lambda s: s.map_batch(lambda xs: [x * 2 for x in xs]),
    "around keys": lambda s: (
        s.map(lambda x: x + 1).key_by(lambda x: x % 5).stateful_map(lambda n, x: (n + x, n), init=int).map(lambda x: -x)
    ),
    "arrays": lambda s: s.map(lambda x: np.full(3, x)).map(lambda a: a * 2).map(lambda a: a.tolist()),
}


@pytest.mark.parametrize("name", FLOWS)
def test_output_is_the_sequential_one(name):
    assert result(FLOWS[name], processes(queue_size=50))[0] == result(FLOWS[name], "sequential")[0]


def test_functions_run_elsewhere_and_are_counted_here():
    found, report = result(lambda s: s.map(lambda x: os.getpid(), name="op"), processes())
    assert os.getpid() not in found
    operator = report.operators["op"]
    assert (operator.received, operator.emitted, operator.replicas) == (200, 200, 2)
    assert operator.busy_seconds > 0


def test_two_of_them_work_at_once(tmp_path):
    """Each waits for the other to have begun: one process alone would never end."""
    os.mkfifo(tmp_path / "meeting")

    def meet(x):
        with (tmp_path / "meeting").open("w" if x == 1 else "r"):  # opened when both its ends are
            return os.getpid()

    found, _ = result(lambda s: s.map(meet), processes(queue_size=1), [1, 2])
    assert len(set(found)) == 2


def test_a_companion_that_dies_is_replaced_and_its_chunk_done_again(tmp_path):
    def die_once(x):
        if x == 70 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    found, _ = result(lambda s: s.map(die_once), processes(queue_size=20))
    assert (tmp_path / "died").exists()
    assert found == list(range(200))


def test_what_kills_every_companion_is_named():
    def die(x):
        if x == 70:
            os._exit(3)
        return x

    flow = ps.Flow("deadly")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(200))).map(die, name="deadly").write(sink)
    with pytest.raises(ps.OperatorError, match="'deadly' .* 3 companion processes have died .* exit code 3"):
        flow.run(processes(queue_size=20))
    assert sink.items == list(range(len(sink.items)))
    assert len(sink.items) <= 70


def test_a_failure_names_the_tuple_and_shows_the_traceback():
    def fail(x):
        return 1 // (x - 137)

    flow = ps.Flow("failing")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(200))).map(fail, name="op").write(sink)
    with pytest.raises(ps.OperatorError, match=r"'op' .* failed on 137: ZeroDivisionError") as caught:
        flow.run(processes(queue_size=50))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "return 1 // (x - 137)" in str(caught.value.__cause__.__cause__)
    assert len(sink.items) == 137


def test_dead_letters_come_back():
    def found(engine):
        flow = ps.Flow("letters")
        good, bad = ps.sinks.collect(), ps.sinks.collect()
        stream = flow.read(ps.sources.items(range(100)))
        stream.map(lambda x: 1 // (x % 5), on_error="dead-letter", name="op").write(good)
        flow.dead_letters("op").write(bad)
        assert flow.run(engine).operators["op"].failed == 20
        return good.items, bad.items

    assert found(processes(queue_size=20)) == found("sequential")


def test_what_cannot_be_sent_is_refused_before_anything_runs():
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x

    with pytest.raises(ps.FlowError, match="'locked' .* can't be sent to a companion process"):
        result(lambda s: s.map(locked), processes())


def test_a_tuple_that_cannot_be_sent_names_its_operator():
    for make in (
        lambda s: s.scan(lambda n, x: (n, threading.Lock()), 0).map(str, name="op"),
        lambda s: s.map(lock, name="op"),
    ):
        with pytest.raises(ps.OperatorError, match="'op' .* cannot pickle"):
            result(make, processes())


def lock(x):
    return threading.Lock()


def test_a_script_needs_no_guard_and_its_classes_travel(tmp_path):
    """A companion does not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        """
from dataclasses import dataclass
import penstock as ps

@dataclass
class Visit:
    user: int

print("begin")
flow = ps.Flow("script")
sink = ps.sinks.collect()
flow.read(ps.sources.items([Visit(n) for n in range(50)])).map(lambda v: Visit(v.user + 1)).write(sink)
flow.run(ps.engines.Local(threads=2, workers="processes", queue_size=10))
assert sink.items == [Visit(n + 1) for n in range(50)], sink.items
print("end")
"""
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["begin", "end"], "")


def test_nothing_starts_where_nothing_is_stateless(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    flow = ps.Flow("none")
    flow.read(ps.sources.items(range(10))).scan(lambda s, x: (s + x, s), 0).write(ps.sinks.null())
    flow.run(processes())
