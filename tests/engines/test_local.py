"""What only the local engine does: bounded queues, stops, preemption, policies, threads, fusion, failures in order."""

import asyncio
import sys
import threading

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.runtime.policies import POLICIES
from penstock.testing import check_engine, hostile, shuffled
from tests.helpers import outputs


class Gate:
    """Holds whoever passes until it is opened."""

    def __init__(self):
        self.reached = threading.Event()
        self.is_open = threading.Event()

    def __call__(self, value):
        self.reached.set()
        assert self.is_open.wait(20)
        return value


def endless(flow):
    return flow.read(ps.sources.generate(lambda i: i), name="numbers")


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("threads", range(1, 9))
def test_every_policy_on_any_number_of_threads(policy, threads):
    check_engine(lambda: ps.engines.Local(threads=threads, policy=policy, queue_size=8))


def test_sources_take_turns_under_the_default_policy():
    """An endless flow beside a short one, on one thread: the short one comes to its end."""
    for place in (0, 1):
        done = threading.Event()
        flow = ps.Flow("test")

        def short(flow=flow, done=done):
            flow.read(ps.sources.items(range(3))).map(lambda x: x == 2 and done.set()).write(ps.sinks.null())

        if place == 0:
            short()
        endless(flow).map(lambda x: x).write(ps.sinks.null())
        if place == 1:
            short()
        job = flow.start(ps.engines.Local(threads=1))
        assert done.wait(20)
        job.stop(drain=False)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_under_many_interleavings(policy):
    for seed in range(10):
        check_engine(lambda seed=seed: hostile(seed, policy=policy))


@pytest.mark.parametrize("model", ["dynamic", "dedicated", "manual"])
def test_every_threading_model(model):
    check_engine(lambda: ps.engines.Local(threading=model))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_schedules():
    policies = sorted(POLICIES)
    for seed in range(2000):
        check_engine(lambda seed=seed: hostile(seed, workers=1 + seed % 5, policy=policies[seed % len(policies)]))


class Lag:
    """How many tuples are between where they come from and a slow sink, at the most."""

    def __init__(self, clock):
        self._clock = clock
        self._came = 0
        self._went = 0
        self.most = 0

    def came(self, value):
        self._came += 1
        return value

    def went(self, value):
        self.most = max(self.most, self._came - self._went)
        self._went += 1
        self._clock.sleep(1e-5)


def test_a_slow_sink_holds_the_source_back():
    clock = FakeClock()
    lag = Lag(clock)
    flow = ps.Flow("test")
    numbers = flow.read(ps.sources.generate(lag.came, count=40_000))
    numbers.map(lambda x: x).write(ps.sinks.call(lag.went))
    flow.run(shuffled(4, workers=4, clock=clock, queue_size=100))
    # two queues, a chunk in the hands of each of three operators, and what the source has read ahead
    assert 100 < lag.most <= 2 * 100 + 3 * 100 + 2 * 8192


def test_draining_lets_everything_out():
    gate = Gate()
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    endless(flow).map(lambda x: x + 1).inspect(gate).write(result)
    job = flow.start(ps.engines.Local(threads=2))
    assert gate.reached.wait(10)
    gate.is_open.set()
    job.stop()
    report = job.wait()
    assert result.items == list(range(1, len(result.items) + 1))
    assert len(result.items) == report.operators["numbers"].emitted


def test_stopping_at_once_leaves_no_thread():
    gate = Gate()
    flow = ps.Flow("test")
    endless(flow).inspect(gate).write(ps.sinks.null())
    job = flow.start(ps.engines.Local(threads=3))
    assert gate.reached.wait(10)
    stopper = threading.Thread(target=job.stop, kwargs={"drain": False})
    stopper.start()
    gate.is_open.set()
    stopper.join(10)
    assert not stopper.is_alive()
    assert not job.is_running


def test_a_greedy_loop_does_not_starve_the_rest():
    """One thread, an endless loop, and a finite flow beside it that must come to its end."""

    class Greedy(ps.Operator):
        inputs = 0

        async def process(self, ctx):
            while not ctx.stopping:
                await ctx.emit(None)

    done = threading.Event()
    flow = ps.Flow("test")
    flow.add(Greedy()).write(ps.sinks.null())
    flow.read(ps.sources.items(range(5000))).filter(lambda x: x == 4999).write(ps.sinks.call(lambda x: done.set()))
    job = flow.start(ps.engines.Local(threads=1))
    assert done.wait(20)
    job.stop()


