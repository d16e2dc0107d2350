"""On Spark too: what an operator raises, whatever it is, is told; and a stuck task does not hold `stop`."""

import os
import threading
from pathlib import Path

import pytest

import penstock as ps
from tests.engines.test_raising import OPERATORS, RAISED, made, raising
from tests.waiting import until

FEW = [("map", "SystemExit"), ("stateful_map", "GeneratorExit"), ("loop", "Mute")]


def check(operator, name):
    with pytest.raises(ps.OperatorError) as caught:
        made(operator, raising(name)).run(ps.engines.Spark(parallelism=2))
    told = str(caught.value)
    assert "op'" in told or "'op" in told
    assert name in told or "RuntimeError" in told
    assert len(told) < 5000


@pytest.mark.parametrize(("operator", "name"), FEW)
def test_what_an_operator_raises_is_told(operator, name):
    check(operator, name)


def test_an_error_of_our_tree_that_users_raise_is_the_operators():
    def fail(*_):
        raise ps.FlowError("their own")

    with pytest.raises(ps.OperatorError, match="'op' .* failed on 0: FlowError: their own") as caught:
        made("stateful_map", fail).run(ps.engines.Spark(parallelism=2))
    assert isinstance(caught.value.__cause__, ps.FlowError)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("operator", OPERATORS)
def test_whatever_an_operator_raises_is_told(operator):
    for name in RAISED:
        check(operator, name)


def test_runs_leave_no_thread_and_no_connection_behind():
    def run_and_count():
        flow = ps.Flow("short")
        flow.read(ps.sources.items(range(6))).map(str).write(ps.sinks.null())
        flow.run(ps.engines.Spark(parallelism=1))
        return set(threading.enumerate())

    run_and_count()  # a session has threads of its own
    before = run_and_count()
    for _ in range(3):
        run_and_count()
    until(lambda: len(set(threading.enumerate()) - before) == 0, "the end of the threads that Spark has called on")


def test_a_stuck_task_does_not_hold_stop(tmp_path):
    folder = str(tmp_path)

    def op(x):
        if x == 3:
            Path(folder, str(os.getpid())).touch()
            threading.Event().wait()  # for ever
        return x

    flow = ps.Flow("stuck")
    flow.read(ps.sources.items(range(6))).map(op, name="op").write(ps.sinks.null())
    job = flow.start(ps.engines.Spark(parallelism=2))
    until(lambda: list(tmp_path.iterdir()), "a task that is stuck")
    job.stop(drain=False)
    assert not job.is_running
    until(lambda: not any(Path("/proc", file.name).exists() for file in tmp_path.iterdir()), "the worker's end")
