"""The plant that Spark and its simulation share, on an engine that only keeps what it is told."""

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.engines.batch_meter import SlotSupply
from penstock.engines.batch_plant import BatchPlant, BatchSteering
from penstock.engines.batch_tasks import first_tasks, rescaled_group
from penstock.observe.report import OperatorReport
from penstock.plan.groups import make_plan


class Engine:
    """Counts and slots as a test sets them."""

    def __init__(self, plan, slots=4, most_rows=1000):
        self.tasks = first_tasks(plan, slots)
        self.most_rows = most_rows
        self.supply = SlotSupply(slots, least=1, most=16)
        self.report = {}
        self.came = None
        self.hot = {}
        self.asked = []

    def admit_rows(self, rows):
        self.most_rows = rows

    def slots(self):
        return self.supply

    def set_slots(self, count):
        self.asked.append(count)
        return count <= self.supply.most

    def counts(self):
        return self.report

    def offered(self):
        return self.came

    def hottest(self):
        return self.hot


def flow_of(*names, **options):
    """A source, a function by each name but the last, and a count by key that has the last."""
    flow = ps.Flow("batches")
    stream = flow.read(ps.sources.items([]), name="in")
    for name in names[:-1]:
        stream = stream.map(lambda x: x, name=name, **options)
    stream.key_by(lambda x: x).count(name=names[-1]).write(ps.sinks.null(), name="out")
    return make_plan(flow.validate())


def plant_of(plan, elastic=None, interval_seconds=2.0, **options):
    engine, clock = Engine(plan, **options), FakeClock()
    return BatchPlant(plan, elastic or ps.Elastic(), engine, clock, interval_seconds), engine, clock


def read(rows, **busy):
    """Reports of operators that have all received and emitted so many tuples."""
    return {name: OperatorReport(rows, rows, seconds) for name, seconds in {"in": 0.0, **busy}.items()}


# What is measured


def test_the_operators_of_a_stage_are_one_entry_and_sources_are_entries_of_their_own():
    plant, engine, clock = plant_of(flow_of("first", "second", "counted"))
    engine.report = read(100, first=1.0, second=0.5, counted=0.25)
    clock.move_to(2.0)
    plant.ended(1.0)
    signals = plant.signals()
    assert list(signals.operators) == ["in", "first", "counted", "out"]
    assert [one.name for one in signals.operators.values() if one.is_source] == ["in"]
    first, counted = signals.operators["first"], signals.operators["counted"]
    assert (first.received, first.busy_seconds, dict(first.inputs)) == (100, 1.5, {"in": 100})
    assert (counted.received, counted.busy_seconds, dict(counted.inputs)) == (100, 0.25, {"first": 100})
    assert signals.batches.rows == 100
    assert (signals.time, signals.seconds) == (2.0, 2.0)


def test_a_batch_is_told_from_the_one_before():
    plant, engine, clock = plant_of(flow_of("work", "counted"))
    engine.report, engine.came = read(100, work=1.0, counted=1.0), 150.0
    clock.move_to(2.0)
    plant.signals()
    engine.report, engine.came = read(130, work=1.75, counted=1.5), 230.0
    clock.move_to(6.0)
    signals = plant.signals()
    assert (signals.seconds, signals.offered_rate, signals.backlog) == (4.0, 20.0, 100)
    assert signals.operators["work"].received == 30
    assert signals.operators["work"].busy_seconds == 0.75
    assert signals.batches.rows == 30


def test_what_a_batch_takes_besides_its_work_is_fixed():
    """Work of 2 s in 4 tasks and of 1 s in 1, on 4 slots: a second and a half."""
    plan = flow_of("work", "counted")
    plant, engine, clock = plant_of(plan)
    engine.tasks[plan.group_of("counted").number] = 1
    engine.report = read(100, work=2.0, counted=1.0)
    clock.move_to(2.0)
    plant.ended(1.7)
    assert plant.signals().batches.fixed_seconds == pytest.approx(0.2)


def test_an_operator_may_have_any_name():
    """No name in the signals is the engine's own: each is that of an operator."""
    plan = flow_of("sources", "counted")
    plant, engine, _ = plant_of(plan)
    engine.report = read(70, sources=3.5, counted=0.1)
    signals = plant.signals()
    named = signals.operators["sources"]
    assert (named.is_source, named.received, named.busy_seconds, named.replicas) == (False, 70, 3.5, 4)
    assert {one.name for one in signals.operators.values()} == set(signals.operators)
    assert sum(one.emitted for one in signals.operators.values() if one.is_source) == 70
    assert signals.batches.rows == 70


def test_each_source_has_a_share_of_what_comes():
    flow = ps.Flow("two")
    both = [flow.read(ps.sources.items([]), name=name).map(len, name=f"of-{name}") for name in ("a", "b")]
    both[0].merge(both[1]).write(ps.sinks.null(), name="out")
    plant, engine, _ = plant_of(make_plan(flow.validate()))
    counts = {"a": 30, "of-a": 30, "b": 70, "of-b": 70}
    engine.report = {name: OperatorReport(count, count, 0.01) for name, count in counts.items()}
    operators = plant.signals().operators
    assert {name: operators[name].received for name in counts} == counts
    assert dict(operators["of-b"].inputs) == {"b": 70}


