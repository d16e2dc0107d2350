"""What users' code does to a companion process is told by operator, tuple and cause; and none outlives its run."""

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import penstock as ps

pytestmark = pytest.mark.timeout(120)


def engine(**options):
    return ps.engines.Local(threads=2, workers="processes", **options)


def error_of(fn, values=range(30)):
    """Of a flow in which `fn` meets these values, several in a chunk."""
    flow = ps.Flow("deadly")
    sink = ps.sinks.collect()
    read = flow.read(ps.sources.items(list(values)))
    read.map(fn, name="op").write(sink)
    with pytest.raises(ps.OperatorError) as caught:
        flow.run(engine())
    assert sink.items == list(range(len(sink.items)))
    return str(caught.value), caught.value


def only_at_17(do):
    def op(x):
        if x == 17:
            do()
        return x

    return op


def segfault():
    import ctypes

    ctypes.string_at(0)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


class NoWayBack:
    def __reduce__(self):
        raise SystemExit("no way back")


class NoWayThere:
    """It can be pickled, and not be unpickled."""

    def __reduce__(self):
        return _raise, (EOFError("it is a trap"),)


def _raise(error):
    raise error


DEATHS = {
    "exit": (lambda: os._exit(5), "with exit code 5"),
    "segmentation fault": (segfault, "by SIGSEGV, at .*ctypes.*:|by SIGSEGV, at .*test_companion_deaths.py:"),
    "killed": (killed, "by SIGKILL; unless it was killed from outside, the system was out of memory"),
}


@pytest.mark.parametrize("death", ["exit", "segmentation fault", pytest.param("killed", marks=pytest.mark.long)])
def test_a_death_names_the_tuple_and_the_cause(death):
    do, words = DEATHS[death]
    told, error = error_of(only_at_17(do))
    assert re.search(
        rf"operator 'op'.* of flow 'deadly' .* failed on 17: 3 companion processes have died .*({words})", told
    )
    assert error.operator == "op"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lambda x: NoWayBack() if x == 17 else x, "SystemExit: no way back"),
        (lambda: lambda x: NoWayThere() if x == 17 else x, "EOFError: it is a trap"),
        pytest.param(
            lambda: lambda x: threading.Lock() if x == 17 else x,
            "cannot pickle '_thread.lock' object",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_result_that_cannot_be_sent_names_its_tuple(make, words):
    told, error = error_of(make())
    assert "'op'" in told
    assert "failed on 17: " in told
    assert words in told
    assert error.__cause__ is not None


def test_a_tuple_that_cannot_be_sent_is_named():
    values = [*range(17), NoWayBack(), *range(18, 30)]
    told, _ = error_of(lambda x: x, values)
    assert re.search("'op'.* failed on <.*NoWayBack object .*: SystemExit: no way back", told)


def test_a_module_that_is_missing_there_is_named(tmp_path, monkeypatch):
    """The function refers to a module that only this process can import."""
    (tmp_path / "only_here.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    told, error = error_of(only_here.twice)
    assert "'op'" in told
    assert "ModuleNotFoundError: No module named 'only_here'" in told
    assert error.__cause__ is not None


def test_stop_kills_what_is_stuck_and_says_where(tmp_path):
    pids = tmp_path / "pids"
    os.mkfifo(pids)

    def op(_):
        with pids.open("w") as file:
            file.write(str(os.getpid()))
        time.sleep(3600)

    flow = ps.Flow("stuck")
    flow.read(ps.sources.items(range(3))).map(op, name="op").write(ps.sinks.null())
    job = flow.start(engine())
    companion = _written_to(pids)
    stopping = threading.Thread(target=job.stop, kwargs={"drain": False}, daemon=True)
    stopping.start()
    stopping.join(30)
    assert not stopping.is_alive()
    (left,) = job.wait(0).left_behind
    assert left.operator == "op"
    assert re.search(r"test_companion_deaths.py:\d+ in op", left.where)
    with pytest.raises(ProcessLookupError):
        os.kill(companion, 0)


STUCK = {
    "sleeping": "time.sleep(3600)",
    "computing": "while True: pass",
    "holding the GIL": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "holding on": "signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 32)) - {29}); time.sleep(3600)",
}


@pytest.mark.parametrize(
    "stuck", [name if "GIL" in name else pytest.param(name, marks=pytest.mark.long) for name in STUCK]
)
def test_no_companion_outlives_the_process_that_has_started_it(stuck, tmp_path):
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    script = f"""
        import os, re, signal, sys, time
        import penstock as ps

        def op(_):
            with open({str(pids)!r}, "w") as file:
                file.write(str(os.getpid()))
            {STUCK[stuck]}

        flow = ps.Flow("orphans")
        flow.read(ps.sources.items(range(3))).map(op).write(ps.sinks.null())
        flow.run(ps.engines.Local(threads=2, workers="processes"))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    companion = os.pidfd_open(_written_to(pids))
    try:
        assert not _has_ended(companion, 0)
        process.kill()
        process.wait()
        assert _has_ended(companion, 60)
    finally:
        os.close(companion)


def _written_to(fifo):
    """The number that another process writes there, within a minute."""
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([descriptor], [], [], 60)[0]
        return int(os.read(descriptor, 100))
    finally:
        os.close(descriptor)


def _has_ended(process, seconds):
    """Whether a process, which is another one's child, ends within so many seconds."""
    return bool(select.select([process], [], [], seconds)[0])
