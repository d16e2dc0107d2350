"""The same flow on any number of virtual cores: same output, another time."""

import json
import math
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.clock import FakeClock
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.profile import costs_of
from penstock.plan.groups import make_plan
from penstock.runtime.policies import POLICIES
from penstock.runtime.slots import Slots
from tests.spark.flows import FLOWS, outputs

NOT_NUMBERS = ("slice_seconds", "policy_seconds")
IDEAL = Machine(policy_seconds={}, **dict.fromkeys(Machine.__dataclass_fields__.keys() - set(NOT_NUMBERS), 0.0))
"""A machine on which nothing but the work takes time."""


def simulated(cores=1, costs=None, machine=IDEAL, **options):
    return ps.engines.Simulated(cores=cores, costs=costs or {}, machine=machine, **options)


def chain(values, *names, sink=None, **options):
    """One function after the other, none of which does anything."""
    flow = ps.Flow("chain")
    stream = flow.read(values if isinstance(values, ps.sources.Source) else ps.sources.items(values), name="in")
    for name in names:
        stream = stream.map(lambda x: x, name=name, **options)
    stream.write(sink or ps.sinks.null(), name="out")
    return flow


# Order


@pytest.mark.parametrize("cores", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("flow", FLOWS)
def test_every_flow_gives_what_it_always_gives(flow, cores):
    expected = outputs(FLOWS[flow], 60, ps.engines.Sequential())
    for policy in POLICIES:
        engine = simulated(
            cores, machine=Machine(), policy=policy, replicas=min(cores, 5), queue_size=16, gil=cores == 2
        )
        assert outputs(FLOWS[flow], 60, engine) == expected, policy


def test_order_on_a_thousand_cores_where_costs_vary():
    squares = ps.sinks.collect()
    flow = ps.Flow("many")
    numbers = flow.read(ps.sources.items(range(5000)))
    numbers.map(lambda x: x * x, name="square", replicas=1000).write(squares)
    report = flow.run(simulated(1000, {"square": ps.costs.lognormal(0.05, 1.5)}, reorder_size=2000))
    assert squares.items == [x * x for x in range(5000)]
    assert report.elapsed_seconds < 5000 * 0.05 / 50


# Hand-computed schedules: two operators of one and two seconds a tuple, on two cores


def schedule(path):
    """Who worked on what, from when, for how long."""
    return [
        (event["tid"], event["name"], event["ts"] / 1e6, event["dur"] / 1e6)
        for event in json.loads(path.read_text())
        if event["cat"] == "work"
    ]


def test_a_pipeline_on_two_cores_event_by_event(tmp_path):
    flow = chain(range(3), "a", "b")
    engine = simulated(2, {"a": 1.0, "b": 2.0}, fuse=False, queue_size=2, timeline=tmp_path / "timeline.json")
    report = flow.run(engine)
    # The worker that has done a 0 carries it on to b; the other one goes on with a.
    assert schedule(tmp_path / "timeline.json") == [
        (0, "a", 0.0, 1.0),
        (0, "b", 1.0, 2.0),
        (1, "a", 1.0, 1.0),
        (1, "a", 2.0, 1.0),
        (0, "b", 3.0, 2.0),
        (0, "b", 5.0, 2.0),
    ]
    assert report.elapsed_seconds == 7.0
    assert report.simulation.utilisation == pytest.approx(9 / 14)


def test_a_pipeline_on_one_core_event_by_event(tmp_path):
    flow = chain(range(2), "a", "b")
    report = flow.run(simulated(1, {"a": 1.0, "b": 2.0}, fuse=False, queue_size=2, timeline=tmp_path / "t.json"))
    assert schedule(tmp_path / "t.json") == [
        (0, "a", 0.0, 1.0),
        (0, "b", 1.0, 2.0),
        (0, "a", 3.0, 1.0),
        (0, "b", 4.0, 2.0),
    ]
    assert report.simulation.utilisation == 1.0


def test_two_replicas_on_two_cores_event_by_event(tmp_path):
    flow = chain(range(4), "a", replicas=2)
    report = flow.run(simulated(2, {"a": 1.0}, queue_size=2, timeline=tmp_path / "t.json"))
    starts = sorted(start for _, name, start, _ in schedule(tmp_path / "t.json") if name == "a")
    assert starts == [0.0, 0.0, 1.0, 1.0]
    assert report.elapsed_seconds == 2.0


def test_overheads_add_up():
    """One chunk goes through a source, a function and a sink, on one worker."""
    machine = replace(IDEAL, pick_seconds=1e-6, take_seconds=10e-6, give_seconds=100e-6, release_seconds=1000e-6)
    report = chain([1], "a").run(simulated(1, {"a": 0.05}, machine=machine))
    # All three look at their ports and let go: when they begin, when there is something, and when nothing more comes;
    # but the source has it at once. It gives what it has read and that it has ended, the others what they were given.
    looks, gives = 3 + 3 + 2, 2 + 1 + 1
    # Before each look somebody is picked, and in the end nobody.
    expected = 0.05 + (looks + 1) * 1e-6 + looks * 10e-6 + gives * 100e-6 + looks * 1000e-6
    assert report.elapsed_seconds == pytest.approx(expected, rel=1e-9)


# What makes machines fall short


def test_the_gil_lets_one_run_and_what_is_released_runs_beside_it():
    def seconds(released, gil):
        flow = chain(range(400), "a", replicas=4)
        return flow.run(simulated(4, {"a": ps.costs.Cost(0.01, released=released)}, gil=gil)).elapsed_seconds

    assert seconds(0.0, gil=True) == pytest.approx(4.0, rel=0.01)
    assert seconds(0.9, gil=True) == pytest.approx(1.0, rel=0.1)
    assert seconds(0.0, gil=False) == pytest.approx(1.0, rel=0.05)


def test_companions_need_no_gil_but_something_for_every_tuple():
    machine = replace(IDEAL, pickle_seconds=0.001)
    flow = chain(range(400), "a")
    report = flow.run(simulated(4, {"a": 0.01}, machine=machine, gil=True, workers="processes"))
    assert report.elapsed_seconds == pytest.approx(1.1, rel=0.1)
    assert report.simulation.gil_utilisation == pytest.approx(0.4 / report.elapsed_seconds, rel=0.1)


def test_more_threads_than_cores_gain_nothing():
    flow = chain(range(400), "a", replicas=8)
    report = flow.run(simulated(2, {"a": 0.01}, threads=8, machine=replace(IDEAL, context_switch_seconds=0.001)))
    assert report.elapsed_seconds > 2.0
    assert "a core" in report.simulation.waited_seconds


@pytest.mark.parametrize("kind", ["ring", "lock"])
def test_who_adds_to_a_reorder_buffer_waits_for_it_where_it_has_a_lock(kind):
    machine = replace(IDEAL, give_seconds=1e-6, reorder_seconds=0.001)
    engine = simulated(50, {"a": 0.001}, machine=machine, queue_size=100, reorder=kind)
    report = chain(range(4000), "a", replicas=50).run(engine)
    waited = report.simulation.waited_seconds.get("the reorder buffer of a", 0.0)
    if kind == "lock":
        assert waited > 0.1
        assert report.elapsed_seconds > 4000 / 50 * 0.001 * 2
    else:
        assert waited == 0.0
        assert report.elapsed_seconds < 4000 / 50 * 0.001 * 2


def test_who_adds_to_a_reorder_buffer_with_a_lock_waits_for_the_one_that_sends():
    """Each of 100 units takes 10 ms to send: others add to the ring meanwhile, and can't to the other one."""

    def run(kind):
        flow = chain(range(100), "a", replicas=4)
        machine = replace(IDEAL, give_seconds=0.01)
        return flow.run(simulated(4, {"a": 0.02}, machine=machine, queue_size=2, reorder=kind))

    ring, lock = run("ring"), run("lock")
    assert "the reorder buffer of a" not in ring.simulation.waited_seconds
    assert lock.simulation.waited_seconds["the reorder buffer of a"] > 0.05
    assert lock.elapsed_seconds > ring.elapsed_seconds


def test_what_replicas_send_may_cost_by_the_tuple():
    def run(give_tuple_seconds):
        machine = replace(IDEAL, give_tuple_seconds=give_tuple_seconds)
        return chain(range(100), "a", replicas=1).run(simulated(1, {"a": 0.01}, machine=machine)).elapsed_seconds

    def run_replicas(give_tuple_seconds):
        machine = replace(IDEAL, give_tuple_seconds=give_tuple_seconds)
        flow = chain(range(100), "a", replicas=4)
        return flow.run(simulated(4, {"a": 0.01}, machine=machine, reorder="lock")).elapsed_seconds

    assert run(0.02) == run(0.0)
    assert run_replicas(0.02) - run_replicas(0.0) == pytest.approx(100 * 0.02, rel=0.2)


@pytest.mark.parametrize("threading", ["dynamic", "dedicated"])
def test_those_that_write_for_one_reader_wait_for_each_other(threading):
    """Eight functions, a worker for each, and one operator that all of them hand their tuples to."""
    flow = ps.Flow("meeting")
    first, *others = (
        flow.read(ps.sources.items(range(50)), name=f"in {n}").map(lambda x: x, name=f"work {n}") for n in range(8)
    )
    first.merge(*others, name="all").write(ps.sinks.null(), name="out")

    def run(port_seconds):
        machine = replace(IDEAL, port_seconds=port_seconds)
        costs = {f"work {n}": 0.01 for n in range(8)}
        return flow.run(simulated(20, costs, machine=machine, queue_size=4, threading=threading, elastic=False))

    free, held = run(0.0), run(0.005)
    assert not free.simulation.waited_seconds
    assert held.simulation.waited_seconds["the queue of all"] > 0.1
    assert held.elapsed_seconds > free.elapsed_seconds
    # It takes a chunk of two tuples at the most to get there, and one to be taken: no more than that at a time.
    assert held.elapsed_seconds > 400 / 4 * 0.005


@pytest.mark.parametrize("threading", ["dynamic", "dedicated"])
def test_who_writes_for_a_sink_that_takes_waits_for_it_and_the_other_way_round(threading):
    machine = replace(IDEAL, port_seconds=0.001)
    engine = simulated(3, {"a": 0.002, "out": 0.002}, machine=machine, queue_size=4, threading=threading, elastic=False)
    report = chain(range(100), "a").run(engine)
    assert report.simulation.waited_seconds["the queue of out"] > 0.001


class Split(ps.Operator):
    """One tuple to each output in turn."""

    outputs = 12

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            await ctx.emit(value, value % self.outputs)


class InTurn(ps.Operator):
    """One tuple of each input in turn."""

    inputs = 12

    async def process(self, ctx):
        while True:
            for port in ctx.inputs:
                if not await ctx.wait_all({port: 1}):
                    return
                await ctx.emit(port.pop())


def test_no_worker_sleeps_while_many_operators_with_little_to_do_each_are_ready():
    """What keeps a worker for 100 µs is not worth a wake-up; eleven others that wait for it are."""
    flow, sink = ps.Flow("little"), ps.sinks.collect()
    ways = flow.add(Split(), flow.read(ps.sources.items(range(3000)), name="in"))
    done = [way.map(lambda n: n, name=f"busy{number}") for number, way in enumerate(ways)]
    flow.add(InTurn(), *done).write(sink)
    costs = {f"busy{number}": 100e-6 for number in range(12)}
    engine = simulated(8, costs, Machine(), queue_size=16, policy="least-recently-run")
    assert flow.run(engine).elapsed_seconds < 0.06  # 0.0375 is what eight can do at best; it was 0.073
    assert sink.items == list(range(3000))


def test_workers_with_an_operator_of_their_own_share_no_list_of_ready_ones():
    def waited(threading):
        flow = ps.Flow("apart")
        for n in range(8):
            numbers = flow.read(ps.sources.items(range(50)), name=f"in {n}").map(lambda x: x, name=f"work {n}")
            numbers.write(ps.sinks.null(), name=f"out {n}")
        machine = replace(IDEAL, ready_list_seconds=0.001)
        costs = {f"work {n}": 0.001 for n in range(8)}
        report = flow.run(simulated(24, costs, machine=machine, queue_size=2, threading=threading, elastic=False))
        return report.simulation.waited_seconds.get("the list of ready operators", 0.0)

    assert waited("dynamic") > 0.1
    assert waited("dedicated") == 0.0


@pytest.mark.parametrize(("queue_size", "most_seconds"), [(16_384, 0.001), (16, 16 * 16e-6)])
def test_a_source_reads_a_chunk_of_work_at_a_time_and_what_its_readers_can_take(tmp_path, queue_size, most_seconds):
    flow = chain(range(20_000), "a")
    engine = simulated(1, {"in": 16e-6, "a": 1e-6}, queue_size=queue_size, timeline=tmp_path / "t.json")
    report = flow.run(engine)
    spells = [duration for _, name, _, duration in schedule(tmp_path / "t.json") if name == "in"]
    assert max(spells) <= most_seconds + 16e-6
    assert sum(spells) == pytest.approx(20_000 * 16e-6)
    assert report.operators["in"].emitted == report.operators["out"].received == 20_000
    assert report.operators["in"].busy_seconds == pytest.approx(20_000 * 16e-6)


def test_a_source_that_is_cut_and_held_back_gives_all_it_has():
    kept = ps.sinks.collect()
    report = chain(range(500), "a", sink=kept).run(simulated(2, {"in": 0.004}, input_rate=1000, queue_size=3))
    assert kept.items == list(range(500))
    assert report.elapsed_seconds == pytest.approx(2.0, rel=0.01)


# Profiles


class Machinery(FakeClock):
    """A clock on which functions sleep and work."""

    def __init__(self):
        super().__init__()
        self.worked_seconds = 0.0

    def work(self, seconds):
        self.sleep(seconds)
        self.worked_seconds += seconds

    def thread_cpu(self):
        return self.worked_seconds

    process_cpu = thread_cpu


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("replicas", [None, 2])
def test_who_sleeps_is_known_to_need_no_gil(fuse, replicas):
    clock = Machinery()
    flow = ps.Flow("profiled")
    stream = flow.read(ps.sources.items(range(200)), name="in")
    stream = stream.inspect(lambda x: clock.sleep(0.03), name="sleeps", replicas=replicas)
    stream = stream.inspect(lambda x: clock.work(0.01), name="works", replicas=replicas)
    stream.map(lambda x: x, name="nothing", replicas=replicas).write(ps.sinks.null(), name="out")
    costs = costs_of(flow.run(ps.engines.Local(threads=1, clock=clock, fuse=fuse)))
    assert costs["sleeps"].seconds == pytest.approx(0.03, rel=0.05)
    assert costs["sleeps"].released == pytest.approx(1.0, abs=0.05)
    assert costs["works"].seconds == pytest.approx(0.01, rel=0.05)
    assert costs["works"].released == costs["in"].released == costs["out"].released == 0.0


# Time


def test_a_rate_holds_the_input_back():
    report = chain(range(1000), "a").run(simulated(1, {"a": 0.001}, input_rate=100))
    assert report.elapsed_seconds == pytest.approx(10, rel=0.01)
    assert report.latency.p99 == pytest.approx(0.001, rel=0.1)


def test_a_rate_that_is_too_high_makes_tuples_wait():
    report = chain(range(1000), "a").run(simulated(1, {"a": 0.02}, input_rate=100))
    assert report.elapsed_seconds == pytest.approx(20, rel=0.01)
    assert report.latency.p99 == pytest.approx(10, rel=0.1)


def test_an_endless_flow_ends_when_its_time_is_up():
    began = time.perf_counter()
    flow = chain(ps.sources.generate(lambda n: n, rate=ps.rates.steps((0, 10), (100, 20))), "a")
    report = flow.run(simulated(1, {"a": 0.001}, seconds=200))
    assert report.elapsed_seconds == 200
    assert report.operators["a"].received == pytest.approx(3000, abs=3)
    assert time.perf_counter() - began < 60


def test_what_is_awaited_takes_virtual_time_only():
    import asyncio

    async def slow(x):
        await asyncio.sleep(1.0)
        return -x

    flow = ps.Flow("awaited")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(100))).map_async(slow, concurrency=10).write(sink)
    began = time.perf_counter()
    report = flow.run(simulated(1))
    assert sink.items == [-x for x in range(100)]
    assert report.elapsed_seconds == pytest.approx(10, rel=0.01)
    assert time.perf_counter() - began < 5


