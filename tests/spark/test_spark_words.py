"""What Spark's users are told when something goes wrong in its workers, its sessions and its clusters."""

import ctypes
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import venv
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.spark_words import reason_of


def flow_of(fn, name="deadly", keyed=False):
    """A function in the middle of a chain of three, on the first task or behind an exchange."""
    flow = ps.Flow("words")
    numbers = flow.read(ps.sources.items(range(40)))
    if keyed:
        numbers = numbers.key_by(lambda x: x % 4).stateful_map(lambda state, x: (state, x), init=int, name="kept")
    numbers.map(lambda x: x, name="before").map(fn, name=name).map(lambda x: x, name="behind").write(ps.sinks.null())
    return flow


def at_23(what):
    """The function that does something to its process at the tuple 23."""

    def deadly(x):
        if x == 23:
            what()
        return x

    return deadly


DEATHS = {
    "an exit": (lambda: os._exit(3), "ended itself with exit code 3"),
    "an exit as if all were well": (lambda: os._exit(0), "ended itself with exit code 0"),
    "a segmentation fault": (lambda: ctypes.string_at(0), "SIGSEGV"),
    "a lack of memory": (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL.*memory"),
}


@pytest.mark.parametrize(
    ("how", "keyed"),
    [
        pytest.param("an exit", False, marks=pytest.mark.long),
        ("an exit as if all were well", False),
        ("a segmentation fault", True),
        pytest.param("an exit", True, marks=pytest.mark.long),
        pytest.param("a segmentation fault", False, marks=pytest.mark.long),
        pytest.param("a lack of memory", False, marks=pytest.mark.long),
        pytest.param("a lack of memory", True, marks=pytest.mark.long),
    ],
)
def test_a_death_is_told_by_operator_tuple_and_cause(how, keyed):
    deed, words = DEATHS[how]
    with pytest.raises(
        ps.OperatorError, match=rf"operator 'deadly' of flow 'words' \(.*\) failed on 23: .*{words}"
    ) as told:
        flow_of(at_23(deed), keyed=keyed).run(ps.engines.Spark(parallelism=2))
    assert (told.value.operator, told.value.value) == ("deadly", 23)
    if how == "a segmentation fault":
        assert "string_at" in str(told.value.__cause__)


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("error", [SystemExit(4), KeyboardInterrupt(), GeneratorExit(), Odd("odd")], ids=repr)
def test_what_is_no_exception_is_told_by_operator_and_tuple(error):
    def deed():
        raise error

    with pytest.raises(
        ps.OperatorError, match=rf"'deadly' of flow 'words'.*failed on 23: {type(error).__name__}"
    ) as told:
        flow_of(at_23(deed), keyed=isinstance(error, Odd)).run("spark")
    assert (told.value.operator, told.value.value) == ("deadly", 23)


@pytest.mark.long
def test_a_death_in_a_driver_loop_names_it():
    class Deadly(ps.Operator):
        async def process(self, ctx):
            port = ctx.inputs[0]
            while await ctx.wait_all({port: 1}):
                if port.pop() == 3:
                    os._exit(5)

    flow = ps.Flow("words")
    flow.add(Deadly(), flow.read(ps.sources.items([3])), name="loop").write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match="'loop' of flow 'words'.*failed on 3: .*exit code 5"):
        flow.run("spark")


@pytest.mark.long
def test_a_death_in_a_source_names_it():
    flow = ps.Flow("words")
    made = flow.read(ps.sources.generate(lambda i: i if i < 23 else os._exit(5), count=40), name="made")
    made.map(lambda x: x, name="behind").write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match="'made' of flow 'words'.*failed on what it read .*: .*exit code 5"):
        flow.run("spark")


def test_a_job_can_be_stopped_before_it_has_begun():
    job = flow_of(str).start("spark")
    job.stop(drain=False)
    assert job.wait().batches == ()


