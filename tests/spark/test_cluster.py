"""The same output on a real standalone cluster, and with executors and Python workers dying under it."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import Cluster, descendants, end, standalone_cluster, worker
from tests.spark.cluster_script import LONG_COUNT, ROWS_PER_BATCH, SOME_FLOWS
from tests.spark.flows import FLOWS
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

ROOT = Path(__file__).parents[2]
SECONDS = 500
LONG_OUTPUT = [f"{sink}: the same {count} tuples" for sink, count in enumerate([LONG_COUNT, 1230, LONG_COUNT])]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: Any) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@contextmanager
def script(cluster: Cluster, which: str, folder: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.spark.cluster_script", cluster.master, which, str(folder), *settings]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield process
    finally:
        for pid in [process.pid, *descendants([process.pid])]:
            end(pid)
        process.communicate()


def rest_of_output(process: subprocess.Popen[str], folder: Path) -> list[str]:
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, (folder / "errors").read_text()
    return [line for line in out.splitlines() if line != "batch"]


def wait_for_a_batch(process: subprocess.Popen[str], folder: Path) -> None:
    """What comes after it runs on executors and Python workers that are there."""
    assert process.stdout is not None
    assert process.stdout.readline() == "batch\n", (folder / "errors").read_text()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("which", "names"), [("flows", SOME_FLOWS), pytest.param("all-flows", FLOWS, marks=pytest.mark.long)]
)
def test_flows_give_the_sequential_output(cluster, tmp_path, which, names):
    with script(cluster, which, tmp_path) as process:
        lines = rest_of_output(process, tmp_path)
    assert [line for line in lines if "the same" not in line] == []
    assert {line.split()[0] for line in lines} == set(names)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_executor_that_dies_changes_nothing(cluster, tmp_path):
    with script(cluster, "long", tmp_path) as process:
        wait_for_a_batch(process, tmp_path)
        there = cluster.executors()
        until(cluster.busy_python_workers, "a task that computes")
        end(there[0])
        until(lambda: set(cluster.executors()) - set(there), "an executor in place of the dead one")
        lines = rest_of_output(process, tmp_path)
    assert lines == [f"long {line}" for line in LONG_OUTPUT]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_attempts_are_never_mixed(cluster, tmp_path):
    """What a dead executor had sent is computed again, and differs: so everything that was made of it must be, too.

    It dies when four of six tasks have begun, on two cores: some of them are done with what it had sent.
    """
    with script(cluster, "moody", tmp_path) as process:
        wait_for_a_batch(process, tmp_path)
        there = cluster.executors()
        before = len(list(tmp_path.glob("begun-*")))
        until(lambda: len(list(tmp_path.glob("begun-*"))) >= before + 4, "tasks that have begun")
        end(there[0])
        lines = rest_of_output(process, tmp_path)
    assert lines == [f"moody 0: the same {LONG_COUNT} tuples"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_python_workers_that_die_change_nothing(cluster, tmp_path):
    """One in each batch: Spark ends a job when the same task has failed four times."""
    killed = []
    with script(cluster, "long", tmp_path) as process:
        for _ in range(3):
            wait_for_a_batch(process, tmp_path)
            killed.append(until(cluster.busy_python_workers, "a task that computes")[0])
            end(killed[-1])
        lines = rest_of_output(process, tmp_path)
    assert len(set(killed)) == 3
    assert lines == [f"long {line}" for line in LONG_OUTPUT]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_speculative_tasks_change_nothing(cluster, tmp_path):
    speculation = ["spark.speculation=true", "spark.speculation.interval=50ms", "spark.speculation.quantile=0.5"]
    with script(cluster, "straggling", tmp_path, *speculation, "spark.speculation.multiplier=1.1") as process:
        lines = rest_of_output(process, tmp_path)
    visits = [len(list(folder.iterdir())) for folder in tmp_path.iterdir() if folder.is_dir()]
    assert len(visits) == LONG_COUNT // ROWS_PER_BATCH
    assert min(visits) > 1, "in some batch no task ran twice"
    assert lines == [f"straggling {line}" for line in LONG_OUTPUT]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_step_in_load_brings_executors_and_its_end_takes_them_away(cluster, tmp_path):
    """Two executors at first; one is given back, asked for again when the load comes, and given back when it goes."""
    with script(cluster, "step", tmp_path) as process:
        until(lambda: len(cluster.executors()) == 2, "two executors")
        until(lambda: len(cluster.executors()) == 1, "one executor, for there is little to do")
        until(lambda: len(cluster.executors()) == 2, "a second one, for the load has come")
        until(lambda: len(cluster.executors()) == 1, "one again, for it has gone")
        lines = rest_of_output(process, tmp_path)
    changes = [tuple(map(int, line.split()[1:3])) for line in lines if line.startswith("executors")]
    assert changes[:3] == [(2, 1), (1, 2), (2, 1)]
    assert lines[-1].startswith("step 0: the same ")


def test_nobody_at_the_master_s_address_is_one_clear_sentence(tmp_path):
    (tmp_path / "flows.py").write_text(
        "import penstock as ps\nflow = ps.Flow('f')\nflow.read(ps.sources.items([1])).write(ps.sinks.console())\n"
    )
    command = [sys.executable, "-m", "penstock", "run", "flows:flow", "--engine", "spark", "-o"]
    result = subprocess.run(
        [*command, "master=spark://127.0.0.1:1"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    told = [line for line in result.stderr.splitlines() if not re.match(r"f: \d+ s", line)]
    assert len(told) == 1, result.stderr
    assert "FlowError: engine 'spark': the master 'spark://127.0.0.1:1' can't be reached" in told[0]


REFUSED = """
import sys
import penstock as ps
master, *settings = sys.argv[1:]
conf = dict(setting.split("=", 1) for setting in settings)
for _ in sys.stdin:
    flow = ps.Flow("f")
    flow.read(ps.sources.items([1])).write(ps.sinks.null())
    try:
        flow.run(ps.engines.Spark(master=master, conf=conf))
    except ps.FlowError as error:
        print(error, flush=True)
"""


@contextmanager
def refused(master: str, folder: Path, *settings: str) -> Iterator[Callable[[], str]]:
    """A process that tries to run a flow each time it is asked, and tells why it can't."""
    command = [sys.executable, "-c", REFUSED, master, *settings]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
        )

    def why() -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("again\n")
        return process.stdout.readline() or (folder / "errors").read_text()

    try:
        yield why
    finally:
        for pid in [process.pid, *descendants([process.pid])]:
            end(pid)
        process.communicate()


def test_workers_that_are_too_small_are_told(cluster, tmp_path):
    settings = ["spark.penstock.executorSeconds=3", "spark.executor.memory=3g"]
    with refused(cluster.master, tmp_path, *settings) as why:
        told = why()
    assert "was reached, but in 3 seconds it has given the application no executor" in told
    assert "an executor needs 3g of memory, and its workers have free: 1 cores and 1024 MB" in told


@pytest.mark.long
def test_a_master_without_workers_and_executors_that_die_are_told_apart(tmp_path):
    settings = ["spark.penstock.executorSeconds=3", "spark.executor.extraJavaOptions=-Xss1k"]
    with (
        standalone_cluster(tmp_path, workers=0) as empty,
        refused(empty.master, tmp_path, *settings) as why,
    ):
        assert "was reached, but in 3 seconds it has given the application no executor (it has no workers)" in why()
        with worker(empty.master, tmp_path, 0):
            told = until(lambda: said if "have ended" in (said := why()) else "", "an executor that ends")
        assert "was reached" in told
        assert "started have ended: Command exited with code 1" in told