def test_driver_loops_take_their_time():
    class Passing(ps.Operator):
        async def process(self, ctx):
            async for value in ctx.inputs[0]:
                await ctx.emit(value)

    flow = ps.Flow("loop")
    stream = flow.add(Passing(), flow.read(ps.sources.items(range(100))), name="loop")
    stream.write(ps.sinks.null())
    report = flow.run(simulated(4, {"loop": lambda x: 0.01 if x % 2 else 0.03}))
    assert report.elapsed_seconds == pytest.approx(2.0)
    assert report.operators["loop"].busy_seconds == pytest.approx(2.0)


def test_functions_need_not_be_called():
    def never(x):
        raise AssertionError

    flow = ps.Flow("stand-ins")
    stream = flow.read(ps.sources.items(range(10_000))).filter(never, name="filter").flat_map(never, name="many")
    stream.write(ps.sinks.null(), name="out")
    costs = {"filter": ps.costs.Cost(1e-5, outputs=0.25), "many": ps.costs.Cost(1e-5, outputs=2.5)}
    report = flow.run(simulated(1, costs, compute=False))
    assert report.operators["many"].received == pytest.approx(2500, rel=0.1)
    assert report.operators["out"].received == pytest.approx(6250, rel=0.1)


def test_replicas_and_threads_change_while_it_runs():
    def change(x):
        if x == 100:
            job.rescale("a", 4)
        return x

    flow = ps.Flow("changing")
    sink = ps.sinks.collect()
    stream = flow.read(ps.sources.generate(lambda n: n, count=500, rate=1000), name="in").inspect(change)
    stream.map(lambda x: x, name="a").write(sink)
    job = flow.start(simulated(4, {"a": 0.004}))
    report = job.wait(timeout=60)
    assert sink.items == list(range(500))
    assert report.operators["a"].replicas == 4
    assert report.elapsed_seconds < 1.0  # one replica would need two seconds