class ConnectSession:
    """Stands for a session of Spark Connect: where a class comes from is how they are told apart."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_spark_connect_is_refused_in_one_sentence():
    with pytest.raises(
        ps.FlowError, match="Spark Connect has no driver process for a flow; give a classic SparkSession"
    ):
        flow_of(str).run(ps.engines.Spark(session=ConnectSession()))


def test_a_worker_that_dies_once_changes_nothing(tmp_path):
    def killed_once(x):
        if x == 23 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    result = ps.sinks.collect()
    flow = ps.Flow("once")
    flow.read(ps.sources.items(range(40))).map(killed_once).write(result)
    flow.run("spark")
    assert result.items == list(range(40))
    assert (tmp_path / "died").exists()


@pytest.mark.long
def test_workers_that_die_until_spark_gives_up_but_not_after_that_change_nothing(tmp_path):
    """Whatever it was, the rehearsal did not meet it, and neither did the batch after that."""

    def killed_often(x):
        if x == 23 and len(list(tmp_path.iterdir())) < 4:
            (tmp_path / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    result = ps.sinks.collect()
    flow = ps.Flow("often")
    flow.read(ps.sources.items(range(40))).map(killed_often).write(result)
    flow.run("spark")
    assert result.items == list(range(40))


@pytest.mark.parametrize("keyed", [False, True])
def test_a_result_that_can_not_be_pickled_names_its_operator(keyed):
    flow = ps.Flow("words")
    made = flow_of_locks(flow, keyed)
    made.key_by(lambda x: 1).count().write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match=r"'makes' of flow 'words'.*returned .*lock.*can't be pickled") as told:
        flow.run("spark")
    assert told.value.operator == "makes"


def test_a_result_that_can_not_be_pickled_for_a_sink_names_it():
    flow = ps.Flow("words")
    flow_of_locks(flow, False).write(ps.sinks.collect(), name="end")
    with pytest.raises(ps.OperatorError, match=r"'end' of flow 'words'.*was given .*lock.*can't be pickled"):
        flow.run("spark")


def flow_of_locks(flow, keyed):
    numbers = flow.read(ps.sources.items(range(3)))
    if keyed:
        return numbers.key_by(lambda x: x).stateful_map(lambda s, x: (s, threading.Lock()), init=int, name="makes")
    return numbers.map(lambda x: threading.Lock(), name="makes")


def test_a_module_that_only_the_driver_has_is_told_with_who_needs_it(tmp_path, monkeypatch):
    (tmp_path / "onlydriver.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("penstock.engines.spark.pickling._is_installed", lambda file: True)
    import onlydriver

    with pytest.raises(ps.FlowError, match="'words': operator 'deadly' needs the module 'onlydriver'.*don't have"):
        flow_of(onlydriver.double).run("spark")


def test_another_interpreter_is_told_with_what_to_set(tmp_path, monkeypatch):
    from penstock.connectors.spark_session import session

    context = session().sparkContext
    advice = r"; set PYSPARK_PYTHON to an interpreter like this one"
    monkeypatch.setattr(context, "pythonExec", str(tmp_path / "nowhere"))
    with pytest.raises(ps.FlowError, match=f"'words': Spark's workers can't start Python.*nowhere'{advice}"):
        flow_of(str).run("spark")
    venv.create(tmp_path / "bare")
    monkeypatch.setattr(context, "pythonExec", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ps.FlowError, match=f"'words': the interpreter of Spark's workers, .*bare.*, has no .*{advice}"):
        flow_of(str).run("spark")
    monkeypatch.undo()
    monkeypatch.setattr(context, "pythonVer", "3.1")
    with pytest.raises(ps.FlowError, match=rf"'words': Spark's workers run Python 3\.\d+ .*this process 3\.1{advice}"):
        flow_of(str).run("spark")


HUGE = "x" * 50_000_000


class Unspeakable(Exception):
    """Can't be pickled, and can't be told."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__

    def __reduce__(self):
        raise RuntimeError("no bytes")


class Unreadable(Exception):
    """Comes out of pickle only in the process that made it."""

    def __init__(self, text):
        super().__init__(text)
        self.where = os.getpid()

    def __setstate__(self, state):
        if state["where"] != os.getpid():
            raise RuntimeError("not here")
        self.__dict__.update(state)


def test_texts_are_cut_where_they_are_made():
    def fails(x):
        raise ValueError(HUGE)

    flow = ps.Flow("words")
    flow.read(ps.sources.items([1])).map(lambda x: HUGE, name="large").map(fails, name="fails").write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match="'fails' of flow 'words'.*failed on 'xxx.*ValueError: xxx") as told:
        flow.run("spark")
    assert len(str(told.value)) < 5_000
    assert len(str(told.value.__cause__)) < 5_000
    assert told.value.operator == "fails"


@pytest.mark.parametrize("kind", [Unspeakable, Unreadable])
def test_errors_that_can_not_travel_are_told(kind):
    def fails(x):
        raise kind("only here")

    with pytest.raises(ps.OperatorError, match=f"'deadly' of flow 'words'.*failed on 0: {kind.__name__}") as told:
        flow_of(fails).run("spark")
    assert told.value.operator == "deadly"


