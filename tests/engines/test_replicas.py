"""Operators with several replicas: any number of workers in one operator, output as if there were one."""

import threading
from collections import Counter

import pytest

import penstock as ps
from penstock.runtime.ports import Helped, Port
from penstock.runtime.running.registry import Registry
from tests.conftest import shuffled
from tests.spark.flows import Doubled


class Positions(ps.Operator):
    kind = "keyed"

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            await ctx.emit((value, ctx.state["n"]))
        await ctx.emit((ctx.key, "end"))


def jittered(x):
    """A time that is mostly later than the one before."""
    return x + x * 7919 % 13


OPERATORS = {
    "map": lambda s: s.map(lambda x: x * 2, name="op"),
    "filter": lambda s: s.filter(lambda x: x % 3, name="op"),
    "flat_map": lambda s: s.flat_map(lambda x: [x] * (x % 4), name="op"),
    "map_batch": lambda s: s.map_batch(lambda xs: [x + 1 for x in xs], name="op"),
    "keyed": lambda s: s.key_by(lambda x: x % 7).stateful_map(lambda n, x: (n + x, (x, n)), init=int, name="op"),
    "keyed flat": lambda s: s.key_by(lambda x: x % 7).stateful_flat_map(
        lambda n, x: (n + 1, [x] * (n % 3)), init=int, name="op"
    ),
    "stateless loop": lambda s: s.flow.add(Doubled(), s, name="op"),
    "window": lambda s: s.key_by(lambda x: x % 7).window(ps.windows.tumbling(9, time=jittered)).collect(name="op"),
    "late": lambda s: (
        s.key_by(lambda x: x % 7).window(ps.windows.sliding(12, 5, time=jittered, lateness=4)).collect(name="op")
    ),
    "forgetful": lambda s: s.key_by(lambda x: x % 11).stateful_map(
        lambda n, x: (n + 1, (x, n)), init=int, ttl=12, time=jittered, name="op"
    ),
    "session": lambda s: s.key_by(lambda x: x % 11).window(ps.windows.session(8, time=jittered)).count(name="op"),
    "keyed loop": lambda s: s.flow.add(Positions(), s.key_by(lambda x: x % 7), name="op"),
}
ALONE = {
    "scan": lambda s: s.scan(lambda n, x: (n + x, n), 0, name="op"),
    "inspect": lambda s: s.inspect(str, name="op"),
    "late ones called for": lambda s: (
        s.key_by(lambda x: x % 7).window(ps.windows.tumbling(9, time=jittered, on_late=print)).collect(name="op")
    ),
    "join": lambda s: s.key_by(lambda x: x % 7).join(s.key_by(lambda x: x % 5), 1, time=float, name="op"),
}


def result(make, engine, count=300):
    flow = ps.Flow("replicas")
    sink = ps.sinks.collect()
    make(flow.read(ps.sources.items(range(count)))).write(sink)
    report = flow.run(engine)
    return sink.items, report


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("keyed_queue", ["hybrid", "shared", "partitioned"])
@pytest.mark.parametrize("reorder", ["ring", "lock"])
def test_output_is_the_sequential_one(operator, keyed_queue, reorder):
    expected, _ = result(OPERATORS[operator], "sequential")
    for seed in range(5):
        engine = shuffled(seed, replicas=3, reorder=reorder, keyed_queue=keyed_queue, queue_size=8, reorder_size=3)
        assert result(OPERATORS[operator], engine)[0] == expected
    found, report = result(OPERATORS[operator], ps.engines.Local(threads=4, replicas=4, queue_size=20))
    assert found == expected
    assert report.operators["op"].replicas == 4
    assert (report.operators["op"].received, report.operators["op"].emitted) == (300, len(expected))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("split", ["round-robin", "least-loaded"])
def test_output_is_the_sequential_one_however_it_is_split(operator, split):
    expected, _ = result(OPERATORS[operator], "sequential")
    for seed in range(5):
        assert result(OPERATORS[operator], shuffled(seed, replicas=3, split=split, queue_size=8))[0] == expected
    assert result(OPERATORS[operator], ps.engines.Local(threads=2, replicas=4, split=split))[0] == expected


class Numbered(ps.Operator):
    """Says which replica a tuple has come to."""

    kind = "stateless"

    async def process(self, ctx):
        async for _ in ctx.inputs[0]:
            await ctx.emit(id(self))


def test_round_robin_gives_each_replica_as_many():
    found, _ = result(lambda s: s >> Numbered(), shuffled(1, replicas=3, split="round-robin", queue_size=1))
    assert sorted(Counter(found).values()) == [100, 100, 100]
    assert found[:3] == found[3:6]


