"""Whether a cluster can run anything: the master is reached, and executors come. The only words for when they don't."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

from penstock.clock import SystemClock
from penstock.errors import FlowError

CLIENT_LOGGER = "org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint"
"""Tells, at INFO, what becomes of each executor: nothing else says why they end."""
SECONDS_SETTING = "spark.penstock.executorSeconds"
_CONNECT_SECONDS = 10.0
_EXECUTOR_SECONDS = 60.0
_POLL_SECONDS = 0.05
_ENDED = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED|LOST|KILLED)(?: \((.*)\))?")


def check_master(master: str) -> None:
    """`FlowError` where no address answers of a standalone master; Spark would try for over a minute."""
    if not master.startswith("spark://"):
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


def executor_ends(log: str) -> list[str]:
    """How executors have ended, in the words of their workers.

    >>> executor_ends("INFO …: Executor updated: app-1/0 is now EXITED (Command exited with code 1)")
    ['Command exited with code 1']
    """
    return [found[1] or "no reason was given" for found in _ENDED.finditer(log)]


def is_stopped(context: Any) -> bool:
    """Whether this Spark was stopped: on this side, in the JVM, or from the master."""
    return context._jsc is None or bool(context._jsc.sc().isStopped())


def why_no_executors(spark: Any, is_wanted: Callable[[], bool]) -> str | None:
    """Wait for a first executor; if none comes in time, say so. `None` also where there is nothing to wait for."""
    context = spark.sparkContext
    seconds = _limit(context)
    if seconds is None:
        return None
    clock = SystemClock()
    deadline = clock.now() + seconds
    while clock.now() < deadline and is_wanted():
        if is_stopped(context):
            return f"the master {context.master!r} was reached, and has given the application up"
        if not context._jsc.sc().getExecutorIds().isEmpty():
            return None
        clock.sleep(_POLL_SECONDS)
    if not is_wanted():
        return None
    return (
        f"the master {context.master!r} was reached, but in {seconds:.0f} seconds it has given the application no "
        f"executor ({_offer(context)}); see what it has to give, ask for less with spark.executor.memory and "
        f"spark.executor.cores, or wait longer with {SECONDS_SETTING}"
    )


def _limit(context: Any) -> float | None:
    """How long to wait; a resource manager with a queue gets as long as it takes, unless a setting says otherwise."""
    conf = context.getConf()
    if context.master.startswith("local") and "-cluster" not in context.master:
        return None
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return None  # they come with the first task
    said = conf.get(SECONDS_SETTING)
    if said is None:
        return _EXECUTOR_SECONDS if context.master.startswith(("spark://", "local-cluster")) else None
    try:
        return float(said)
    except ValueError:
        raise FlowError(f"engine 'spark': {SECONDS_SETTING} is a number of seconds, not {said!r}") from None


def _offer(context: Any) -> str:
    """What a standalone master has, and what an executor of this application needs."""
    conf = context.getConf()
    cores = conf.get("spark.executor.cores")
    needs = f"an executor needs {conf.get('spark.executor.memory', '1g')} of memory" + (
        f" and {cores} cores" if cores else ""
    )
    try:
        workers = _workers(context)
    except Exception:  # only a standalone master says that, and only this version of Spark asks like that
        return needs
    if not workers:
        return "it has no workers"
    return f"{needs}, and its workers have free: {'; '.join(workers)}"


def _workers(context: Any) -> list[str]:
    jvm, spark = context._jvm, context._jsc.sc()
    host, _, port = context.master.removeprefix("spark://").split(",")[0].rpartition(":")
    address = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
    master = spark.schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
    request = jvm.java.lang.Class.forName("org.apache.spark.deploy.DeployMessages$RequestMasterState$")
    anything = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
    state = master.askSync(request.getField("MODULE$").get(None), anything)
    alive = [worker for worker in state.workers() if worker.state().toString() == "ALIVE"]
    return [f"{worker.coresFree()} cores and {worker.memoryFree()} MB" for worker in alive]
