"""What policies see of operators and their queues, and what they may decide."""

from collections import defaultdict
from functools import partial

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.runtime.policies import CurrentThroughput, QueueThrottling
from penstock.runtime.ports import Port
from penstock.runtime.views import PortView
from penstock.testing import shuffled


class Seeing(ps.SchedulingPolicy):
    """Notes what it sees whenever it is asked; takes turns."""

    def __init__(self, see):
        self.seen = defaultdict(list)
        self._see = see

    def priority(self, operator):
        self.seen[operator.name].append(self._see(operator))
        return -operator.last_run


simulated = partial(ps.engines.Simulated, cores=3)


def seen(see, build, engine=simulated, **options):
    policy = Seeing(see)
    flow = ps.Flow("views")
    build(flow)
    flow.run(engine(policy=policy, **options))
    return policy.seen


def numbers(flow, count=3000):
    return flow.read(ps.sources.items(range(count)), name="numbers")


def widened(flow):
    many = numbers(flow).flat_map(lambda x: [x, x], name="many", replicas=3)
    many.map_batch(lambda xs: xs, name="slow", replicas=1).write(ps.sinks.null(), name="sink")


def test_a_policy_sees_the_operator_and_not_one_of_its_replicas():
    costs = {"many": 1e-4, "slow": 1e-4}
    found = seen(
        lambda op: (op.output_length, op.room, op.output_capacity, op.seconds_per_tuple, op.last_run),
        widened,
        costs=costs,
        queue_size=100,
    )["many"]
    lengths, rooms, capacities, seconds, runs = map(list, zip(*found, strict=True))
    assert max(lengths) > 0
    assert max(rooms) <= 100
    assert set(capacities) == {100}
    assert seconds[-1] == pytest.approx(1e-4, rel=0.2)
    assert runs == sorted(runs)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_share_follows_all_inputs(workers):
    def build(flow):
        stream = numbers(flow)
        small, large = stream.branch(lambda x: x % 4 == 0, name="fork")
        doubled = large.flat_map(lambda x: [x, x], name="doubled")
        small.merge(doubled, name="joined").map(str, name="text").write(ps.sinks.null(), name="sink")
        large.write(ps.sinks.null(), name="large")

    found = seen(lambda op: op.share, build, partial(shuffled, 3, workers), queue_size=40, fuse=False)
    last = {name: shares[-1] for name, shares in found.items()}
    assert last["fork"] == 1.0
    assert last["doubled"] == pytest.approx(0.75, abs=0.05)
    assert last["large"] == pytest.approx(0.75, abs=0.05)
    assert last["joined"] == pytest.approx(1.75, abs=0.1)
    assert last["text"] == pytest.approx(1.75, abs=0.1)


def test_a_share_costs_no_more_where_a_flow_forks_and_rejoins_often():
    def build(flow):
        stream = numbers(flow, 200)
        for _ in range(25):
            stream = stream.zip(stream).map(lambda pair: pair[0])
        stream.write(ps.sinks.null(), name="sink")

    shares = seen(lambda op: op.share, build, partial(shuffled, 1), queue_size=10)  # 2 ** 25 ways lead to the sink
    assert shares["sink"][-1] == pytest.approx(1.0, abs=0.2)


def test_rates_are_those_of_late():
    clock, port = FakeClock(), Port("port", 1000)
    port.reader = Reader()
    view = view_of(port, clock)
    port.offer(list(range(100)), 0.0)
    clock.sleep(1.0)
    assert (view.write_rate, view.read_rate) == (100.0, 0.0)
    port.take(60)
    clock.sleep(0.01)
    assert view.read_rate == 0.0  # as it was: a moment is no measure
    clock.sleep(0.99)
    assert (view.write_rate, view.read_rate) == (0.0, 60.0)


def test_when_the_front_tuple_was_put_into_this_queue():
    clock, port = FakeClock(), Port("port", 1000)
    port.reader = Reader()
    view = view_of(port, clock)
    clock.sleep(1.0)
    port.offer([1, 2], 0.25)
    assert (view.oldest_time, view.enqueued_time) == (0.25, 1.0)  # noted from the first question on
    clock.sleep(1.0)
    port.offer([3, 4], 0.5)
    clock.sleep(1.0)
    port.offer([5], 0.75)
    assert view.enqueued_time == 1.0
    port.take(1)
    assert view.enqueued_time == 1.0
    port.take(1)
    assert (view.oldest_time, view.enqueued_time) == (0.5, 2.0)
    port.take(2)
    assert view.enqueued_time == 3.0
    port.take(1)
    assert view.enqueued_time is None
    assert (len(view), view.capacity, view.is_full) == (0, 1000, False)