def test_a_loop_that_never_waits_is_preempted_between_tuples():
    class Doubler(ps.Operator):
        async def process(self, ctx):
            while await ctx.wait_all():
                await ctx.emit(ctx.inputs[0].pop() * 2)

    engine = shuffled(3, quantum=1e-9)
    assert outputs(engine, lambda s: s.flow.add(Doubler(), s), range(5000)) == [2 * x for x in range(5000)]


def test_policies_can_be_changed_and_written_while_running():
    picked = []

    class Watching(ps.SchedulingPolicy):
        def priority(self, operator):
            picked.append((operator.name, operator.queue_length, operator.seconds_per_tuple, operator.oldest_time))
            return -operator.place

    gate = Gate()
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    numbers = flow.read(ps.sources.items(range(20_000)))
    numbers.map(lambda x: gate(x) if x == 100 else x).merge(numbers.map(str)).write(result)
    job = flow.start(ps.engines.Local(threads=2, policy="random", queue_size=64))
    assert gate.reached.wait(10)
    job.set_policy(Watching())
    gate.is_open.set()
    job.wait()
    assert len(result.items) == 40_000
    assert picked
    with pytest.raises(ps.FlowError, match="there is no policy 'fair'"):
        job.set_policy("fair")


def test_threads_can_be_added_and_suspended():
    gate = Gate()
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    endless(flow).map(lambda x: gate(x) if x == 50 else x).write(result)
    job = flow.start(ps.engines.Local(threads=1))
    assert gate.reached.wait(10)

    def workers():
        return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-test-")]

    job.threads = 4
    assert len(workers()) == 4
    first, *others = sorted(workers(), key=lambda thread: thread.name)
    gate.is_open.set()
    job.threads = 1
    for thread in others:
        thread.join(20)
        assert not thread.is_alive()
    assert first.is_alive()
    job.stop()
    assert result.items == list(range(len(result.items)))


def test_a_stuck_worker_is_recognised_and_replaced():
    gate = Gate()
    done = threading.Event()
    flow = ps.Flow("test")
    flow.read(ps.sources.items([1])).map(gate, name="stuck").write(ps.sinks.null())
    others = flow.read(ps.sources.generate(lambda i: gate.reached.is_set()))
    others.filter(bool).write(ps.sinks.call(lambda x: done.set()))
    job = flow.start(ps.engines.Local(threads=1))
    assert gate.reached.wait(10)
    assert done.wait(20), "the only worker is stuck, and nobody has taken its place"
    assert job.stuck == ["stuck"]
    gate.is_open.set()
    job.stop()


def test_counts_of_a_fused_chain_are_exact():
    flow = ps.Flow("test")
    stream = flow.read(ps.sources.items(range(1000)), name="numbers")
    stream = stream.map(lambda x: x + 1, name="plus").filter(lambda x: x % 2, name="odd")
    stream = stream.flat_map(lambda x: [x] * 3, name="thrice").map(
        lambda x: 1 // (x - 1), name="fails", on_error="skip"
    )
    stream.key_by(lambda x: 0).count(name="count").write(ps.sinks.null(), name="out")
    report = flow.run(ps.engines.Local(threads=1))
    counts = {name: (counts.received, counts.emitted, counts.failed) for name, counts in report.operators.items()}
    assert counts == {
        "numbers": (1000, 1000, 0),
        "plus": (1000, 1000, 0),
        "odd": (1000, 500, 0),
        "thrice": (500, 1500, 0),
        "fails": (1500, 1497, 3),
        "count": (1497, 1497, 0),
        "out": (1497, 0, 0),
    }


def test_the_time_of_a_fused_chain_is_shared_out():
    clock = FakeClock()
    flow = ps.Flow("test")
    stream = flow.read(ps.sources.items(range(1000)))
    stream = stream.map(lambda x: clock.sleep(0.001), name="cheap").map(lambda x: clock.sleep(0.003), name="dear")
    stream.write(ps.sinks.null())
    report = flow.run(shuffled(0, clock=clock))
    cheap, dear = report.operators["cheap"].busy_seconds, report.operators["dear"].busy_seconds
    assert cheap == pytest.approx(1.0, rel=0.01)
    assert dear == pytest.approx(3.0, rel=0.01)


def test_more_flat_maps_than_python_nests_loops():
    def build(stream):
        for _ in range(30):
            stream = stream.flat_map(lambda x: [x + 1])
        return stream

    assert outputs("local", build, range(10)) == list(range(30, 40))


def test_explain_shows_what_is_fused():
    flow = ps.Flow("test")
    flow.read(ps.sources.items([])).map(str).filter(bool).write(ps.sinks.null())
    assert "  str + bool\n" in flow.explain("local")
    assert "  str\n  bool\n" in flow.explain(ps.engines.Local(threading="dedicated"))


