"""Every flow on Spark equals the sequential one, whatever the number of tasks and batches."""

import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.engines.spark import admission, wire
from tests.spark.conformance_script import TASKS
from tests.spark.flows import FLOWS, collected, joins, outputs
from tests.spark.in_process import InProcess


@pytest.mark.parametrize(("tasks", "rows_per_batch"), [(1, 1_000_000), (3, 70)])
@pytest.mark.parametrize("name", FLOWS)
def test_output_is_the_sequential_one(name, tasks, rows_per_batch):
    expected = outputs(FLOWS[name], 200, "sequential")
    engine = ps.engines.Spark(parallelism=tasks, rows_per_batch=rows_per_batch)
    assert outputs(FLOWS[name], 200, engine) == expected


@pytest.mark.parametrize("name", FLOWS)
def test_slices_of_a_few_tuples_give_the_same(monkeypatch, name):
    """Without Spark, so that everything is cut many times in little time."""
    monkeypatch.setattr(wire, "ROWS_PER_SLICE", 16)
    monkeypatch.setattr(admission, "_LEAST_PART", 8)
    flow, sinks = collected(FLOWS[name], 200)
    InProcess(tasks=3, rows_per_batch=67).run(flow)
    assert [sink.items for sink in sinks] == outputs(FLOWS[name], 200, "sequential")


@pytest.mark.parametrize("tasks", [3, pytest.param(7, marks=pytest.mark.long)])
def test_what_joins_two_streams_is_the_same_on_any_number_of_tasks(tasks):
    def found(tasks):
        return outputs(joins, 200, ps.engines.Spark(parallelism=tasks, rows_per_batch=70))

    alone = found(1)
    assert found(tasks) == alone
    expected = outputs(joins, 200, "sequential")
    assert [sorted(map(repr, stream)) for stream in alone] == [sorted(map(repr, stream)) for stream in expected]
    assert all(expected)


@pytest.mark.parametrize("name", ["functions", "keyed", "diamond", "loops", "windows"])
def test_nothing_comes_out_as_nothing(name):
    assert outputs(FLOWS[name], 0, ps.engines.Spark()) == outputs(FLOWS[name], 0, "sequential")


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("master", ["local[1]", "local[2]"])
def test_with_any_number_of_tasks_and_rescales_between_batches(master):
    """In a process of its own: a session has one master."""
    root = str(Path(__file__).parents[2])
    call = (
        f"import sys; sys.path.insert(0, {root!r}); from tests.spark.conformance_script import main; main({master!r})"
    )
    ended = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=2900, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(ended.stdout.splitlines()) == len(FLOWS) * len(TASKS)
