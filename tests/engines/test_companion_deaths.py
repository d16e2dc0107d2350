"""What users' code does to a companion process is told by operator, tuple and cause; and none outlives its run."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

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
    "killed": (killed, "by SIGKILL; if nobody has killed it, the system was out of memory"),
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
    def op(_):
        (tmp_path / str(os.getpid())).touch()
        time.sleep(3600)

    flow = ps.Flow("stuck")
    flow.read(ps.sources.items(range(3))).map(op, name="op").write(ps.sinks.null())
    job = flow.start(engine())
    _until(lambda: list(tmp_path.iterdir()))
    began = time.monotonic()
    job.stop(drain=False)
    assert time.monotonic() - began < 10
    (left,) = job.wait(0).left_behind
    assert left.operator == "op"
    assert re.search(r"test_companion_deaths.py:\d+ in op", left.where)
    assert not _is_alive(_companion(tmp_path))


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
    script = f"""
        import os, re, signal, sys, time
        import penstock as ps

        def op(_):
            open(os.path.join({str(tmp_path)!r}, str(os.getpid())), "w").close()
            {STUCK[stuck]}

        flow = ps.Flow("orphans")
        flow.read(ps.sources.items(range(3))).map(op).write(ps.sinks.null())
        flow.run(ps.engines.Local(threads=2, workers="processes"))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    _until(lambda: list(tmp_path.iterdir()))
    companion = _companion(tmp_path)
    assert _is_alive(companion)
    process.kill()
    process.wait()
    _until(lambda: not _is_alive(companion))


def _companion(folder):
    (file,) = folder.iterdir()
    return int(file.name)


def _is_alive(process):
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