@pytest.mark.parametrize("cut", ["b", "c", "d"])
def test_a_fused_chain_is_taken_apart_while_it_runs(cut):
    """With its states, its dead letters and its counts; nothing lost, nothing twice."""
    gate = Gate()
    flow = ps.Flow("test")
    result, letters = ps.sinks.collect(), ps.sinks.collect()
    stream = flow.read(ps.sources.items(range(20_000))).map(lambda x: gate(x) if x == 70 else x, name="a")
    stream = stream.key_by(lambda x: x % 3).stateful_map(lambda n, x: (n + 1, (x, n)), init=int, name="b")
    stream = stream.filter(lambda v: v[0] % 2, name="c", on_error="dead-letter")
    stream = stream.map(lambda v: (1 // (v[0] % 5), v)[1], name="d", on_error="dead-letter")
    stream.write(result)
    flow.dead_letters("c").merge(flow.dead_letters("d")).write(letters)
    job = flow.start(ps.engines.Local(threads=2))
    assert gate.reached.wait(10)
    job.unfuse(cut)
    gate.is_open.set()
    report = job.wait()
    expected = [(x, x // 3) for x in range(20_000) if x % 2]
    assert result.items == [v for v in expected if v[0] % 5]
    assert [letter.value for letter in letters.items] == [v for v in expected if v[0] % 5 == 0]
    assert report.operators["d"].received == 10_000


@pytest.mark.in_process
def test_what_came_before_a_failure_is_out_and_windows_are_not_flushed(engine):
    flow = ps.Flow("test")
    result, counts = ps.sinks.collect(), ps.sinks.collect()
    checked = flow.read(ps.sources.items(range(1000))).map(lambda x: x // (x != 700), name="check")
    checked.write(result)
    checked.key_by(lambda x: 0).window(ps.windows.tumbling(500, time=lambda x: x)).count().write(counts)
    with pytest.raises(ps.OperatorError, match="'check'.* failed on 700"):
        flow.run(engine)
    assert result.items == list(range(700))
    assert counts.items == [(0, 0, 500, 500)]


@pytest.mark.in_process
def test_the_first_tuple_to_fail_is_reported_not_the_first_operator(engine):
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    stream = flow.read(ps.sources.items(range(1000))).map(lambda x: x // (x != 20), name="early")
    stream.map_batch(lambda xs: xs).map(lambda x: x // (x != 10), name="late").write(result)
    with pytest.raises(ps.OperatorError, match="'late'.* failed on 10"):
        flow.run(engine)
    assert result.items == list(range(10))


def test_forks_that_rejoin_grow_the_smallest_queue_and_say_so():
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    small, large = flow.read(ps.sources.items(range(1000))).branch(lambda x: x < 500)
    small.zip(large).write(result)
    report = flow.run(ps.engines.Local(threads=2, queue_size=16))
    assert result.items == [(x, x + 500) for x in range(500)]
    assert {decision.controller for decision in report.decisions} == {"queues"}
    assert report.decisions[0].before == 16
    assert report.decisions[0].after == 32


def test_forks_that_need_more_than_the_limit_name_who_waits_for_what():
    flow = ps.Flow("test")
    small, large = flow.read(ps.sources.items(range(10_000))).branch(lambda x: x < 5000)
    small.zip(large, name="pairs").write(ps.sinks.null())
    with pytest.raises(
        ps.FlowError, match="can't go on within queue_limit=64.*input 0 of 'pairs'.*waits for tuples on"
    ):
        flow.run(ps.engines.Local(threads=2, queue_size=16, queue_limit=64))


def test_asynchronous_sources(engine):
    async def ticks():
        for tick in range(200):
            await asyncio.sleep(0)
            yield tick

    flow = ps.Flow("test")
    result = ps.sinks.collect()
    flow.read(ps.sources.items(ticks())).map(lambda x: x * 2).write(result)
    flow.run(engine)
    assert result.items == [2 * tick for tick in range(200)]


@pytest.mark.in_process
def test_an_asynchronous_source_that_raises_after_what_it_gave(engine):
    async def breaks():
        yield 1
        raise OSError("unplugged")

    flow = ps.Flow("test")
    result = ps.sinks.collect()
    flow.read(ps.sources.items(breaks()), name="ticks").write(result)
    with pytest.raises(ps.SourceError, match="the iterable raised OSError: unplugged"):
        flow.run(engine)
    assert result.items == [1]
    with pytest.raises(ps.SourceError, match="read by an earlier run"):
        flow.run(engine)


def test_an_asynchronous_source_is_held_back_too():
    clock = FakeClock()
    lag = Lag(clock)

    async def numbers():
        for number in range(1000):
            yield lag.came(number)

    flow = ps.Flow("test")
    flow.read(ps.sources.items(numbers())).write(ps.sinks.call(lag.went))
    flow.run(shuffled(4, clock=clock, queue_size=10))
    assert 10 < lag.most <= 10 + 10 + 64 + 2


def test_map_async_awaits_several_at_once_and_no_more_than_allowed():
    now, most = 0, 0

    async def slow(x):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return x

    assert outputs(ps.engines.Local(threads=2), lambda s: s.map_async(slow, concurrency=7), range(60)) == list(
        range(60)
    )
    assert most == 7


def test_rates_follow_the_clock():
    clock = FakeClock()
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    flow.read(ps.sources.generate(lambda i: (i, clock.now()), count=20, rate=10)).write(result)
    flow.run(shuffled(5, clock=clock))
    assert [round(time, 6) for _, time in result.items] == pytest.approx([i / 10 for i in range(20)], abs=0.02)


def test_latency_is_measured_from_entry_to_sink():
    clock = FakeClock()
    flow = ps.Flow("test")
    stream = flow.read(ps.sources.generate(lambda i: i, count=50, rate=10))
    stream.inspect(lambda x: clock.sleep(0.01)).write(ps.sinks.null())
    report = flow.run(shuffled(5, clock=clock))
    assert report.latency.p50 == pytest.approx(0.01, abs=0.002)


def test_a_busy_worker_does_not_keep_timers_from_firing():
    """The worker that kept the time is held in a function; the tuples of another source still come."""
    gate = Gate()
    came = threading.Event()
    flow = ps.Flow("test")
    flow.read(ps.sources.generate(lambda i: i, rate=200), name="held").inspect(gate).write(ps.sinks.null())
    others = flow.read(ps.sources.generate(lambda i: gate.reached.is_set(), rate=200), name="free")
    others.filter(bool).write(ps.sinks.call(lambda x: came.set()))
    job = flow.start(ps.engines.Local(threads=2))
    assert gate.reached.wait(10)
    assert came.wait(10)
    gate.is_open.set()
    job.stop()


def test_the_switch_interval_is_put_back():
    before = sys.getswitchinterval()
    outputs("local", lambda s: s.map(str), range(10))
    assert sys.getswitchinterval() == before


def test_a_source_that_cannot_be_read_and_a_sink_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    flow = ps.Flow("test")
    flow.read(ps.sources.csv(tmp_path / "nowhere.csv", schema="a long")).write(ps.sinks.null())
    with pytest.raises(ps.SourceError, match="nowhere.csv"):
        flow.run("local")
    flow = ps.Flow("test")
    flow.read(ps.sources.items([1])).write(ps.sinks.json(tmp_path / "file" / "out"))
    with pytest.raises(ps.SinkError, match="can't write"):
        flow.run("local")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads= is a number from 1 up or 'auto'"),
        ({"threading": "green"}, "threading= is 'dynamic', 'dedicated' or 'manual'"),
        ({"queue_size": 0}, "1 <= queue_size <= queue_limit"),
        ({"queue_size": 10, "queue_limit": 5}, "1 <= queue_size <= queue_limit"),
        ({"quantum": 0}, "quantum= is a number of seconds above 0"),
        ({"policy": "fair"}, "there is no policy 'fair'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ps.FlowError, match=message):
        ps.engines.Local(**options)


def test_threads_coming_and_going_under_load():
    """A storm: the number of threads and the policy change while several flows' worth of tuples go through."""
    flow = ps.Flow("test")
    result, totals = ps.sinks.collect(), ps.sinks.collect()
    numbers = flow.read(ps.sources.items(range(60_000)))
    numbers.map(lambda x: x + 1).zip(numbers).write(result)
    numbers.key_by(lambda x: x % 7).count().write(totals)
    job = flow.start(ps.engines.Local(threads=1, queue_size=256))
    step = 0
    while job.is_running:
        step += 1
        job.threads = 1 + step % 5
        job.set_policy(sorted(POLICIES)[step % len(POLICIES)])
    job.wait()
    assert result.items == [(x + 1, x) for x in range(60_000)]
    assert totals.items == [(x % 7, x // 7 + 1) for x in range(60_000)]


def test_nothing_piles_up_where_every_operator_has_its_own_thread():
    flow = ps.Flow("test")
    flow.read(ps.sources.items(range(3000))).map(str).write(ps.sinks.null())
    job = flow.start(ps.engines.Local(threading="dedicated", queue_size=2))
    job.wait(timeout=60)
    assert job._run.scheduler.is_empty