REASONS = {
    "": "RuntimeError",
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "f.py", line 1, in f\n    g()\nValueError: bad\nvery bad\n\n\tat a.B.c': "ValueError: bad very bad",
    "An error occurred while calling o1.f.\n: org.apache.E: first\n\tat a.b.C\nCaused by: a.b.F: second\n\tat a.b.C\n"
    "Caused by: java.io.EOFException\n\tat x": "second",
    "An error occurred while calling o1.f.\n: java.lang.StackOverflowError\n\tat a.b.C": "java.lang.StackOverflowError",
    "Something failed:\nthe disk is full": "Something failed: the disk is full",
}


@pytest.mark.parametrize("text", REASONS)
def test_the_reason_is_found_in_whatever_spark_says(text):
    found = reason_of(RuntimeError(text))
    assert REASONS[text] in found
    assert len(found) < 600


ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="starts a session of its own")
def test_in_a_session_of_the_user_s_runs_end_well_and_quietly(tmp_path):
    """With Spark's defaults: a stack that a long message overflows, and a log level that shows warnings."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.spark.own_session_script", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    before, _, after = told.stdout.partition("told:")
    assert sorted(before.splitlines()) == [
        "counts 16",
        "counts 7",
        *["listener: ended badly"] * ("badly" in before),
        *["listener: ended well"] * 3,
        "stopped at once",
    ]
    assert "failed on 0: ZeroDivisionError" in after
    assert "told: flow 'own': its Spark session was stopped while it ran" in after
    lines = [line for line in told.stderr.splitlines() if " ERROR " in line or line.startswith("ERROR:")]
    # Spark says so of a task that ends while the session is being stopped.
    errors = [line for line in lines if "TaskSchedulerImpl: Exception in statusUpdate" not in line]
    # The failed query; and at times the one whose session was stopped, where Spark noticed that first.
    assert len(errors) in (1, 2), told.stderr
    assert all("terminated with error" in line for line in errors), told.stderr
    (logs,) = (tmp_path / "checkpoint" / "spark").iterdir()
    last = {kind: max(int(file.name) for file in (logs / kind).glob("[0-9]*")) for kind in ("offsets", "commits")}
    assert last["commits"] == last["offsets"] - 1, "the batch that there was no input for is not done"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")
def test_the_terminal_belongs_to_the_application_while_spark_starts(tmp_path):
    """What it writes there is all there, between the live table; and nothing is left in the temporary folder."""
    (tmp_path / "chatty.py").write_text(CHATTY)
    (tmp_path / "temporary").mkdir()
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "penstock", "run", "chatty:flow", "--engine", "spark", "--no-report"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=end) as process:
        os.close(end)
        shown = b"".join(iter(lambda: read_or_end(terminal), b""))
        out, _ = process.communicate(timeout=200)
    os.close(terminal)
    assert process.returncode == 0, shown
    assert out.split() == [b"0", b"1", b"2"]
    said = [int(number) for number in re.findall(rb"said (\d+);", shown)]
    assert said == list(range(len(said)))
    before, _, after = shown.partition(b"java is there;")
    assert b"received" in before, "the table, while Spark starts"
    assert b"received" in after, "the table, while batches run"
    left = [file.name for file in (tmp_path / "temporary").iterdir() if file.name.startswith("penstock")]
    assert left == []


CHATTY = """
import os, sys, threading, time
from pyspark import SparkContext
import penstock as ps

def talk():
    number, is_there = 0, False
    while True:
        os.write(2, b"said %d;" % number)
        number += 1
        if not is_there and SparkContext._active_spark_context is not None:
            is_there = True
            os.write(2, b"java is there;")
        time.sleep(0.02)

threading.Thread(target=talk, daemon=True).start()
flow = ps.Flow("chatty")
flow.read(ps.sources.generate(lambda i: i, count=3, rate=1)).write(ps.sinks.console())
"""


def read_or_end(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_java_that_does_not_start_is_told_with_its_own_words(tmp_path):
    script = (
        "import penstock as ps; flow = ps.Flow('f'); flow.read(ps.sources.items([1])).write(ps.sinks.null()); "
        "flow.run(ps.engines.Spark(conf={'spark.driver.extraJavaOptions': '-Xss1k'}))"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert (
        "FlowError: engine 'spark': Java has ended as soon as it was started: Error: " in told.stderr.splitlines()[-1]
    )
    (log,) = re.findall(r"Spark's own words are in (.*)\)", told.stderr.splitlines()[-1])
    assert Path(log).parent == tmp_path
    assert "Could not create the Java Virtual Machine" in Path(log).read_text()
    assert "Could not create the Java Virtual Machine" in told.stderr.splitlines()[-1]
