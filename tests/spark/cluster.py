"""A real standalone cluster on loopback, from the pip package: a master and its workers, ended by their ids, always.

Each worker has a loopback address of its own, because Spark takes an address for a machine: it never runs the
speculative copy of a task on the machine of the first one.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.waiting import until

HOST = "127.0.0.1"
_SPARK = Path(pyspark.__file__).parent
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Cluster:
    """A master, and workers of one core each."""

    master: str
    web_page: str
    workers: tuple[int, ...]
    """Their process ids."""
    logs: Path

    def executors(self) -> list[int]:
        """The process ids of the executors that run on the workers now."""
        return [pid for pid in descendants(self.workers) if "CoarseGrainedExecutorBackend" in _command(pid)]

    def busy_python_workers(self) -> list[int]:
        """The process ids of the Python workers that compute now; not of the daemons that fork them."""
        running = [pid for pid in descendants(self.executors()) if "pyspark.daemon" in _command(pid)]
        parents = {status.parent for status in _processes().values()}
        return [pid for pid in running if pid not in parents and _is_computing(pid)]


@contextmanager
def standalone_cluster(logs: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster whose workers have all registered; its processes write to `logs`, and none of them is left behind."""
    port, web_port = _free_port(), _free_port()
    master = f"spark://{HOST}:{port}"
    web_page = f"http://{HOST}:{web_port}/json/"
    with ExitStack() as running:
        ports = ["--port", str(port), "--webui-port", str(web_port)]
        running.enter_context(_process("master.Master", HOST, ports, logs / "master"))
        until(lambda: _alive_workers(web_page) is not None, f"a master at {web_page}; see {logs}")
        pids = [running.enter_context(worker(master, logs, number)) for number in range(workers)]
        until(lambda: _alive_workers(web_page) == workers, f"{workers} workers at {web_page}; see {logs}")
        yield Cluster(master, web_page, tuple(pids), logs)


def worker(master: str, logs: Path, number: int) -> AbstractContextManager[int]:
    """A worker of one core; yields its process id."""
    options = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(logs / "work"), master]
    return _process("worker.Worker", f"127.0.0.{number + 2}", options, logs / f"worker-{number}")


@contextmanager
def _process(name: str, host: str, arguments: list[str], log: Path) -> Iterator[int]:
    environment = os.environ | {
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": host,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host, *arguments]
    with log.with_suffix(".log").open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, preexec_fn=_end_with_parent)
    try:
        yield process.pid  # of the JVM: spark-class replaces itself by it
    finally:
        # A worker that is killed leaves its executors behind, and one that is not stopped first may start another.
        os.kill(process.pid, signal.SIGSTOP)
        left = [process.pid, *descendants([process.pid])]
        for pid in left:
            end(pid)
        process.wait()


def _end_with_parent() -> None:
    """Called in the new process: a parent that is killed can't clean up, so the kernel does it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end(pid: int) -> None:
    """Kill one process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(roots: list[int] | tuple[int, ...]) -> list[int]:
    """The processes that these have started, and those that they have started."""
    processes = _processes()
    found: list[int] = []
    level = set(roots)
    while level:
        level = {pid for pid, status in processes.items() if status.parent in level}
        found += sorted(level)
    return found


@dataclass(frozen=True)
class _Status:
    state: str
    parent: int


def _processes() -> dict[int, _Status]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            state, parent = status.rpartition(")")[2].split()[:2]
            found[int(folder.name)] = _Status(state, int(parent))
    return found


def _is_computing(pid: int) -> bool:
    status = _processes().get(pid)
    return status is not None and status.state == "R"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _alive_workers(web_page: str) -> int | None:
    try:
        with urllib.request.urlopen(web_page, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # the master is not up yet, or its page is and not yet what it says
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
