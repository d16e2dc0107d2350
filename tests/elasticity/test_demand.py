"""The controller that finds threads and replicas by what has to be done, on scripted signals."""

import random
from dataclasses import replace

import pytest

import penstock as ps
from penstock.elasticity.demand import Demand
from penstock.elasticity.signals import OperatorSignals, Signals


class World:
    """A flow of one operator after another, and what a controller makes of it, period by period."""

    def __init__(self, *costs, cores=16, replicas=1, threads=None, **operators):
        self.costs = {f"op{number}": cost for number, cost in enumerate(costs)}
        self.replicas = dict.fromkeys(self.costs, replicas)
        self.threads = cores if threads is None else threads
        self.cores = cores
        self.operators = operators
        self.controller = Demand()
        self.time = 0.0
        self.moments = []

    def period(self, offered=None, done=None, seconds=0.25, backlog=0, waits=0.0, **others):
        """One in which so many tuples a second came and were done."""
        self.time += seconds
        count = round((offered if done is None else done) * seconds)
        operators, before = {"in": OperatorSignals("in", received=count, emitted=count, is_source=True)}, "in"
        for name, cost in self.costs.items():
            operators[name] = OperatorSignals(
                name,
                received=count,
                emitted=count,
                inputs={before: count},
                busy_seconds=count * (cost + waits),
                cpu_seconds=count * cost,
                replicas=self.replicas[name],
                **{"most_replicas": 1000, **self.operators.get(name, {})},
            )
            before = name
        signals = Signals(
            self.time,
            seconds,
            operators,
            **{
                "threads": self.threads,
                "most_threads": 64,
                "cores": self.cores,
                "offered_rate": offered,
                "backlog": backlog,
                **others,
            },
        )
        decided = self.controller.decide(signals)
        self.controller.accept(decided, signals)
        changes = {(change.what, change.operator): change for change in decided}
        for (what, operator), change in changes.items():
            assert change.before == (self.threads if what == "threads" else self.replicas[operator])
            if what == "threads":
                self.threads = change.after
            else:
                self.replicas[operator] = change.after
        if changes:
            self.moments.append(self.time)
        return {f"{what} {operator}".strip(): change.after for (what, operator), change in changes.items()}

    def pass_by(self, seconds, **period):
        for _ in range(round(seconds / 0.25)):
            self.period(**period)


def test_the_dearest_operator_of_a_fused_loop_leaves_it_where_one_worker_is_too_little():
    """60 and 50 ms of work in each 100: little enough for a worker each, and too much for the one that runs both."""
    fused = {"loop": "op0"}
    world = World(0.006, 0.005, 0.002, op0=fused, op1=fused, op2=fused | {"most_replicas": 1}, threads=2)
    assert world.period(offered=100)["replicas op0"] == 2
    apart = World(0.006, 0.005, 0.002, threads=2)
    assert "replicas op0" not in apart.period(offered=100)
    little = World(0.003, 0.002, 0.002, op0=fused, op1=fused, op2=fused, threads=2)
    assert "replicas op0" not in little.period(offered=100)
    alone = fused | {"most_replicas": 1}
    stuck = World(0.006, 0.005, op0=alone, op1=alone, threads=2)
    assert "replicas op0" not in stuck.period(offered=100)


def test_everything_is_sized_in_one_decision():
    """300 a second for 10 and 20 ms: three and six replicas have work, and half a square root more to spare."""
    world = World(0.01, 0.02, threads=1)
    assert world.period(offered=300) == {"threads": 11, "replicas op0": 4, "replicas op1": 8}
    world.pass_by(60, offered=300)
    assert world.moments == [0.25]


def test_a_quiet_phase_leaves_no_trace():
    world = World(0.01, cores=12)
    world.pass_by(10, offered=5)
    assert world.threads == 1
    world.pass_by(1, offered=1000)
    assert (world.threads, world.replicas["op0"]) == (12, 12)
    assert len(world.moments) <= 4


def test_at_the_limit_all_cores_have_a_thread():
    world = World(0.01, 0.01, cores=8, threads=2)
    world.pass_by(5, offered=2000, done=400, backlog=5000)
    assert world.threads == 8


def test_no_more_replicas_than_there_may_be_threads():
    world = World(0.01, cores=16, threads=8)
    world.pass_by(2, done=800, most_threads=8)
    assert (world.threads, world.replicas) == (8, {"op0": 8})


def test_what_waits_is_done_in_two_seconds():
    world = World(0.01, threads=1)
    assert world.period(offered=100, backlog=1000)["threads"] == 8  # 100 a second, and 500 more


def test_a_big_fall_counts_at_once_and_a_small_one_later():
    world = World(0.01)
    world.pass_by(10, offered=800)
    high = world.threads
    world.pass_by(1.5, offered=650)
    assert world.threads == high
    world.pass_by(2, offered=650)
    assert world.threads < high
    world.pass_by(1.5, offered=50)
    assert world.threads == 1


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_seven_percent_is_no_change(seed):
    draw = random.Random(seed)
    world = World(0.01, 0.03, cores=100)
    for _ in range(60):
        world.pass_by(1, offered=1000 * (1 + draw.uniform(-0.07, 0.07)))
    assert len([time for time in world.moments if time > 2]) <= 1


