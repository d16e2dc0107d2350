"""The command line as a person meets it: real processes, exit codes, terminals, Ctrl-C."""

import os
import pty
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

FLOWS = """
import sys
import penstock as ps

flow = ps.Flow("doubled")
flow.read(ps.sources.items([1, 2, 3])).map(lambda x: x * 2, name="double").write(ps.sinks.console())

def make_flow(name="made", count=2):
    made = ps.Flow(name)
    made.read(ps.sources.items(range(count))).write(ps.sinks.console())
    return made

failing = ps.Flow("failing")
failing.read(ps.sources.items([1, 0])).map(lambda x: 1 // x, name="divide").write(ps.sinks.console())

missing = ps.Flow("missing")
missing.read(ps.sources.csv("nowhere.csv", schema="a long")).write(ps.sinks.console())

sinkless = ps.Flow("sinkless")
sinkless.read(ps.sources.items([1]))

def ready(value):
    if value == 3:
        print("ready", file=sys.stderr, flush=True)

endless = ps.Flow("endless")
(endless.read(ps.sources.generate(lambda i: i, rate=200)).inspect(ready)
    .write(ps.sinks.json("out")))

not_a_flow = 7
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "flows.py").write_text(FLOWS)
    return tmp_path


def penstock(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=240
    )


@pytest.mark.parametrize("target", ["flows:flow", "flows.py:flow", "./flows.py:flow", "flows.py"])
def test_run_prints_results_on_stdout_and_the_report_on_stderr(folder, target):
    result = penstock(folder, "run", target, "--engine", "sequential")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "2\n4\n6\n"
    assert "flow doubled on sequential" in result.stderr
    assert "double" in result.stderr


@pytest.mark.parametrize(
    ("target", "count"),
    [("flows:make_flow", 2), ("flows:make_flow('x')", 2), ("flows:make_flow('x', count=3)", 3)],
)
def test_factories(folder, target, count):
    result = penstock(folder, "run", target, "--engine", "sequential", "--no-report")
    assert result.stdout.splitlines() == [str(number) for number in range(count)]
    assert result.stderr == ""


def test_flags_have_variables(folder):
    result = penstock(folder, "run", "flows:flow", PENSTOCK_ENGINE="sequential", PENSTOCK_REPORT="false")
    assert (result.returncode, result.stdout, result.stderr) == (0, "2\n4\n6\n", "")


def test_options_go_to_the_engine(folder):
    result = penstock(folder, "run", "flows:flow", "--engine", "sequential", "-o", "restart=sometimes")
    assert result.returncode == 2
    assert "restart= is 'never' or 'every-wait', not 'sometimes'" in result.stderr


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("flows:failing", 1, "OperatorError: operator 'divide' of flow 'failing'"),
        ("flows:missing", 1, "SourceError: csv source: there is no file 'nowhere.csv'"),
        ("flows:sinkless", 2, "FlowError: flow 'sinkless' has no sink"),
        ("flows:nothing", 2, "has no 'nothing'; the flows in it: flow, failing"),
        ("flows:not_a_flow", 2, "is a int, not a flow"),
        ("flows:make_flow(open('x'))", 2, "must be literals"),
        ("flows:1 + 1", 2, "neither a name nor a call"),
        ("nowhere:flow", 2, "there is no module 'nowhere'"),
        ("nowhere.py:flow", 2, "there is no file 'nowhere.py'"),
    ],
)
def test_exit_codes_and_messages(folder, target, code, message):
    result = penstock(folder, "run", target, "--engine", "sequential")
    assert message in result.stderr
    assert result.returncode == code


def test_an_operators_failure_shows_the_users_traceback_not_ours(folder):
    result = penstock(folder, "run", "flows:failing", "--engine", "sequential")
    assert "ZeroDivisionError" in result.stderr
    assert 'flows.py", line' in result.stderr
    assert result.stdout == "1\n"


def test_an_import_that_fails_inside_the_module_is_not_hidden(folder):
    (folder / "broken.py").write_text("import does_not_exist\n")
    result = penstock(folder, "run", "broken:flow", "--engine", "sequential")
    assert "No module named 'does_not_exist'" in result.stderr
    assert result.returncode != 0


def test_explain(folder):
    result = penstock(folder, "explain", "flows:flow")
    assert result.returncode == 0
    assert "double   stateless: map; reads items" in result.stdout
    assert "flowchart LR" in penstock(folder, "explain", "flows:flow", "--mermaid").stdout


def test_demo_shows_the_same_on_every_engine(folder):
    shown = []
    for engine in ("sequential", "local", "spark"):
        result = penstock(folder, "demo", "--engine", engine, "--clicks", "20000")
        assert result.returncode == 0, result.stderr
        assert "window-count" in result.stderr
        shown.append(result.stdout.partition("busy minutes, in order")[2])
    assert shown[0] == shown[1] == shown[2]
    assert "clicks" in shown[0]


def test_bench_lists_what_there_is(folder):
    result = penstock(folder, "bench", "nothing")
    assert result.returncode == 2
    there = "calibrate, elastic, local, ordered, papers, simulate, spark"
    assert f"there is no benchmark 'nothing'; there are {there}\n" in result.stderr
    assert "Measure:" in penstock(folder, "bench", "--help").stdout


def test_bench_passes_its_arguments_on(folder):
    result = penstock(folder, "bench", "local", "--help")
    assert result.returncode == 0
    assert "penstock bench local" in result.stdout


def test_help_and_version(folder):
    assert "explain" in penstock(folder, "--help").stdout
    assert "penstock, version" in penstock(folder, "--version").stdout
    assert penstock(folder, "run").returncode == 2


def test_ctrl_c_drains_and_leaves_whole_files(folder):
    command = [sys.executable, "-m", "penstock", "run", "flows:endless", "--engine", "sequential"]
    # A shell that runs the tests in the background has them ignore Ctrl-C, and so would this process.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as process:
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopping: letting out what was read" in errors
    assert "flow endless on sequential" in errors
    (part,) = (folder / "out").iterdir()
    numbers = [int(line) for line in part.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 4


def test_a_terminal_gets_a_live_display(folder):
    """The display is on standard error, and the results on standard output stay clean."""
    (folder / "slow.py").write_text(
        "import penstock as ps\nflow = ps.Flow('slow')\n"
        "flow.read(ps.sources.generate(lambda i: i, count=30, rate=15)).write(ps.sinks.console())\n"
    )
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "penstock", "run", "slow:flow", "--engine", "sequential", "--no-report"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=end, text=True) as process:
        os.close(end)
        shown = b""
        while True:
            try:
                block = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            shown += block
        out, _ = process.communicate(timeout=120)
    os.close(terminal)
    assert out.splitlines() == [str(number) for number in range(30)]
    assert b"generate" in shown
    assert b"received" in shown


def test_output_that_nobody_reads_any_more_is_no_failure_to_shout_about(folder):
    script = "import penstock as ps\nflow = ps.Flow('f')\n"
    script += "flow.read(ps.sources.generate(lambda i: 'x' * 1000, count=10_000)).write(ps.sinks.console())\n"
    (folder / "long.py").write_text(script)
    command = f"{sys.executable} -m penstock run long:flow --engine sequential | head -n 1"
    result = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=240)
    assert result.stdout == "x" * 1000 + "\n"
    assert result.stderr == ""