def test_late_tuples_and_failures_of_a_window_come_in_their_places():
    def build(flow):
        keyed = flow.read(ps.sources.items(range(400))).key_by(lambda x: 1 // (x % 90) * 0 + x % 7)
        spec = ps.windows.tumbling(9, time=lambda x: "never" if x == 77 else jittered(x), on_late="dead-letter")
        sum_of = keyed.window(spec).aggregate(
            int, lambda total, x: total + x, lambda total: 1 // (total % 5) and total, name="op", on_error="dead-letter"
        )
        return [sum_of, flow.dead_letters("op")]

    def found(engine):
        flow = ps.Flow("late")
        sinks = [ps.sinks.collect(), ps.sinks.collect()]
        for stream, sink in zip(build(flow), sinks, strict=True):
            stream.write(sink)
        counts = flow.run(engine).operators["op"]
        return [sink.items for sink in sinks], (counts.received, counts.emitted, counts.failed, counts.late)

    expected = found("sequential")
    assert expected[1][2] > 10
    assert expected[1][3] > 10
    for seed in range(8):
        assert found(shuffled(seed, replicas=3, queue_size=16, reorder_size=4)) == expected
    assert found(ps.engines.Local(threads=4, replicas=4)) == expected


@pytest.mark.parametrize("kind", ["window", "ttl"])
def test_keys_and_times_are_asked_for_once(kind):
    asked = Counter()

    def key(x):
        asked["key", x] += 1
        return x % 7

    def time(x):
        asked["time", x] += 1
        return jittered(x)

    def build(stream):
        keyed = stream.key_by(key)
        if kind == "window":
            return keyed.window(ps.windows.tumbling(9, time=time)).count(name="op")
        return keyed.stateful_map(lambda n, x: (n + 1, n), init=int, ttl=9, time=time, name="op")

    result(build, shuffled(0, replicas=3), count=50)
    assert asked == Counter((what, x) for what in ("key", "time") for x in range(50))


def test_windows_close_in_buckets_to_which_nothing_comes_any_more():
    """Each key has its time, and is never seen again; others let the watermark rise."""

    def build(stream):
        keyed = stream.key_by(lambda x: x // 3)
        return keyed.window(ps.windows.session(4, time=float, lateness=20)).collect(name="op")

    expected, _ = result(build, "sequential")
    for seed in range(5):
        assert result(build, shuffled(seed, replicas=3, queue_size=8, reorder_size=4))[0] == expected


def test_a_window_that_ends_the_flow_ends_it_after_what_came_before():
    def found(engine):
        flow = ps.Flow("ending")
        sink = ps.sinks.collect()
        keyed = flow.read(ps.sources.items(range(400))).key_by(lambda x: x % 7)
        windows = keyed.window(ps.windows.tumbling(9, jittered))
        windows.aggregate(int, lambda n, x: n + x, lambda n: n if n < 250 else 1 // 0, name="op").write(sink)
        with pytest.raises(ps.OperatorError, match="'op'") as caught:
            flow.run(engine)
        return sink.items, caught.value.value

    expected = found(ps.engines.Local(threads=1))
    assert len(expected[0]) > 5
    for seed in range(5):
        assert found(shuffled(seed, replicas=3, queue_size=16)) == expected


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("threading_model", ["shuffled", "dynamic", "dedicated"])
def test_replicas_come_and_go_while_it_runs(operator, threading_model):
    """Fused with its neighbours at first; the count changes with tuples on the way, up and down."""

    def with_neighbours(stream):
        def rescale_now(x):
            if x in changes:
                started.wait(10)
                job.rescale("op", changes[x])
            return x

        before = stream.map(lambda x: x + 1).map(rescale_now).map(lambda x: x - 1)
        return OPERATORS[operator](before).map(lambda x: (x,)).filter(bool)

    changes = {}
    expected, _ = result(with_neighbours, "sequential")
    changes = {50: 3, 100: 1, 150: 4, 151: 2, 250: 5}
    for seed in range(4):
        options = {"queue_size": 10, "reorder_size": 2}
        if threading_model == "shuffled":
            engine = shuffled(seed, **options)
        else:
            engine = ps.engines.Local(threads=3, threading=threading_model, **options)
        started = threading.Event()
        flow = ps.Flow("rescaled")
        sink = ps.sinks.collect()
        with_neighbours(flow.read(ps.sources.items(range(300)))).write(sink)
        job = flow.start(engine)
        started.set()
        report = job.wait(timeout=60)
        assert sink.items == expected
        assert report.operators["op"].replicas == 5
        assert report.operators["op"].received == 300


@pytest.mark.parametrize("operator", ALONE)
def test_what_sees_everything_has_one_replica(operator):
    started = threading.Event()

    def make(stream):
        def wait(x):
            started.wait(10)
            return x

        return ALONE[operator](stream.map(wait))

    flow = ps.Flow("alone")
    make(flow.read(ps.sources.items(range(10)))).write(ps.sinks.null())
    job = flow.start(ps.engines.Local(threads=2, replicas=3))
    try:
        with pytest.raises(ps.FlowError, match=r"'op' .* has one replica: "):
            job.rescale("op", 2)
    finally:
        started.set()
    assert job.wait(timeout=30).operators["op"].replicas == 1


def test_two_workers_are_in_one_operator_at_once():
    """Each waits for the other: with one replica this would never end."""
    meeting = threading.Barrier(2, timeout=20)

    def meet(x):
        meeting.wait()
        return x

    flow = ps.Flow("meeting")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items([1, 2])).map(lambda x: x).map(meet, replicas=2).write(sink)
    flow.run(ps.engines.Local(threads=2, queue_size=1))
    assert sink.items == [1, 2]


def test_one_key_is_never_worked_on_by_two():
    busy: set[int] = set()

    def count(state, value):
        assert value % 3 not in busy
        busy.add(value % 3)
        for _ in range(200):
            state += 1
        busy.discard(value % 3)
        return state, state // 200

    flow = ps.Flow("keys")
    sink = ps.sinks.collect()
    keyed = flow.read(ps.sources.items(range(600))).key_by(lambda x: x % 3)
    keyed.stateful_map(count, init=int, replicas=4).write(sink)
    flow.run(ps.engines.Local(threads=4, queue_size=30))
    assert sink.items == [place // 3 + 1 for place in range(600)]


@pytest.mark.parametrize("operator", ["map", "keyed"])
def test_what_came_before_a_failure_is_let_out(operator):
    def fail(x):
        return 1 // (x - 137)

    def make(stream):
        if operator == "map":
            return stream.map(fail, name="op", replicas=3)
        return stream.key_by(lambda x: x % 7).stateful_map(lambda s, x: (s, fail(x)), init=int, name="op", replicas=3)

    for seed in range(5):
        flow = ps.Flow("failing")
        sink = ps.sinks.collect()
        make(flow.read(ps.sources.items(range(300)))).write(sink)
        with pytest.raises(ps.OperatorError, match="failed on 137"):
            flow.run(shuffled(seed, queue_size=10))
        assert len(sink.items) == 137


def test_dead_letters_come_in_order():
    def make(stream):
        failing = stream.key_by(lambda x: x % 7).stateful_map(
            lambda s, x: (s + 1, 1 // (x % 5)), init=int, on_error="dead-letter", name="op"
        )
        return failing, stream.flow.dead_letters("op")

    def found(engine):
        flow = ps.Flow("letters")
        sinks = [ps.sinks.collect(), ps.sinks.collect()]
        for stream, sink in zip(make(flow.read(ps.sources.items(range(200)))), sinks, strict=True):
            stream.write(sink)
        report = flow.run(engine)
        assert report.operators["op"].failed == 40
        return [sink.items for sink in sinks]

    expected = found("sequential")
    for seed in range(5):
        assert found(shuffled(seed, replicas=3, queue_size=10)) == expected


def test_order_can_be_given_up():
    """The first tuple waits for the last one to come out before it."""
    last_is_out = threading.Event()

    def wait_for_the_last(x):
        if x == 0:
            assert last_is_out.wait(20)
        return x

    flow = ps.Flow("unordered")
    seen = []

    def note(x):
        seen.append(x)
        if x == 9:
            last_is_out.set()

    numbers = flow.read(ps.sources.items(range(10)))
    numbers.map(wait_for_the_last, replicas=2, ordered=False).write(ps.sinks.call(note))
    flow.run(ps.engines.Local(threads=3, queue_size=1))
    assert seen[-1] == 0
    assert sorted(seen) == list(range(10))


def test_a_unit_that_holds_up_the_others_is_shown():
    others_are_done = threading.Event()
    looked = threading.Event()

    def wait(x):
        if x == 0:
            assert others_are_done.wait(20)
            assert looked.wait(20)
        if x == 9:
            others_are_done.set()
        return x

    flow = ps.Flow("held")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(10))).map(wait, name="slow", replicas=2).write(sink)
    job = flow.start(ps.engines.Local(threads=3, queue_size=1))
    assert others_are_done.wait(20)
    held = None
    while held is None or held.waiting < 8:
        held = job.metrics()["slow"].held
    looked.set()
    job.wait(timeout=20)
    assert held.serial == 0
    assert held.seconds > 0
    assert job.metrics()["slow"].held is None
    assert sink.items == list(range(10))


def test_a_reader_that_is_full_holds_replicas_back():
    """No more units are taken than the buffer may hold, however slow the reader is."""
    taken = []
    let_go = threading.Event()

    def slow(x):
        assert let_go.wait(20)
        return x

    flow = ps.Flow("bounded")
    sink = ps.sinks.collect()
    numbers = flow.read(ps.sources.generate(lambda i: i, count=1000))
    numbers.map(lambda x: (taken.append(x), x)[1], replicas=2, name="fast").map(slow, name="slow", replicas=2).write(
        sink
    )
    job = flow.start(ps.engines.Local(threads=4, queue_size=4, reorder_size=5))
    before = -1
    while before != len(taken):
        before = len(taken)
        with pytest.raises(TimeoutError):
            job.wait(timeout=0.2)
    assert len(taken) <= 100
    let_go.set()
    job.wait(timeout=30)
    assert sink.items == list(range(1000))


@pytest.mark.parametrize(
    "engine_options", [{"replicas": 0}, {"reorder": "magic"}, {"keyed_queue": "none"}, {"split": "magic"}]
)
def test_options_are_checked(engine_options):
    (option,) = engine_options
    with pytest.raises(ps.FlowError, match=f"{option}="):
        ps.engines.Local(**engine_options)


def ports_that_note(helped):
    """Queues that note the tuples that come to them processed, by the worker that has made them."""

    class Noting(Port):
        def offer(self, values, born, notifies=True):
            if isinstance(values, Helped):
                helped.append(list(values))
            return super().offer(values, born, notifies)

    return Noting


def test_who_emits_into_a_busy_operator_helps_it():
    """One worker is held in the operator; the one that makes its input does the rest of the work, in order."""
    was_helped = threading.Event()
    helped = []

    def score(x):
        if x == 0:
            assert was_helped.wait(20)
        else:
            was_helped.set()
        return x * 10

    flow = ps.Flow("helping")
    sink = ps.sinks.collect()
    numbers = flow.read(ps.sources.items(range(40)))
    numbers.scan(lambda s, x: (s, x), 0).map(score, name="score", replicas=2).write(sink)
    report = flow.run(ps.engines.Local(threads=2, queue_size=1, helping=1.0, port=ports_that_note(helped)))
    assert sink.items == [x * 10 for x in range(40)]
    assert helped
    assert report.operators["score"].received == report.operators["score"].emitted == 40


def test_a_failure_of_a_helper_comes_in_its_place():
    def fail(x):
        return 1 // (x - 137)

    for seed in range(10):
        flow = ps.Flow("failing")
        sink = ps.sinks.collect()
        flow.read(ps.sources.items(range(300))).map(fail, name="op", replicas=3).write(sink)
        with pytest.raises(ps.OperatorError, match="failed on 137"):
            flow.run(shuffled(seed, queue_size=10, helping=0.5))
        assert len(sink.items) == 137


@pytest.mark.parametrize("replicas", [None, 1])
def test_nobody_helps_an_operator_with_one_replica(replicas):
    helped = []
    flow = ps.Flow("alone")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(100))).scan(lambda s, x: (s, x), 0).map(abs, replicas=replicas).write(sink)
    flow.run(ps.engines.Local(threads=3, queue_size=3, helping=1.0, fuse=False, port=ports_that_note(helped)))
    assert helped == []
    assert sink.items == list(range(100))


