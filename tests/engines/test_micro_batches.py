"""Simulated batches take as long as their tasks need on the slots that there are."""

import queue
from dataclasses import replace

import pytest

import penstock as ps
from penstock.engines import Machine
from penstock.engines.simulated.stages import GroupWork, stage_seconds

FREE = replace(Machine(), batch_seconds=0.0, exchange_seconds=0.0, exchanged_tuple_seconds=0.0)
"""A machine on which a batch takes nothing but the work of its operators."""


def batches(cores=4, costs=None, machine=FREE, **options):
    return ps.engines.Simulated(
        like="spark", cores=cores, costs={"work": 0.01} if costs is None else costs, machine=machine, **options
    )


def made(add, source=None):
    """A flow of one operator; without a source of its own 400 tuples, which are four seconds of work."""
    flow = ps.Flow("batches")
    add(flow.read(source or ps.sources.items(range(400)), name="in")).write(ps.sinks.null(), name="out")
    return flow


def a_hundred_each_second():
    """With `trigger=1.0`, a batch of one tuple and four of a hundred."""
    return ps.sources.generate(lambda n: n, count=401, rate=100)


def mapped(stream, **options):
    return stream.map(lambda x: x, name="work", **options)


# Stages


@pytest.mark.parametrize(
    ("groups", "slots", "seconds"),
    [
        ([GroupWork(8.0, 4)], 4, 2.0),
        ([GroupWork(8.0, 4)], 1, 8.0),
        ([GroupWork(8.0, 2)], 4, 4.0),
        ([GroupWork(8.0, 1)], 64, 8.0),
        ([GroupWork(10.0, 5)], 4, 4.0),  # the fifth task has three slots beside it that are idle
        ([GroupWork(4.0, 2), GroupWork(4.0, 2)], 4, 2.0),
        ([GroupWork(3.0, 1), GroupWork(6.0, 6)], 3, 3.0),
        ([GroupWork(6.0, 6), GroupWork(3.0, 1)], 3, 5.0),  # tasks start in order, the longest last
        ([GroupWork(0.0, 1000)], 2, 0.0),
        ([], 2, 0.0),
    ],
)
def test_a_stage_takes_as_long_as_its_tasks_on_the_slots(groups, slots, seconds):
    assert stage_seconds(groups, slots) == pytest.approx(seconds)


def keyed(stream):
    return stream.key_by(lambda x: x % 100).stateful_map(lambda n, x: (n + 1, x), init=int, name="work")


def skewed(count):
    """80% of them have one key."""
    return ps.sources.items([0 if number % 5 else number * 7 for number in range(count)])


def test_the_task_of_a_hot_key_is_what_a_stage_waits_for():
    report = made(keyed, skewed(400)).run(batches())
    assert 0.8 * 4.0 <= report.elapsed_seconds < 0.95 * 4.0
    assert made(keyed, skewed(400)).run(batches(replicas=1)).elapsed_seconds == pytest.approx(4.0)


def test_buckets_move_to_tasks_that_have_room():
    """Thirty keys: by the second batch, each task has about as many tuples."""
    source = ps.sources.generate(lambda n: n % 30, count=1501, rate=300)
    report = made(keyed, source).run(batches(trigger=1.0))
    seconds = [batch.seconds for batch in report.batches if batch.rows == 300]
    assert max(seconds[1:]) < 1.1 * 300 * 0.01 / 4
    assert seconds[0] > 1.1 * seconds[1]


# What the flow says


@pytest.mark.parametrize(("replicas", "seconds"), [(None, 1.0), (1, 4.0), (2, 2.0), (4, 1.0), (5, 1.6)])
def test_replicas_that_are_given_are_the_tasks_of_a_stage(replicas, seconds):
    report = made(lambda stream: mapped(stream, replicas=replicas)).run(batches())
    assert report.elapsed_seconds == pytest.approx(seconds)
    assert report.operators["work"].replicas == (replicas or 4)


