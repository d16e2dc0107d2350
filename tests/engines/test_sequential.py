"""What only the sequential engine does: restarts, repeated arrivals, reports, jobs."""

import threading

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.observe.arrivals import Sight
from tests.helpers import outputs


class ForgetsLocals(ps.Operator):
    async def process(self, ctx):
        count = 0
        while await ctx.wait_all():
            ctx.inputs[0].pop()
            count += 1
            await ctx.emit(count)


class ForgetsSelf(ps.Operator):
    count = 0

    async def process(self, ctx):
        while await ctx.wait_all():
            ctx.inputs[0].pop()
            self.count += 1
            await ctx.emit(self.count)


class WaitsElsewhere(ps.Operator):
    inputs = 2

    async def process(self, ctx):
        left, right = ctx.inputs
        while await ctx.wait_all({left: 1}):
            value = left.pop()
            if not await ctx.wait_all({right: 1}):
                return
            await ctx.emit((value, right.pop()))


class WaitsInAHelper(ps.Operator):
    async def process(self, ctx):
        while await self.next(ctx):
            await ctx.emit(ctx.inputs[0].pop())

    async def next(self, ctx):
        return await ctx.wait_all()


class Unpicklable(ps.Operator):
    async def process(self, ctx):
        while await ctx.wait_all():
            ctx.state["fn"] = lambda: ctx.inputs[0].pop()
            ctx.state["fn"]()


def restarted(operator, *inputs):
    engine = ps.engines.Sequential(restart="every-wait")
    return outputs(engine, lambda *streams: streams[0].flow.add(operator, *streams), *inputs)


@pytest.mark.parametrize("operator", [ForgetsLocals(), ForgetsSelf()])
def test_restarting_shows_what_is_not_kept_in_the_state(operator):
    assert outputs("sequential", lambda s: s.flow.add(operator, s), "abc") == [1, 2, 3]
    assert restarted(operator, "abc") == [1, 1, 1]


def test_a_loop_that_waits_with_a_tuple_in_hand_is_named_with_its_line():
    with pytest.raises(
        ps.CheckpointError, match=r"'WaitsElsewhere' waits at .*test_sequential.py:\d+ after it has taken"
    ):
        restarted(WaitsElsewhere(), [1], [2])


def test_waiting_in_a_helper_is_as_good_as_in_process():
    assert restarted(WaitsInAHelper(), "abc") == ["a", "b", "c"]


def test_a_state_that_cannot_be_pickled_is_named():
    with pytest.raises(ps.CheckpointError, match="'Unpicklable': its ctx.state can't be kept"):
        restarted(Unpicklable(), "ab")


def merged(engine):
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    left = flow.read(ps.sources.items([1, 2, 3]))
    left.merge(flow.read(ps.sources.items("ab"))).write(result)
    report = flow.run(engine)
    return result.items, report


def test_a_recorded_order_of_arrival_is_repeated():
    trace = ps.Arrivals(
        {
            "merge": (
                Sight(1, (0, 2), (False, False)),
                Sight(4, (1, 2), (False, True)),
                Sight(7, (3, 2), (True, True)),
            )
        }
    )
    items, _ = merged(ps.engines.Sequential(arrivals=trace))
    assert items == ["a", "b", 1, 2, 3]


def test_recording_and_repeating_agree():
    items, report = merged(ps.engines.Sequential(record_arrivals=True))
    assert report.arrivals.sights["merge"]
    trace = ps.Arrivals.from_json(report.arrivals.to_json())
    repeated, again = merged(ps.engines.Sequential(arrivals=trace, record_arrivals=True))
    assert repeated == items
    assert again.arrivals == report.arrivals


def test_arrivals_of_another_flow_are_refused():
    trace = ps.Arrivals({"merge": (Sight(1, (50, 0), (False, False)),)})
    with pytest.raises(ps.FlowError, match=r"merge, collect waits for what never came.*arrivals="):
        merged(ps.engines.Sequential(arrivals=trace))


class SeesArrival(ps.Operator):
    """Emits what it can see of its port, which depends on arrival alone."""

    async def process(self, ctx):
        (port,) = ctx.inputs
        while await ctx.wait_any():
            await ctx.emit((len(port), port.closed, ctx.stopping))
            await ctx.emit(port.pop_all())


def test_len_and_closed_are_repeated():
    trace = ps.Arrivals({"SeesArrival": (Sight(1, (3,), (False,)), Sight(4, (5,), (True,), True))})
    engine = ps.engines.Sequential(arrivals=trace)
    result = outputs(engine, lambda s: s.flow.add(SeesArrival(), s), range(5))
    assert result == [(3, False, False), [0, 1, 2], (2, True, True), [3, 4]]


def test_sources_take_turns():
    order = []
    flow = ps.Flow("test")
    for name, values in (("left", [1, 2, 3]), ("right", "ab")):
        flow.read(ps.sources.items(values), name=name).write(ps.sinks.call(order.append))
    flow.run("sequential")
    assert order == [1, "a", 2, "b", 3]