def test_a_failure_is_the_same_failure():
    flow = ps.Flow("failing")
    flow.read(ps.sources.items(range(10))).map(lambda x: 1 // (x - 5), name="op").write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match="'op' .* failed on 5: ZeroDivisionError"):
        flow.run(simulated(4, {"op": 1.0}))


# Laws


@st.composite
def pipelines(draw):
    """Costs of some operators, their replicas, and a number of cores."""
    costs = draw(st.lists(st.floats(1e-5, 0.01), min_size=1, max_size=4))
    replicas = draw(st.lists(st.integers(1, 8), min_size=len(costs), max_size=len(costs)))
    return costs, replicas, draw(st.integers(1, 12)), draw(st.booleans())


def run_pipeline(costs, replicas, cores, gil, count=200, **options):
    flow = ps.Flow("law")
    stream = flow.read(ps.sources.items(range(count)), name="in")
    for number, many in enumerate(replicas):
        stream = stream.map(lambda x: x, name=f"op{number}", replicas=many)
    stream.write(ps.sinks.null(), name="out")
    given_costs = {f"op{number}": cost for number, cost in enumerate(costs)}
    return flow.run(ps.engines.Simulated(cores=cores, costs=given_costs, gil=gil, queue_size=64, fuse=False, **options))


@given(pipelines())
@settings(max_examples=60)
def test_nothing_is_faster_than_it_can_be(pipeline):
    costs, replicas, cores, gil = pipeline
    report = run_pipeline(costs, replicas, cores, gil)
    throughput = 200 / report.elapsed_seconds
    nearly = 1 + 1e-9
    assert 0 < report.simulation.utilisation <= nearly
    assert throughput <= cores / sum(costs) * nearly
    assert not gil or throughput <= 1 / sum(costs) * nearly
    for number, (cost, many) in enumerate(zip(costs, replicas, strict=True)):
        assert throughput <= min(many, cores) / cost * nearly
        machine = ps.engines.Machine()
        most = 200 * (cost + machine.cold_seconds) * (1 + machine.crowding_share)
        assert 200 * cost <= report.operators[f"op{number}"].busy_seconds * nearly <= most * nearly**2


@given(st.floats(0.1, 0.9), st.integers(1, 4), st.integers(0, 1000))
@settings(max_examples=6)
def test_littles_law(load, cores, seed):
    """As many tuples are under way as come in a second, times the seconds that each is under way."""
    rate, cost = 50.0, load * cores / 50
    left, has_started = [], threading.Event()
    flow = ps.Flow("little")
    stream = flow.read(ps.sources.generate(lambda n: has_started.wait() and n, count=2000, rate=rate), name="in")
    stream = stream.map(lambda x: x, name="op", replicas=cores)
    stream.write(ps.sinks.call(lambda x: left.append(job._run.clock.now())), name="out")
    # Chunks of one tuple, so that the latency of each is reported.
    job = flow.start(simulated(cores, {"op": ps.costs.exponential(cost)}, seed=seed, queue_size=2))
    has_started.set()
    report = job.wait(timeout=60)
    came, elapsed = [n / rate for n in range(2000)], report.elapsed_seconds
    under_way = (sum(left) - sum(came)) / elapsed  # the integral of came so far, less left so far
    assert report.operators["out"].received == 2000
    assert under_way == pytest.approx(2000 / elapsed * report.latency.mean, rel=0.02)


@given(pipelines(), st.integers(0, 2**32), st.sampled_from(sorted(POLICIES)))
@settings(max_examples=25)
def test_the_same_seed_is_the_same_timeline(tmp_path_factory, pipeline, seed, policy):
    costs, replicas, cores, gil = pipeline
    folder = tmp_path_factory.mktemp("timelines")
    random_costs = [ps.costs.exponential(cost) for cost in costs]

    def timeline(name):
        run_pipeline(random_costs, replicas, cores, gil, 50, seed=seed, policy=policy, timeline=folder / name)
        return (folder / name).read_bytes()

    assert timeline("one") == timeline("two")


def test_another_seed_is_another_timeline(tmp_path):
    for seed in 1, 2:
        run_pipeline([ps.costs.exponential(0.01)], [2], 2, False, 50, seed=seed, timeline=tmp_path / str(seed))
    assert (tmp_path / "1").read_bytes() != (tmp_path / "2").read_bytes()


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cores": 0}, "cores= is a number from 1 up"),
        ({"checkpoint": "somewhere"}, "there is no checkpoint= in a simulation"),
        ({"costs": {"nobody": 1.0}}, "costs= names 'nobody', but flow 'chain' has only in, a, out"),
        ({"costs": "nowhere.json"}, "costs 'nowhere.json': No such file"),
        ({"machine": "nowhere.json"}, "machine 'nowhere.json': No such file"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ps.FlowError, match=message):
        chain([1], "a").run("simulated", **options)


def test_a_machine_can_be_kept(tmp_path):
    machine = Machine(pick_seconds=1.5)
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine
    (tmp_path / "wrong.json").write_text('{"speed": 3}')
    with pytest.raises(ps.FlowError, match="there is no figure 'speed'"):
        Machine.load(tmp_path / "wrong.json")


def test_rates_add_up():
    rates = [
        ps.rates.constant(10),
        ps.rates.steps((0, 5), (10, 20)),
        ps.rates.spikes(1, 50, every=10, lasting=2),
        ps.rates.seasonal(20, 15, period=60),
        ps.rates.trace([(0, 3), (5, 8)], repeat=True),
    ]
    for rate in rates:
        for count in (1, 7, 100, 1234):
            assert rate.count_by(rate.time_of(count)) == pytest.approx(count)
    assert ps.rates.steps((0, 5), (1, 0)).time_of(6) == math.inf


# Micro-batches


@pytest.mark.parametrize("flow", FLOWS)
def test_every_flow_gives_what_it_always_gives_in_batches(flow):
    engine = simulated(7, machine=Machine(), like="spark", batch_rows=7)
    assert outputs(FLOWS[flow], 60, engine) == outputs(FLOWS[flow], 60, ps.engines.Sequential())


def counted(source):
    flow = ps.Flow("batches")
    stream = flow.read(source, name="in").map(lambda x: x, name="work")
    stream.key_by(lambda x: x % 100).count(name="count").write(ps.sinks.null(), name="out")
    return flow


def test_a_batch_takes_what_its_stages_take():
    """Two stages and one to put the counts in order: 100 tuples of 10 ms, then 20 ms each, on two slots."""
    machine = Machine(batch_seconds=1.0, exchange_seconds=0.5, exchanged_tuple_seconds=0.01)
    costs = {"work": 0.01, "count": 0.02}
    report = counted(ps.sources.items(range(100))).run(simulated(2, costs, machine=machine, like="spark"))
    levels = make_plan(counted(ps.sources.items([1])).validate()).levels
    exchanged = [100] * (len(levels) - 1)
    expected = 1.0 + 100 * 0.01 / 2 + 100 * 0.02 / 2 + sum(0.5 + rows * 0.01 / 2 for rows in exchanged)
    (batch,) = report.batches
    assert batch.rows == 100
    assert batch.seconds == pytest.approx(expected, rel=0.2)
    assert report.elapsed_seconds == pytest.approx(batch.seconds)


def test_batches_follow_the_input_and_the_trigger():
    source = ps.sources.generate(lambda n: n, count=1000, rate=100)
    report = counted(source).run(simulated(2, {"work": 0.001}, machine=Machine(), like="spark", trigger=2.0))
    sizes = [batch.rows for batch in report.batches]
    assert sum(sizes) == 1000
    assert all(rows == pytest.approx(200, abs=5) for rows in sizes[1:-1])
    assert report.elapsed_seconds == pytest.approx(10, abs=3)
    assert 1.0 < report.latency.p50 < 4.0


def test_executors_take_their_time_to_come():
    def seconds(wanted):
        flow, is_known = ps.Flow("executors"), threading.Event()
        stream = flow.read(ps.sources.generate(lambda n: n, count=3000, rate=100))
        stream = stream.inspect(lambda x: x == 500 and is_known.wait(10) and setattr(job, "threads", wanted))
        stream.map(lambda x: x, name="work").write(ps.sinks.null())
        job = flow.start(simulated(1, {"work": 0.015}, machine=Machine(), like="spark"))
        is_known.set()
        return job.wait(timeout=60).elapsed_seconds

    assert seconds(1) == pytest.approx(45, rel=0.1)
    assert seconds(4) < 36


def test_operators_see_that_crowded_cores_are_slower():
    """Two operators on two cores, always both at work: each takes half as long again as alone."""
    flow = ps.Flow("crowded")
    for name in ("a", "b"):
        numbers = flow.read(ps.sources.items(range(100)), name=f"in-{name}")
        numbers.map(lambda x: x, name=name).write(ps.sinks.null(), name=f"out-{name}")
    machine = ps.engines.Machine(crowding_share=0.5)
    report = flow.run("simulated", cores=2, costs={"a": 0.01, "b": 0.01}, machine=machine)
    assert report.operators["a"].busy_seconds == pytest.approx(1.5, rel=0.1)
    assert flow.run("simulated", cores=1, costs={"a": 0.01, "b": 0.01}, machine=machine).operators[
        "a"
    ].busy_seconds == pytest.approx(1.0)


def test_who_comes_back_from_c_code_may_find_the_gil_taken():
    """Two workers, each a quarter of its time with the GIL: one time in four they wait for each other."""

    def seconds(cores):
        flow = chain(range(400), "op", replicas=cores)
        costs = {"op": ps.costs.Cost(0.04, released=0.75)}
        machine = replace(IDEAL, gil_move_seconds=0.01, gil_slice_seconds=1e9)
        return flow.run(simulated(cores, costs, machine=machine, gil=True)).operators["op"].busy_seconds

    assert seconds(1) == pytest.approx(16)
    assert seconds(2) == pytest.approx(400 * (0.04 + 0.01 / 4), rel=0.03)


def test_tuples_that_have_waited_long_are_cold():
    """Breadth first, between one operator and the next a thousand others are worked on; depth first, none."""

    class BreadthFirst(ps.SchedulingPolicy):
        def priority(self, operator):
            return -operator.depth

    flow = ps.Flow("cold")
    stream = flow.read(ps.sources.items(range(1000)), name="in")
    stream.map(lambda x: x, name="a").map(lambda x: x, name="b").write(ps.sinks.null(), name="out")

    def seconds(policy):
        machine = replace(IDEAL, cold_seconds=0.001, warm_tuples=1000.0)
        return flow.run(simulated(1, {"a": 0.01, "b": 0.01}, machine=machine, policy=policy, fuse=False)).operators

    hot, cold = seconds("last-in-pipeline"), seconds(BreadthFirst())
    assert hot["b"].busy_seconds == pytest.approx(10.0)
    assert cold["a"].busy_seconds == pytest.approx(10 + 1 - math.log(2), abs=0.01)
    assert cold["b"].busy_seconds == pytest.approx(10.5, abs=0.02)


def test_everyone_who_waits_for_the_gil_costs_something():
    gil = Slots(1, slice_seconds=0.1, switch_seconds=0.01, asking_seconds=0.001)
    assert gil.claim("a", 0.0)
    assert gil.interruption_seconds(0.35) == 0
    assert not gil.claim("b", 0.0)
    assert gil.interruption_seconds(0.35) == pytest.approx(3.5 * 0.01)
    assert not gil.claim("c", 0.0)
    assert not gil.claim("d", 0.0)
    assert gil.interruption_seconds(0.35) == pytest.approx(3.5 * (0.01 + 2 * 0.001))
    assert gil.release("a", 1.0) == ("b", pytest.approx(1.0 + 0.01 + 2 * 0.001))
    assert gil.release("b", 2.0) == ("c", pytest.approx(2.0 + 0.01 + 0.001))
    assert gil.release("c", 3.0) == ("d", pytest.approx(3.0 + 0.01))


def test_tuples_from_another_core_have_a_way_to_go():
    """A thread for each operator: on two cores every tuple is made on one and taken on the other, on one core never."""
    machine = replace(IDEAL, moved_seconds=0.001)

    def busy(cores):
        flow = chain(range(100), "a", "b")
        engine = simulated(cores, dict.fromkeys(("a", "b", "out"), 0.01), machine=machine, threading="dedicated")
        report = flow.run(engine)
        return [report.operators[name].busy_seconds for name in ("a", "b", "out")]

    assert busy(1) == pytest.approx([1.0, 1.0, 1.0])
    assert busy(2) == pytest.approx([1.1, 1.1, 1.1])