class Reader:
    def notify(self):
        pass


def view_of(port, clock):
    return PortView(port, clock.now, clock.now())


def test_operators_know_their_queues_and_rates():
    def see(operator):
        before = [(len(port), port.capacity, port.write_rate) for port in operator.inputs]
        return before, [len(targets) for targets in operator.outputs], operator.read_rate, operator.write_rate

    found = seen(see, widened, costs={"many": 1e-3, "slow": 1e-3}, queue_size=100)
    inputs, outputs, read, written = found["many"][-1]
    ((length, capacity, _),) = inputs
    assert length <= capacity == 100
    assert outputs[0] == 1
    assert max(one[2] for one in found["many"]) > 0
    assert written == pytest.approx(2 * read, rel=0.5)
    assert found["numbers"][-1][0] == []


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_policy_may_let_a_driver_loop_go_on_after_its_quantum(goes_on):
    class Generous(ps.SchedulingPolicy):
        asked = 0

        def priority(self, operator):
            return operator.depth

        def preempts(self, operator):
            assert operator.name == "loop"
            self.asked += 1
            return not goes_on

    class Echo(ps.Operator):
        async def process(self, ctx):
            while await ctx.wait_all({ctx.inputs[0]: 1}):
                clock.sleep(0.1)
                await ctx.emit(ctx.inputs[0].pop())

    clock, policy, runs = FakeClock(), Generous(), 0

    def watch(worker, cell, point, since, until):
        nonlocal runs
        runs += cell is not None and cell.name == "loop" and point.name == "PROCESS"

    flow, result = ps.Flow("generous"), ps.sinks.collect()
    loop = flow.add(Echo(), flow.read(ps.sources.items(range(16)), name="in"), name="loop")
    loop.write(result)
    engine = shuffled(1, 1, clock=clock, watch=watch, policy=policy, quantum=0.15, record_arrivals=True)
    flow.run(engine)
    assert result.items == list(range(16))
    assert policy.asked > 0
    assert (runs < 6) == goes_on


def test_a_policy_that_fails_to_say_who_goes_on_is_told():
    class Torn(ps.SchedulingPolicy):
        def priority(self, operator):
            return operator.depth

        def preempts(self, operator):
            raise LookupError("torn")

    class Echo(ps.Operator):
        async def process(self, ctx):
            while await ctx.wait_all({ctx.inputs[0]: 1}):
                clock.sleep(0.1)
                await ctx.emit(ctx.inputs[0].pop())

    clock, flow = FakeClock(), ps.Flow("torn")
    flow.add(Echo(), flow.read(ps.sources.items(range(40))), name="loop").write(ps.sinks.null())
    engine = shuffled(1, 1, clock=clock, policy=Torn(), quantum=0.15, record_arrivals=True)
    with pytest.raises(ps.PolicyError, match=r"policy 'Torn' failed when it was asked whether 'loop' .*torn"):
        flow.run(engine)


@pytest.mark.parametrize(
    "make",
    [lambda: CurrentThroughput(window=0), lambda: CurrentThroughput(window=-3), lambda: QueueThrottling(capacity=0)],
)
def test_wrong_options_of_policies(make):
    with pytest.raises(ps.FlowError, match="from 1 up"):
        make()


def test_a_policy_whose_priorities_change_nobody_knows_when_is_refused():
    class Vague(ps.SchedulingPolicy):
        priority_changes = "sometimes"

        def priority(self, operator):
            return 0

    with pytest.raises(ps.FlowError, match="policy 'Vague': priority_changes is one of 'never', .*, not 'sometimes'"):
        ps.engines.Local(policy=Vague())


def test_the_window_of_current_throughput():
    class View:
        name, busy_seconds, seconds_per_tuple, share, workers = "op", 0.0, 1.0, 1.0, 0

    for window, forgotten in (2, True), (100, False):
        policy, view = CurrentThroughput(window=window), View()
        policy.priority(view)
        view.busy_seconds = 5.0
        assert (policy.priority(view) == 0) is forgotten