def test_replicas_of_a_keyed_operator_are_the_tasks_of_its_stage():
    def counted(stream):
        return stream.key_by(lambda x: x).stateful_map(lambda n, x: (n, x), init=int, name="work", replicas=2)

    assert made(counted).run(batches()).elapsed_seconds == pytest.approx(2.0, rel=0.1)


def test_one_sequence_is_one_task():
    flow = made(lambda stream: stream.scan(lambda total, x: (total + x, total), 0, name="work"))
    report = flow.run(batches(cores=64))
    assert report.elapsed_seconds == pytest.approx(4.0)
    assert report.operators["work"].replicas == 1


def test_what_comes_to_one_task_is_exchanged_by_one_task():
    flow = made(lambda stream: stream.scan(lambda total, x: (total + x, total), 0, name="work"))
    report = flow.run(batches(costs={}, machine=replace(FREE, exchanged_tuple_seconds=0.01)))
    assert report.elapsed_seconds == pytest.approx(4.0)


@pytest.mark.parametrize(("replicas", "seconds"), [(1, 4.0), (2, 2.0)])
def test_the_engine_s_replicas_are_for_stages_that_don_t_say_how_many(replicas, seconds):
    assert made(mapped).run(batches(replicas=replicas)).elapsed_seconds == pytest.approx(seconds)
    fixed = made(lambda stream: mapped(stream, replicas=4))
    assert fixed.run(batches(replicas=replicas)).elapsed_seconds == pytest.approx(1.0)


def test_a_report_says_how_busy_operators_would_have_been():
    assert made(mapped).run(batches()).operators["work"].busy_seconds == pytest.approx(4.0)


# What is decided


class Tasks(ps.Controller):
    """Wants so many tasks for one operator, whatever it sees, and keeps that."""

    name = "tasks"

    def __init__(self, operator, tasks):
        self.operator, self.tasks, self.seen = operator, tasks, []

    def __deepcopy__(self, memo):
        return self

    def see(self, signals):
        self.seen.append(signals)

    def decide(self, signals):
        self.seen.append(signals)
        one = signals.operators[self.operator]
        return [ps.Change("replicas", one.name, one.replicas, self.tasks, "a test wants it")]


def test_tasks_that_are_decided_make_the_next_batches_faster():
    wants = Tasks("work", 4)
    engine = batches(replicas=1, trigger=1.0, elastic=ps.Elastic(replicas=wants))
    report = made(mapped, a_hundred_each_second()).run(engine)
    (decision,) = [one for one in report.decisions if one.signals["what"] == "replicas"]
    assert (decision.operator, decision.before, decision.after) == ("work", 1, 4)
    assert [batch.seconds for batch in report.batches] == pytest.approx([0.01, 1.0, 0.25, 0.25, 0.25])
    assert [one.operators["work"].replicas for one in wants.seen] == [1, 1, 4, 4, 4]


def test_an_operator_may_be_called_sources():
    wants = Tasks("sources", 2)
    flow = made(lambda stream: stream.map(lambda x: x, name="sources"), a_hundred_each_second())
    flow.run(batches(costs={"sources": 0.01}, trigger=1.0, elastic=ps.Elastic(replicas=wants)))
    for signals in wants.seen[1:]:
        named = signals.operators["sources"]
        assert not named.is_source
        assert named.busy_seconds == pytest.approx(1.0)
        assert [one.name for one in signals.operators.values() if one.is_source] == ["in"]
        assert signals.operators["in"].emitted == signals.batches.rows == 100


def run_and_call(add, engine, at, call, source=None):
    """Run a flow, and call something with its job when a tuple comes by."""
    jobs = queue.Queue()

    def look(x):
        if x == at:
            call(jobs.get(timeout=60))

    job = made(lambda stream: add(stream.inspect(look, name="look")), source).start(engine)
    jobs.put(job)
    return job.wait(timeout=60)


