"""The only code that makes Spark sessions, and the only words for what can be wrong with Java and masters."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from penstock.errors import FlowError

_OLDEST_JAVA = 17
_CONNECT_SECONDS = 10.0

# What makes a run right, or keeps Spark's noise away from the user; a user's own `conf` goes on top.
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-Xss16m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.master.rest.enabled": "false",
}


def session(master: str | None = None, conf: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The process's session where there is one, or a new one on loopback."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    with suppress(PySparkRuntimeError):
        active = SparkSession.active()
        if master is None or active.sparkContext.master == master:
            return active
        raise FlowError(
            f"engine 'spark': this process already has a Spark session on {active.sparkContext.master!r}, so it can't "
            f"have one on {master!r}; stop that one first (session.stop()), or leave master= out"
        )
    check_java()
    _check_master(master)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master or "local[*,4]").appName("penstock")
    for name, value in {**_ALWAYS, **conf}.items():
        builder = builder.config(name, value)
    try:
        with _noise_in_a_file() as log:
            made = builder.getOrCreate()
    except Exception as error:
        where = f"the master {master!r} can't be reached" if master else "Spark can't start"
        raise FlowError(f"engine 'spark': {where}: {reason_of(error)} (Spark's own words are in {log})") from None
    made.sparkContext.setLogLevel("OFF")
    # What is raised in a batch comes out of the run; py4j would also log it, page by page.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return made


@contextmanager
def _noise_in_a_file() -> Iterator[str]:
    """What is started meanwhile, the JVM, writes its messages to a file and not to the user's terminal."""
    sys.stderr.flush()
    file, path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield path
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def check_java() -> None:
    """`FlowError` where there is no Java, or one that is too old for Spark."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = f"install Java {_OLDEST_JAVA} or later and set JAVA_HOME, or run the flow on 'local'"
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME={home!r} has none" if home else "there is none on the PATH"
        raise FlowError(f"engine 'spark' needs Java, and {where}; {advice}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if found:
        version = int(found[2]) if found[1] == "1" and found[2] else int(found[1])
        if version < _OLDEST_JAVA:
            raise FlowError(f"engine 'spark' needs Java {_OLDEST_JAVA}, and {java} is Java {version}; {advice}")


def _check_master(master: str | None) -> None:
    """`FlowError` where nobody answers at any address of a standalone master; Spark would try for over a minute."""
    if master is None or not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(str(error))
        else:
            return
    raise FlowError(f"engine 'spark': the master {master!r} can't be reached: {reasons[0]}; is it running there?")


def reason_of(error: BaseException) -> str:
    """What happened, in one line of Spark's words: the last cause that Java names, or the end of a Python traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1][:500]
    return lines[-1 if "Traceback" in lines[0] else 0][:500]
