"""Every flow on Spark equals the sequential one, whatever the number of tasks and batches."""

import pytest

import penstock as ps
from tests.spark.flows import FLOWS, outputs


@pytest.mark.parametrize(("tasks", "rows_per_batch"), [(1, 1_000_000), (3, 70)])
@pytest.mark.parametrize("name", FLOWS)
def test_output_is_the_sequential_one(name, tasks, rows_per_batch):
    expected = outputs(FLOWS[name], 200, "sequential")
    engine = ps.engines.Spark(parallelism=tasks, rows_per_batch=rows_per_batch)
    assert outputs(FLOWS[name], 200, engine) == expected


@pytest.mark.parametrize("name", ["functions", "keyed", "diamond", "loops", "windows"])
def test_nothing_comes_out_as_nothing(name):
    assert outputs(FLOWS[name], 0, ps.engines.Spark()) == outputs(FLOWS[name], 0, "sequential")
