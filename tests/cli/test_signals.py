"""Ctrl-C and SIGTERM, once and twice, of the command and of scripts; and interpreters that end while a flow runs."""

import signal
import subprocess
import sys
from functools import partial

import pytest

pytestmark = pytest.mark.timeout(120)

ENDLESS = """
import sys, threading
import penstock as ps

is_ready = threading.Event()

def tell(x):
    if x == 3:
        print("ready", file=sys.stderr, flush=True)
        is_ready.set()
    return x

def stuck(x):
    if tell(x) == 3:
        threading.Event().wait()  # stuck here
    return x

def made(fn):
    flow = ps.Flow("endless")
    flow.read(ps.sources.generate(lambda x: x, rate=200)).map(fn, name="op").write(ps.sinks.text("out"))
    return flow

flow, stuck_flow = made(tell), made(stuck)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "flows.py").write_text(ENDLESS)
    return tmp_path


def started(folder, *command):
    # A shell that runs the tests in the background has them ignore Ctrl-C, and so would this process.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )
    assert process.stderr.readline() == "ready\n"
    return process


def ended(process):
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def numbers(folder):
    (part,) = (folder / "out").iterdir()
    return [int(line) for line in part.read_text().splitlines()]


LONG = pytest.mark.long


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("engine", ["local", pytest.param("sequential", marks=LONG)])
def test_the_first_signal_drains(number, code, engine, folder):
    process = started(folder, "-m", "penstock", "run", "flows:flow", "--engine", engine)
    process.send_signal(number)
    returned, errors = ended(process)
    assert returned == code
    assert "stopping: letting out what was read" in errors
    assert f"flow endless on {engine}" in errors
    assert numbers(folder) == list(range(len(numbers(folder))))
    assert len(numbers(folder)) >= 4


@pytest.mark.parametrize(("number", "code"), [pytest.param(signal.SIGINT, 130, marks=LONG), (signal.SIGTERM, 143)])
def test_the_second_signal_does_not(number, code, folder):
    process = started(folder, "-m", "penstock", "run", "flows:stuck_flow", "--engine", "local")
    process.send_signal(number)
    assert "stopping: letting out what was read" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    returned, errors = ended(process)
    assert returned == code
    assert "left behind: op at " in errors
    assert "flows.py:15 in stuck" in errors


def test_sigterm_drains_for_so_long_only(folder):
    command = ("-m", "penstock", "run", "flows:stuck_flow", "--engine", "local", "--grace-seconds", "0.1")
    process = started(folder, *command)
    process.send_signal(signal.SIGTERM)
    returned, errors = ended(process)
    assert returned == 143
    assert "left behind: op at " in errors


SCRIPTS = {
    "drains": ("import flows; flows.flow.run('local')", 143),
    "goes on with what its own handler says": (
        "import signal, sys, flows\n"
        "def mine(*_):\n    print('mine', file=sys.stderr, flush=True)\n    raise TimeoutError\n"
        "signal.signal(signal.SIGTERM, mine)\n"
        "try:\n    flows.flow.run('local')\n"
        "except TimeoutError:\n    assert signal.getsignal(signal.SIGTERM) is mine\n    sys.exit(7)",
        7,
    ),
    "puts the handler back": (
        "import signal, sys, flows\n"
        "try:\n    flows.flow.run('local')\n"
        "except SystemExit as left:\n"
        "    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
        "    sys.exit(left.code - 100)",
        43,
    ),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_gets_sigterm(script, folder):
    text, code = SCRIPTS[script]
    process = started(folder, "-c", text)
    process.send_signal(signal.SIGTERM)
    returned, errors = ended(process)
    assert returned == code, errors
    assert numbers(folder) == list(range(len(numbers(folder))))


LEFT = {
    "never waited for": "import flows; job = flows.{flow}.start('{engine}'); flows.is_ready.wait()",
    "left by an exception of another's": (
        "import flows, os, signal, threading\n"
        "def leave(*_):\n    raise SystemExit(0)\n"
        "def when_ready():\n    flows.is_ready.wait()\n    os.kill(os.getpid(), signal.SIGALRM)\n"
        "signal.signal(signal.SIGALRM, leave)\nthreading.Thread(target=when_ready, daemon=True).start()\n"
        "flows.{flow}.run('{engine}')"
    ),
}


@pytest.mark.parametrize("how", LEFT)
@pytest.mark.parametrize(
    ("flow", "engine"),
    [pytest.param("flow", "local", marks=LONG), ("stuck_flow", "local"), ("stuck_flow", "sequential")],
)
def test_a_run_that_is_left_does_not_hold_the_interpreter(how, flow, engine, folder):
    process = started(folder, "-c", LEFT[how].format(flow=flow, engine=engine))
    returned, errors = ended(process)
    assert (returned, errors) == (0, "")