def test_a_cell_is_held_until_its_successor_is_there(monkeypatch):
    """Or a worker that parks meanwhile would see no worker at work, and take the flow for stuck."""
    held = []
    original = Registry.replace

    def replace(registry, cell, other):
        held.append(not cell.turn.is_at_rest)
        original(registry, cell, other)
        held.append(not cell.turn.is_at_rest)

    monkeypatch.setattr(Registry, "replace", replace)
    job = None
    started = threading.Event()

    def rescale(x):
        if x == 5:
            started.wait(10)
            job.rescale("op", 2)
        return x

    flow = ps.Flow("held")
    flow.read(ps.sources.items(range(50))).map(rescale).map(lambda x: x, name="op").write(ps.sinks.null())
    job = flow.start(ps.engines.Local(threads=2, queue_size=2))
    started.set()
    assert job.wait(timeout=20).operators["op"].replicas == 2
    assert held == [True, True]


def test_rescales_between_two_chunks_are_all_carried_out():
    """Several operators of one loop, and one that is told to stay after all."""
    started = threading.Event()

    def wait(x):
        started.wait(10)
        return x

    flow = ps.Flow("several")
    sink = ps.sinks.collect()
    stream = flow.read(ps.sources.items(range(100))).map(wait, name="first")
    for name in ("a", "b", "c", "d"):
        stream = stream.map(lambda x: x + 1, name=name)
    stream.write(sink)
    job = flow.start(ps.engines.Local(threads=2, queue_size=4))
    for name, replicas in ("c", 2), ("a", 3), ("d", 4), ("b", 5), ("c", 6), ("d", 1):
        job.rescale(name, replicas)
    started.set()
    report = job.wait(timeout=20)
    assert [report.operators[name].replicas for name in ("first", "a", "b", "c", "d")] == [1, 3, 5, 6, 1]
    assert sink.items == [x + 4 for x in range(100)]