def test_a_tuple_goes_all_the_way_before_the_next_is_read():
    order = []
    flow = ps.Flow("test")
    stream = flow.read(ps.sources.items([1, 2])).inspect(lambda x: order.append(("first", x)))
    stream.flat_map(lambda x: [x, x]).inspect(lambda x: order.append(("last", x))).write(ps.sinks.null())
    flow.run("sequential")
    assert order == [("first", 1), ("last", 1), ("last", 1), ("first", 2), ("last", 2), ("last", 2)]


def test_a_chain_of_a_thousand_operators():
    def build(stream):
        for _ in range(1000):
            stream = stream.map(lambda x: x + 1)
        return stream

    assert outputs("sequential", build, [0, 1]) == [1000, 1001]


def test_the_report_counts():
    flow = ps.Flow("test")
    numbers = flow.read(ps.sources.items(range(10)), name="numbers")
    numbers.filter(lambda x: x % 2, name="odd").flat_map(lambda x: [x, x], name="twice").write(ps.sinks.null())
    clock = FakeClock()
    report = flow.run(ps.engines.Sequential(clock=clock))
    counts = {name: (counts.received, counts.emitted) for name, counts in report.operators.items()}
    assert counts == {"numbers": (10, 10), "odd": (10, 5), "twice": (5, 10), "null": (10, 0)}
    assert "odd" in str(report)


def test_busy_and_elapsed_seconds_come_from_the_clock():
    clock = FakeClock()
    flow = ps.Flow("test")
    numbers = flow.read(ps.sources.items(range(32))).inspect(lambda x: clock.sleep(0.25), name="slow")
    numbers.write(ps.sinks.null())
    report = flow.run(ps.engines.Sequential(clock=clock))
    assert report.elapsed_seconds == 8.0
    assert report.operators["slow"].busy_seconds == 8.0
    assert report.latency.p50 == report.latency.p99 == 0.25


def test_a_job_can_be_waited_for_watched_and_stopped():
    reached, go_on = threading.Event(), threading.Event()

    def pause(x):
        reached.set()
        assert go_on.wait(10)

    flow = ps.Flow("test")
    result = ps.sinks.collect()
    flow.read(ps.sources.generate(lambda i: i)).inspect(pause).write(result)
    job = flow.start("sequential")
    assert reached.wait(10)
    assert job.is_running
    assert job.threads == 1
    assert job.metrics()["generate"].emitted >= 1
    with pytest.raises(TimeoutError):
        job.wait(timeout=0)
    go_on.set()
    job.stop()
    assert not job.is_running
    report = job.wait()
    assert result.items == list(range(len(result.items)))
    assert report.operators["collect"].received == len(result.items) > 0


def test_stopping_with_drain_lets_everything_out_and_without_does_not():
    def run(drain):
        reached, go_on = threading.Event(), threading.Event()

        def pause(x):
            reached.set()
            assert go_on.wait(10)
            return [x] * 1000

        flow = ps.Flow("test")
        result = ps.sinks.collect()
        flow.read(ps.sources.generate(lambda i: i)).flat_map(pause).write(result)
        job = flow.start("sequential")
        assert reached.wait(10)
        stopper = threading.Thread(target=job.stop, args=(drain,))
        stopper.start()
        while not job._stop.requested:
            pass
        go_on.set()
        stopper.join()
        job.wait()
        return len(result.items)

    assert run(drain=True) % 1000 == 0
    assert run(drain=False) == 0


def test_replicas_and_policies_are_refused_clearly():
    flow = ps.Flow("test")
    flow.read(ps.sources.items([])).write(ps.sinks.null())
    job = flow.start("sequential")
    job.wait()
    with pytest.raises(ps.FlowError, match="'items' can't have 4"):
        job.rescale("items", 4)
    with pytest.raises(ps.FlowError, match="no scheduling policy"):
        job.set_policy("random")


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("abacus", {}, "there is no engine 'abacus'"),
        ("sequential", {"threads": 4}, "engine 'sequential'.*threads"),
        ("sequential", {"restart": "sometimes"}, "restart= is 'never' or 'every-wait'"),
        (ps.engines.Sequential(), {"restart": "never"}, "options restart go to a named engine"),
    ],
)
def test_wrong_engines_and_options(engine, options, message):
    flow = ps.Flow("test")
    flow.read(ps.sources.items([])).write(ps.sinks.null())
    with pytest.raises(ps.FlowError, match=message):
        flow.run(engine, **options)


def test_at_end_is_checked():
    flow = ps.Flow("test")
    flow.read(ps.sources.items([])).write(ps.sinks.null())
    with pytest.raises(ps.FlowError, match="at_end= is 'close' or 'keep'"):
        flow.run("sequential", at_end="later")
