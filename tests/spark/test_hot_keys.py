"""Buckets of keys go to the tasks that have room for them, batch by batch; states and output stay what they were."""

import pytest

import penstock as ps
from penstock.engines.batch_shares import BucketShares
from penstock.engines.spark.batches import BatchRunner
from penstock.ordering.keys import key_hash

from .in_process import InProcess

_BUCKETS = 16
"""Of a flow that runs in process."""
_TASKS = 4


@pytest.fixture
def received(monkeypatch):
    """How many tuples each task of the keyed stage got, batch by batch."""
    found = []
    count = BatchRunner._count

    def counted(self, reports):
        counts = [report.counts["seen"][0] for report in reports if "seen" in report.counts]
        if any(counts):
            found.append(counts)
        count(self, reports)

    monkeypatch.setattr(BatchRunner, "_count", counted)
    return found


def keys_in(buckets):
    """A key in each of these buckets."""
    return [next(key for key in range(10_000) if key_hash(key) % _BUCKETS == bucket) for bucket in buckets]


def seen(values, sink):
    flow = ps.Flow("hot")
    stream = flow.read(ps.sources.items(values), name="in")
    stream.key_by(lambda key: key).stateful_map(lambda n, key: (n + 1, (key, n)), init=int, name="seen").write(sink)
    return flow


def outputs(values, engine):
    sink = ps.sinks.collect()
    engine.run(seen(values, sink)) if isinstance(engine, InProcess) else seen(values, sink).run(engine)
    return sink.items


def test_keys_that_one_task_would_have_are_shared_out(received):
    values = keys_in(range(4)) * 500  # the first task's, if buckets were shared out by number
    assert outputs(values, InProcess(_TASKS, rows_per_batch=500)) == outputs(values, "sequential")
    assert max(received[0]) == 500
    assert all(max(batch) == 125 for batch in received[1:])


def test_a_hot_key_is_alone_in_its_task(received):
    hot, *others = keys_in(range(_BUCKETS))
    values = [hot if number % 5 else others[number % len(others)] for number in range(4000)]  # 80% of them
    assert outputs(values, InProcess(_TASKS, rows_per_batch=500)) == outputs(values, "sequential")
    assert all(max(batch) == 400 for batch in received[1:])
    assert all(sorted(batch)[-2] < 50 for batch in received[1:])


def test_states_are_found_where_their_buckets_are_when_a_run_goes_on(received, tmp_path):
    values = keys_in(range(4)) * 250
    for end in (500, 1000):
        sink = ps.sinks.collect()
        engine = InProcess(_TASKS, rows_per_batch=100, checkpoint=str(tmp_path / "state"))
        engine.run(seen(values[:end], sink), closes=False)
    assert sink.items == outputs(values, "sequential")
    assert {max(batch) for batch in received} == {100, 25}  # each run's first batch, and the others


def test_owners_stay_while_they_are_good_enough():
    shares = BucketShares(8)
    shares.add([10, 10, 10, 10, 1, 1, 1, 1])
    first = list(shares.owners(2))
    for noise in range(20):
        shares.add([10 + noise % 2, 10, 10, 10 - noise % 2, 1, 1, 1, 1])
        assert shares.owners(2) == first


def test_the_hottest_share_is_told():
    shares = BucketShares(8)
    assert shares.hottest == 0.0
    shares.add([80, 5, 5, 5, 5, 0, 0, 0])
    assert shares.hottest == pytest.approx(0.8)
    assert shares.busiest_share(4) == pytest.approx(0.8)
