"""Elasticity on Spark, on one machine: tasks follow the work, and what can't be changed says so."""

import time

import pytest

import penstock as ps
from penstock.elasticity.batching import Admitting
from penstock.elasticity.signals import Batches, OperatorSignals, Signals


def run(engine):
    flow, sink = ps.Flow("tasks"), ps.sinks.collect()
    numbers = flow.read(ps.sources.items(range(3000)), name="in").map(lambda n: n + 1, name="add")
    numbers.key_by(lambda n: n % 7).stateful_map(lambda seen, n: (seen + 1, (n, seen)), init=int, name="seen").write(
        sink, name="out"
    )
    return flow.run(engine), sink.items


def test_stages_with_little_to_do_have_one_task():
    """Every stage begins with a task for each core; a few milliseconds of work are not worth two."""
    elastic = ps.Elastic(most_threads=8)
    report, found = run(ps.engines.Spark(rows_per_batch=300, elastic=elastic))
    assert found == run("sequential")[1]
    changes = {one.operator: one.after for one in report.decisions if one.signals.get("what") == "replicas"}
    assert changes["add"] == changes["seen"] == 1
    assert report.operators["seen"].replicas == 1


def slowly(n):
    from pyspark import TaskContext

    time.sleep(0.004)
    return n, TaskContext.get().partitionId()


def test_a_small_batch_of_dear_tuples_is_more_than_one_task():
    flow, sink = ps.Flow("dear"), ps.sinks.collect()
    flow.read(ps.sources.items(range(1200)), name="in").map(slowly, name="slowly").write(sink, name="out")
    flow.run(ps.engines.Spark(parallelism=4))
    assert [n for n, _ in sink.items] == list(range(1200))
    tasks = [task for _, task in sink.items]
    assert [tasks.count(task) for task in range(4)] == [300] * 4


class Looks(ps.Controller):
    """Decides nothing, and keeps what it was shown."""

    def __init__(self):
        self.seen = []

    def __deepcopy__(self, memo):
        return self

    def see(self, signals):
        self.seen.append(signals)

    def decide(self, signals):
        self.seen.append(signals)
        return []


def test_an_operator_may_be_called_sources():
    """Its figures are its own, and what comes in is told all the same."""
    looks, flow = Looks(), ps.Flow("named")
    numbers = flow.read(ps.sources.items(range(600)), name="in").map(lambda n: n + 1, name="sources")
    numbers.write(ps.sinks.null(), name="out")
    flow.run(ps.engines.Spark(rows_per_batch=300, elastic=ps.Elastic(replicas=looks)))
    assert sum(signals.operators["in"].emitted for signals in looks.seen) == 600
    for signals in looks.seen:
        assert [one.name for one in signals.operators.values() if one.is_source] == ["in"]
        assert signals.operators["sources"].received == signals.batches.rows
        assert signals.operators["sources"].busy_seconds > 0


def test_a_master_without_executors_says_so():
    report, _ = run(ps.engines.Spark(rows_per_batch=1500, elastic=ps.Elastic(most_threads=8)))
    (told,) = [one for one in report.decisions if one.controller == "executors"]
    assert "has one process, and no executors beside it" in told.reason
    assert not told.is_applied


def test_numbers_that_are_given_stay():
    report, _ = run(ps.engines.Spark(rows_per_batch=300, parallelism=2))
    assert report.decisions == ()
    assert report.operators["seen"].replicas == 2


@pytest.mark.parametrize(("most_rows", "after"), [(1_000_000, 16_000), (15_000, None), (4000, 16_000)])
def test_a_batch_reads_what_its_interval_can_hold(most_rows, after):
    """Half a millisecond a row, four slots, and two of three seconds to use them."""
    one = OperatorSignals("op", received=1000, busy_seconds=0.5, cpu_seconds=0.5)
    signals = Signals(0.0, 3.0, {"op": one}, threads=4, batches=Batches(3.0, 1.0, 1000, most_rows=most_rows))
    assert [change.after for change in Admitting().decide(signals)] == ([] if after is None else [after])