def test_a_slow_drift_is_followed():
    world = World(0.1)
    offered = 20.0
    while offered < 150:
        world.pass_by(1, offered=offered)
        assert world.threads >= 0.1 * offered
        offered *= 1.04


def test_an_operator_that_can_have_one_replica_bounds_the_others():
    """Read as fast as one likes: the second does 100 a second, so the first needs one replica, not fifteen."""
    world = World(0.01, 0.01, 0.01, op1={"most_replicas": 1})
    world.pass_by(3, done=100)
    assert world.replicas == {"op0": 2, "op1": 1, "op2": 2}
    assert world.threads <= 16


def test_no_more_replicas_than_a_hot_key_leaves_work_for():
    world = World(0.01, op0={"hottest_share": 0.5})
    world.pass_by(1, offered=1000)
    assert world.replicas["op0"] == 3


def test_under_a_gil_nothing_that_computes_gets_more():
    world = World(0.01, cores=4, threads=4)
    gil = {"has_gil": True, "cores_used": 1.0, "system_cpu": 0.25, "gil_seconds": 0.5}
    world.pass_by(5, offered=500, done=100, **gil)
    assert world.replicas["op0"] == 1


def test_those_that_wait_get_as_many_as_wait_at_once():
    """Little's law: 100 a second that wait for 0.3 s are 30 at once."""
    world = World(0.001, cores=2, threads=2)
    world.pass_by(2, offered=100, waits=0.3)
    assert 30 < world.replicas["op0"] <= 36
    assert world.threads >= world.replicas["op0"]


def test_where_nobody_knows_what_is_offered_more_wait_as_long_as_that_pays():
    """The service answers 20 at once; more of them take turns."""
    world = World(0.0001, cores=2, threads=2)
    for _ in range(80):
        workers = min(world.replicas["op0"], world.threads)
        at_once = min(workers, 20)
        world.period(done=at_once / 0.1, waits=0.1 * workers / at_once)
    assert 20 <= world.replicas["op0"] <= 64
    assert len(world.moments) <= 12


def test_a_change_that_takes_its_time_is_not_asked_for_again():
    world = World(0.01)
    first = world.period(offered=800)
    assert "replicas op0" in first
    world.replicas["op0"] = 1  # the operator is still busy with what it has
    assert world.period(offered=800) == {}


def test_a_change_that_another_controller_was_before_is_asked_for_again():
    controller, signals = Demand(), crowded(1.0)
    assert controller.decide(signals)
    assert controller.decide(crowded(1.25))
    controller.accept(controller.decide(crowded(1.5)), crowded(1.5))
    assert not controller.decide(crowded(1.75))


def crowded(time):
    """One thread and one replica, where 100 tuples of 50 ms come in a second."""
    return Signals(
        time,
        1.0,
        {
            "in": OperatorSignals("in", received=100, emitted=100, is_source=True),
            "op": OperatorSignals("op", 100, 100, {"in": 100}, 5.0, 5.0, most_replicas=100),
        },
        threads=1,
        most_threads=64,
        cores=16,
        offered_rate=100.0,
    )


def test_only_what_it_is_asked_to_decide():
    signals = crowded(1.0)
    assert {change.what for change in Demand(of_replicas=False).decide(signals)} == {"threads"}
    assert {change.what for change in Demand(of_threads=False).decide(signals)} == {"replicas"}
    assert {change.what for change in Demand().decide(replace(signals, has_thread_each=True))} == {"replicas"}


# Simulated: the loads on which what was the default stayed far below the best fixed setting


def chain(count, cost, rate, seconds, **options):
    flow = ps.Flow("chain")
    stream = flow.read(ps.sources.generate(lambda n: n, rate=rate), name="in")
    for number in range(count):
        stream = stream.map(lambda n: n, name=f"op{number}")
    stream.write(ps.sinks.null(), name="out")
    costs = {f"op{number}": cost for number in range(count)}
    return flow.run("simulated", costs=costs, seconds=seconds, fuse=False, queue_size=64, compute=False, **options)


def done(report):
    return report.operators["out"].received


@pytest.mark.parametrize(
    "elastic",
    [
        ps.Elastic(period=0.25),
        ps.Elastic(period=1.0),
        ps.Elastic(threads="trend", period=0.25),
        ps.Elastic(threads="trend", replicas="predictive", period=0.25),
    ],
    ids=["demand", "demand, once a second", "trend", "trend and predictive"],
)
def test_it_comes_back_after_a_quiet_phase(elastic):
    rate = ps.rates.steps((0, 10), (10, 400))
    found = chain(12, 0.005, rate, 20, cores=12, elastic=elastic)
    best = chain(12, 0.005, rate, 20, cores=12, threads=12, replicas=12)
    assert done(found) >= 0.85 * done(best)  # of ten seconds, one period to see it
    assert len({one.time for one in found.decisions}) <= 5


def test_equal_operators_in_sequence_all_get_replicas():
    found = chain(2, 0.005, None, 8, cores=12, elastic=ps.Elastic())
    best = chain(2, 0.005, None, 8, cores=12, threads=12, replicas=12)
    assert done(found) >= 0.9 * done(best)


def test_bottleneck_does_not_leave_equal_operators_alone_for_good():
    found = chain(2, 0.005, None, 40, cores=12, elastic=ps.Elastic(threads="fixed", replicas="bottleneck"))
    assert done(found) / 40 > 440
    assert min(found.operators[name].replicas for name in ("op0", "op1")) >= 3
