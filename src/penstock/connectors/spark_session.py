"""The only code that starts Spark, and the only words for what can be wrong with Java."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any

from penstock.connectors.spark_cluster import (
    CLIENT_LOGGER,
    check_master,
    executor_ends,
    is_stopped,
    why_no_executors,
)
from penstock.connectors.spark_words import reason_of, text_of
from penstock.errors import FlowError

_OLDEST_JAVA = 17

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
    from pyspark.sql import SparkSession

    active = _active_session()
    if active is not None:
        if master is None or active.sparkContext.master == master:
            return active
        raise FlowError(
            f"engine 'spark': this process already has a Spark session on {active.sparkContext.master!r}, so it can't "
            f"have one on {master!r}; stop that one first (session.stop()), or leave master= out"
        )
    check_java()
    if master is not None:
        check_master(master)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    settings = {"spark.master": master or "local[*,4]", "spark.app.name": "penstock", **_ALWAYS, **conf}
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        _start_java(settings)
        made = builder.getOrCreate()
    except Exception as error:
        raise FlowError(f"engine 'spark': {_why(master, error)}{log_hint()}") from None
    made.sparkContext.setLogLevel("ERROR")
    return made


def _active_session() -> Any:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        active = SparkSession.active()
    except PySparkRuntimeError:
        return None
    if is_stopped(active.sparkContext):
        active.stop()  # on this side, too
        return None
    return active


def _why(master: str | None, error: Exception) -> str:
    """Why there is no session."""
    if "JAVA_GATEWAY_EXITED" in text_of(error):
        words = [line for line in _log.text().splitlines() if "Error" in line]
        return f"Java has ended as soon as it was started: {words[0] if words else reason_of(error)}"
    if master is None or not master.startswith("spark://"):
        return f"Spark can't start: {reason_of(error)}"
    ends = executor_ends(_log.text())
    if ends:
        return f"the master {master!r} was reached, but the executors that it started have ended: {ends[-1]}"
    return f"the master {master!r} can't be used: {reason_of(error)}"


def await_executors(spark: Any, is_wanted: Callable[[], bool]) -> None:
    """`FlowError` where a cluster was reached and gives no executors; Spark itself would wait for ever."""
    words = why_no_executors(spark, is_wanted)
    if words is not None:
        ends = executor_ends(_log.text())
        why = f"; those that it started have ended: {ends[-1]}" if ends else ""
        raise FlowError(f"engine 'spark': {words}{why}{log_hint()}")


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM, with its messages in a file and not on the user's terminal.

    So does PySpark when it makes a session, but with our own standard error, which is also the application's.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    with SparkContext._lock:
        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
            return  # it is running, and writes where its owner has said
        conf = SparkConf()
        for name, value in settings.items():
            conf.set(name, value)
        with _log.open() as file:
            gateway = launch_gateway(conf, {"stderr": file})
        SparkContext._ensure_initialized(gateway=gateway)
    log4j = gateway.jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(CLIENT_LOGGER, log4j.Level.INFO)


class _JavaLog:
    """The file that our JVM writes its messages to: gone when the process ends, unless a message has named it."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._is_told = False

    def open(self) -> IO[bytes]:
        file, self._path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
        atexit.register(self._remove, self._path)
        return os.fdopen(file, "wb")

    def _remove(self, path: str) -> None:
        if not self._is_told:
            with suppress(OSError):
                os.remove(path)

    def tell(self) -> str | None:
        self._is_told = self._path is not None
        return self._path

    def text(self) -> str:
        if self._path is None:
            return ""
        with open(self._path, encoding="utf-8", errors="replace") as file:
            return file.read()


_log = _JavaLog()


def log_hint() -> str:
    """Where Spark's own words are, for the end of a message; the file stays then."""
    path = _log.tell()
    return "" if path is None else f" (Spark's own words are in {path})"


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