def test_a_job_s_tasks_can_be_changed():
    """In the middle of the third batch, and from the fourth on."""
    engine = batches(trigger=1.0)
    report = run_and_call(mapped, engine, 150, lambda job: job.rescale("work", 1), a_hundred_each_second())
    assert [batch.seconds for batch in report.batches] == pytest.approx([0.0025, 0.25, 0.25, 1.0, 1.0])
    assert report.operators["work"].replicas == 1


def test_one_sequence_stays_one_task():
    refused = []

    def rescale(job):
        with pytest.raises(ps.FlowError) as error:
            job.rescale("work", 2)
        refused.append(str(error.value))

    def scanned(stream):
        return stream.scan(lambda total, x: (total + x, total), 0, name="work")

    report = run_and_call(scanned, batches(), 0, rescale)
    assert "its stage has one task, not 2" in refused[0]
    assert report.operators["work"].replicas == 1


def test_tasks_follow_the_executors_that_are_decided():
    """Three seconds of work come in a second, and there is one slot: after some batches they keep up."""
    source = ps.sources.generate(lambda n: n, rate=300)
    elastic = ps.Elastic(most_threads=16)
    report = made(mapped, source).run(batches(cores=1, trigger=2.0, seconds=200, elastic=elastic))
    assert report.operators["work"].replicas == report.simulation.cores >= 3
    assert report.batches[-1].seconds < 2.0
    # Asked for once, with what will be late when they come; given back once, when nothing is late any more.
    asked = [one.after for one in report.decisions if one.signals["what"] == "executors"]
    given = [one.after for one in report.decisions if one.operator == "work"]
    assert given == asked
    assert len(asked) == 2


def in_seasons(elastic, seconds=300.0):
    """200 tuples of 5 ms come in a second, and 2,000 in each of the last 15 of every minute."""
    rate = ps.rates.spikes(200, 2000, every=60, lasting=15)
    engine = batches(2, {"work": 0.005}, Machine(), trigger=1.0, seconds=seconds, elastic=elastic)
    return rate, made(mapped, ps.sources.generate(lambda n: n, rate=rate)).run(engine)


def test_executors_are_there_before_a_season_needs_them():
    """From the fourth peak on; and a clairvoyant would ask for 2 and 13 slots, 7.4 on average."""
    rate, report = in_seasons(ps.Elastic(most_threads=16))
    since, read, began, latencies = 180.0, 0, 0.0, []
    for batch in report.batches:
        came = (rate.time_of(number) for number in range(read, read + batch.rows))
        latencies += [began + batch.seconds - time for time in came if time > since]
        read, began = read + batch.rows, began + max(1.0, batch.seconds)
    latencies.sort()
    assert latencies[len(latencies) // 2] < 1.3
    assert latencies[int(len(latencies) * 0.99)] < 2.0
    asked = [(one.time, one.after) for one in report.decisions if one.signals["what"] == "executors"]
    ends = [*(time for time, _ in asked[1:]), 300.0]
    held = sum(max(0.0, end - max(since, time)) * slots for (time, slots), end in zip(asked, ends, strict=True))
    assert held / (300 - since) < 1.3 * 7.4
    moments = {one.time for one in report.decisions if one.time > since}
    assert len(moments) <= 2 * 4  # twice for each change of load


def test_what_is_late_is_done_in_the_time_that_is_given():
    asked = []
    for seconds in (None, 60.0):
        _, report = in_seasons(ps.Elastic(most_threads=64, drain_seconds=seconds), seconds=60.0)
        asked.append(max(one.after for one in report.decisions if one.signals["what"] == "executors"))
    assert asked[0] > 2 * asked[1]


def test_numbers_rest_where_the_load_does():
    """Work for three tasks and a bit: a batch is some milliseconds longer or shorter, and nothing changes any more."""
    source = ps.sources.generate(lambda n: n, rate=1000)
    drawn = ps.costs.uniform(0.0, 0.00031)
    report = made(mapped, source).run(batches(4, {"work": drawn}, Machine(), trigger=1.0, seconds=120, elastic=True))
    assert [one for one in report.decisions if one.time > 10.0] == []