def test_the_share_of_the_hottest_key_is_told():
    plan = flow_of("work", "counted")
    plant, engine, _ = plant_of(plan)
    engine.report, engine.hot = read(100, work=1.0, counted=1.0), {plan.group_of("counted").number: 0.8}
    operators = plant.signals().operators
    assert (operators["work"].hottest_share, operators["counted"].hottest_share) == (0.0, 0.8)


# How many tasks


def test_tasks_begin_as_the_flow_says():
    flow = ps.Flow("given")
    stream = flow.read(ps.sources.items([]), name="in").map(lambda x: x, name="three", replicas=3)
    stream.scan(lambda total, x: total + x, 0, name="one").write(ps.sinks.null(), name="out")
    plan = make_plan(flow.validate())
    assert {name: first_tasks(plan, 8)[plan.group_of(name).number] for name in ("three", "one")} == {
        "three": 3,
        "one": 1,
    }
    plant, _, _ = plant_of(plan)
    bounds = {name: (one.least_replicas, one.most_replicas) for name, one in plant.signals().operators.items()}
    assert bounds["three"] == (3, 3)
    assert bounds["one"] == (1, 1)


def test_without_a_number_there_are_as_many_tasks_as_can_run_at_once():
    plan = flow_of("work", "counted")
    assert set(first_tasks(plan, 8).values()) == {8}


@pytest.mark.parametrize(
    ("operator", "tasks", "message"),
    [("work", 0, "from 1 to 1024"), ("work", True, "from 1 to 1024"), ("nothing", 2, "has no operator 'nothing'")],
)
def test_numbers_that_can_t_be_are_refused(operator, tasks, message):
    with pytest.raises(ps.FlowError, match=message):
        rescaled_group(flow_of("work", "counted"), operator, tasks)


def test_one_sequence_is_one_task():
    flow = ps.Flow("one")
    flow.read(ps.sources.items([]), name="in").scan(lambda total, x: total + x, 0, name="one").write(ps.sinks.null())
    plan = make_plan(flow.validate())
    assert rescaled_group(plan, "one", 1) is plan.group_of("one")
    with pytest.raises(ps.FlowError, match="its stage has one task, not 2"):
        rescaled_group(plan, "one", 2)


# What is changed


def test_replicas_are_the_tasks_of_a_stage():
    plan = flow_of("first", "second", "counted")
    plant, engine, _ = plant_of(plan)
    assert plant.apply(ps.Change("replicas", "first", 4, 2, ""))
    assert engine.tasks[plan.group_of("second").number] == 2
    assert plant.signals().operators["first"].replicas == 2
    with pytest.raises(ps.FlowError, match="'nothing'"):
        plant.apply(ps.Change("replicas", "nothing", 1, 2, ""))


def test_executors_are_asked_for_and_may_not_come():
    plant, engine, _ = plant_of(flow_of("work", "counted"))
    assert plant.apply(ps.Change("executors", "", 4, 8, ""))
    assert not plant.apply(ps.Change("executors", "", 4, 99, ""))
    assert engine.asked == [8, 99]


def test_a_batch_reads_no_more_than_the_user_allows():
    plant, engine, _ = plant_of(flow_of("work", "counted"), most_rows=1000)
    assert not plant.apply(ps.Change("rows", "", 1000, 5000, ""))
    assert plant.apply(ps.Change("rows", "", 1000, 300, ""))
    assert plant.apply(ps.Change("rows", "", 300, 5000, ""))
    assert engine.most_rows == 1000


@pytest.mark.parametrize("change", [ps.Change("threads", "", 4, 8, ""), ps.Change("helping", "in > work", 0, 1, "")])
def test_what_has_no_meaning_in_stages_is_not_done(change):
    plant, _, _ = plant_of(flow_of("work", "counted"))
    assert not plant.apply(change)


def test_the_loop_closes_after_each_batch():
    """Six seconds of work in a batch every two: executors are asked for at once, and stages use them when they come."""
    plan, clock, decisions = flow_of("work", "counted"), FakeClock(), []
    engine = Engine(plan, slots=1)
    steering = BatchSteering(plan, ps.Elastic().for_batches(), engine, clock, 2.0, decisions)
    for batch in (1, 2):
        clock.move_to(6.5 * batch)
        engine.report, engine.came = read(600 * batch, work=6.0 * batch, counted=0.0), 650.0 * batch
        steering.after_batch(6.5)
        engine.supply = SlotSupply(engine.asked[0], least=1, most=16)
    assert [(one.signals["what"], one.time) for one in decisions] == [
        ("executors", 6.5),
        ("rows", 6.5),
        ("replicas", 13.0),
        ("rows", 13.0),
    ]
    assert engine.asked == [decisions[0].after]
    assert engine.tasks[plan.group_of("work").number] == decisions[2].after == engine.asked[0] > 1
