"""Whatever users' code raises, anywhere: the run ends, with an error that names the operator and the cause."""

import asyncio
import itertools
from functools import partial

import pytest

import penstock as ps
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split

pytestmark = pytest.mark.timeout(120)

WAIT_SECONDS = 50.0
"""Far more than any of these runs takes: what is still running then hangs."""


class Odd(BaseException):
    """An exception of a user's that is no `Exception`."""


class Mute(Exception):
    """One that can't be told: nothing of it works."""

    def _fails(self, *_):
        raise Odd("mute")

    __str__ = __repr__ = __reduce__ = __reduce_ex__ = __eq__ = __hash__ = __bool__ = _fails


class Loud(Exception):
    """One that says too much."""

    def __str__(self):
        return "loud" * (1 << 20)


RAISED = {
    "ValueError": partial(ValueError, "no such page"),
    "SystemExit": partial(SystemExit, 3),
    "GeneratorExit": partial(GeneratorExit, "closed"),
    "CancelledError": partial(asyncio.CancelledError, "cancelled"),
    "StopIteration": partial(StopIteration, "stopped"),
    "StopAsyncIteration": partial(StopAsyncIteration, "stopped"),
    "RecursionError": partial(RecursionError, "too deep"),
    "MemoryError": partial(MemoryError, "too much"),
    "KeyboardInterrupt": partial(KeyboardInterrupt, "enough"),
    "Odd": partial(Odd, "odd"),
    "Mute": Mute,
    "Loud": Loud,
}


class Reading(Source):
    """A source of a user's that fails in one of the places where it is called."""

    name = "op"

    def __init__(self, where, fail):
        self._where, self._fail = where, fail

    def splits(self):
        return self._fail() if self._where == "splits" else [Split("all")]

    def read(self, split, clock):
        yield Chunk([1, 2, 3], 3)
        if self._where == "read":
            self._fail()


class AwaitedReading(Reading):
    awaits = True

    async def read_async(self, split):
        yield Chunk([1, 2, 3], 3)
        self._fail()


class Writing(Sink):
    """The same for a sink."""

    name = "op"

    def __init__(self, where, fail):
        self._where, self._fail = where, fail

    def open(self):
        return self._fail() if self._where == "open" else _Writer(self._where, self._fail)


class _Writer(SinkWriter):
    def __init__(self, where, fail):
        self._where, self._fail = where, fail

    def write(self, values):
        if self._where == "write":
            self._fail()

    def close(self):
        if self._where == "close":
            self._fail()


class Looping(ps.Operator):
    def __init__(self, where, fail, kind="sequential"):
        self._where, self._fail, self.kind = where, fail, kind

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            if self._where == "process":
                self._fail()
            await ctx.emit(value)

    def start(self, ctx):
        if self._where == "start":
            self._fail()

    def finish(self, ctx):
        if self._where == "finish":
            self._fail()


class Hostile:
    """A value of which one thing does not work."""

    def __init__(self, name, fail):
        self._fail = fail
        self.__class__ = type("Hostile", (Hostile,), {name: lambda *_: fail()})


class HostileKey(str):
    __slots__ = ("fail",)

    def __hash__(self):
        return self.fail()


def hostile_key(fail):
    key = HostileKey("key")
    key.fail = fail
    return key


def awaiting(fail):
    async def op(_):
        await asyncio.sleep(0)
        fail()

    return op


def window(stream, fail_in, fail, **options):
    """A window one of whose functions fails."""
    functions = {"time": lambda x: x, "init": int, "add": lambda n, x: n + x, "finish": lambda n: n}
    functions[fail_in] = lambda *_: fail()
    spec = ps.windows.tumbling(3, time=functions["time"], **options)
    return stream.window(spec).aggregate(functions["init"], functions["add"], functions["finish"], name="op")


OPERATORS = {
    "map": lambda s, fail: s.map(lambda _: fail(), name="op"),
    "map behind another": lambda s, fail: s.map(lambda x: x).map(lambda _: fail(), name="op").map(lambda x: x),
    "filter": lambda s, fail: s.filter(lambda _: fail(), name="op"),
    "flat_map": lambda s, fail: s.flat_map(lambda _: fail(), name="op"),
    "inspect": lambda s, fail: s.inspect(lambda _: fail(), name="op"),
    "branch": lambda s, fail: s.branch(lambda _: fail(), name="op")[0],
    "map_batch": lambda s, fail: s.map_batch(lambda _: fail(), name="op"),
    "map_arrow": lambda s, fail: s.map(lambda x: {"x": x}).map_arrow(lambda _: fail(), schema="x long", name="op"),
    "map_async": lambda s, fail: s.map_async(awaiting(fail), name="op"),
    "scan": lambda s, fail: s.scan(lambda *_: fail(), 0, name="op"),
    "scan, init": lambda s, fail: s.scan(lambda n, x: (n, x), lambda: fail(), name="op"),
    "key": lambda s, fail: s.key_by(lambda _: fail()).stateful_map(lambda n, x: (n, x), int, name="op"),
    "stateful_map": lambda s, fail: s.key_by(str).stateful_map(lambda *_: fail(), int, name="op"),
    "stateful_map, init": lambda s, fail: s.key_by(str).stateful_map(lambda n, x: (n, x), lambda: fail(), name="op"),
    "stateful_map, ttl": lambda s, fail: s.key_by(str).stateful_map(lambda *_: fail(), int, ttl=5, name="op"),
    "stateful_flat_map": lambda s, fail: s.key_by(str).stateful_flat_map(lambda *_: fail(), int, name="op"),
    "reduce": lambda s, fail: s.key_by(lambda _: 0).reduce(lambda *_: fail(), name="op"),
    "window, key": lambda s, fail: s.key_by(lambda _: fail()).window(ps.windows.tumbling(3, time=int)).count(name="op"),
    "window, time": lambda s, fail: window(s.key_by(str), "time", fail),
    "window, init": lambda s, fail: window(s.key_by(str), "init", fail),
    "window, add": lambda s, fail: window(s.key_by(str), "add", fail),
    "window, finish": lambda s, fail: window(s.key_by(str), "finish", fail),
    "window, on_late": lambda s, fail: (
        s.map(lambda x: -x)
        .key_by(lambda _: 0)
        .window(ps.windows.tumbling(3, time=lambda x: x, on_late=lambda _: fail()))
        .count(name="op")
    ),
    "join, key": lambda s, fail: s.key_by(lambda _: 0).join(
        s.key_by(lambda _: fail()), within=3, time=lambda x: x, name="op"
    ),
    "join, time": lambda s, fail: s.key_by(str).join(s.key_by(str), within=3, time=lambda _: fail(), name="op"),
    "loop": lambda s, fail: s >> _named(Looping("process", fail)),
    "loop, start": lambda s, fail: s >> _named(Looping("start", fail)),
    "loop, finish": lambda s, fail: s >> _named(Looping("finish", fail)),
    "stateless loop": lambda s, fail: s >> _named(Looping("process", fail, "stateless")),
    "keyed loop": lambda s, fail: s.key_by(str) >> _named(Looping("process", fail, "keyed")),
    "result of a filter, bool": lambda s, fail: s.filter(lambda _: Hostile("__bool__", fail), name="op"),
    "result of a flat_map, iter": lambda s, fail: s.flat_map(lambda _: Hostile("__iter__", fail), name="op"),
    "result of a map_batch, iter": lambda s, fail: s.map_batch(lambda _: Hostile("__iter__", fail), name="op"),
    "result of a scan, iter": lambda s, fail: s.scan(lambda *_: Hostile("__iter__", fail), 0, name="op"),
}
ENDS = {
    "generate": lambda flow, fail: flow.read(ps.sources.generate(lambda _: fail(), count=3), name="op"),
    "items": lambda flow, fail: flow.read(ps.sources.items(fail() if x else x for x in range(3)), name="op"),
    "source, splits": lambda flow, fail: flow.read(Reading("splits", fail), name="op"),
    "source, read": lambda flow, fail: flow.read(Reading("read", fail), name="op"),
    "source, awaited": lambda flow, fail: flow.read(AwaitedReading("read", fail), name="op"),
    "call": lambda flow, fail: _numbers(flow).write(ps.sinks.call(lambda _: fail()), name="op"),
    "sink, open": lambda flow, fail: _numbers(flow).write(Writing("open", fail), name="op"),
    "sink, write": lambda flow, fail: _numbers(flow).write(Writing("write", fail), name="op"),
    "sink, close": lambda flow, fail: _numbers(flow).write(Writing("close", fail), name="op"),
}
ENGINES = {
    "sequential": ps.engines.Sequential,
    "sequential, restarted": partial(ps.engines.Sequential, restart="every-wait"),
    "local": partial(ps.engines.Local, threads=2),
    "dedicated": partial(ps.engines.Local, threading="dedicated"),
    "manual": partial(ps.engines.Local, threading="manual"),
    "replicas": partial(ps.engines.Local, threads=2, replicas=2),
    "unfused": partial(ps.engines.Local, threads=2, fuse=False, queue_size=1),
    "simulated": partial(ps.engines.Simulated, cores=2),
    "simulated, replicas": partial(ps.engines.Simulated, cores=2, replicas=2),
    "simulated, batches": partial(ps.engines.Simulated, cores=2, like="spark"),
}
PLACES = [*OPERATORS, *ENDS]
FEW = ["ValueError", "SystemExit", "GeneratorExit"]


def _named(operator):
    operator.__class__ = type("op", (type(operator),), {})
    return operator


def _numbers(flow):
    return flow.read(ps.sources.items(range(6)), name="numbers")


def made(place, fail):
    flow = ps.Flow("raising")
    if place in ENDS:
        stream = ENDS[place](flow, fail)
        if stream is not None:
            stream.write(ps.sinks.null())
    else:
        OPERATORS[place](_numbers(flow), fail).write(ps.sinks.null())
    return flow


def error_of(flow, engine):
    """What a run ends with; it fails the test where that is not an error of ours, or does not come."""
    job = flow.start(engine)
    try:
        with pytest.raises(ps.PenstockError) as caught:
            job.wait(WAIT_SECONDS)
        return caught.value
    finally:
        if job.is_running:
            job.stop(drain=False)


def raising(name):
    def fail(*_):
        raise RAISED[name]()

    return fail


def check(place, name, engine):
    error = error_of(made(place, raising(name)), engine)
    told = str(error)
    assert "op'" in told or "'op" in told, (place, name, told)
    # A generator or a coroutine turns what would end it quietly into a RuntimeError, before anybody else sees it.
    is_changed = name.startswith("Stop") and "RuntimeError" in told
    assert name in told or is_changed, (place, name, told)
    assert len(told) < 5000, (place, name)
    assert error.__cause__ is not None, (place, name, told)


@pytest.mark.parametrize("place", PLACES)
def test_everything_on_the_local_engine(place):
    for name in RAISED:
        check(place, name, ENGINES["local"]())


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "local"])
def test_the_worst_on_every_engine(engine):
    for place, name in itertools.product(PLACES, FEW):
        check(place, name, ENGINES[engine]())


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", PLACES)
def test_everything_on_every_engine(place, engine):
    for name in RAISED:
        check(place, name, ENGINES[engine]())


STATELESS = ["map", "filter", "flat_map", "branch", "map_batch", "map_arrow", "result of a filter, bool"]


def in_companions(places, names):
    for place, name in itertools.product(places, names):
        check(place, name, ps.engines.Local(threads=1, workers="processes", replicas=2))


@pytest.mark.parametrize("name", ["SystemExit", "Mute"])
def test_the_worst_in_companions(name):
    in_companions(["map"], [name])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", STATELESS)
def test_everything_in_companions(place):
    in_companions([place], RAISED)


@pytest.mark.parametrize("name", ["SystemExit", "GeneratorExit", "Odd"])
@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_only_errors_can_be_skipped(name, on_error):
    """What is no `Exception` says that something is to end, not that a tuple is bad."""
    for engine in ENGINES.values():
        flow = ps.Flow("skipping")
        _numbers(flow).map(raising(name), name="op", on_error=on_error).write(ps.sinks.null())
        if on_error == "dead-letter":
            flow.dead_letters("op").write(ps.sinks.null())
        assert name in str(error_of(flow, engine()))


@pytest.mark.parametrize("method", ["__repr__", "__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__reduce__"])
def test_values_that_can_do_nothing_pass_through(method):
    fail = raising("Odd")
    for engine in ENGINES.values():
        flow = ps.Flow("hostile")
        sink = ps.sinks.collect()
        values = _numbers(flow).map(lambda _: Hostile(method, fail)).filter(lambda _: True).map_batch(list)
        kept = values.scan(lambda state, x: (x, x), init=lambda: Hostile(method, fail)).merge(values).zip(values)
        kept.write(sink)
        flow.run(engine())
        assert len(sink.items) == 6


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_that_cannot_be_shown_does_not_hide_the_error(engine):
    for value in (Hostile("__repr__", raising("Odd")), Long()):
        flow = ps.Flow("hostile")
        _numbers(flow).map(lambda _, value=value: value).map(raising("ValueError"), name="op").write(ps.sinks.null())
        error = error_of(flow, ENGINES[engine]())
        assert "'op'" in str(error)
        assert "no such page" in str(error)
        assert len(str(error)) < 1000


class Long:
    def __repr__(self):
        return "long" * (1 << 20)


@pytest.mark.parametrize("engine", ["local", "dedicated", "replicas", "simulated"])
def test_keys_that_cannot_be_looked_up(engine):
    for make in (lambda s: s.count(name="op"), lambda s: s.stateful_flat_map(lambda n, x: (n, [x]), int, name="op")):
        flow = ps.Flow("keys")
        make(_numbers(flow).key_by(lambda _: hostile_key(raising("Odd")))).write(ps.sinks.null())
        error = error_of(flow, ENGINES[engine]())
        assert "'op'" in str(error)
        assert "Odd: odd" in str(error)


@pytest.mark.parametrize("name", ["ValueError", "SystemExit", "GeneratorExit"])
def test_a_state_that_cannot_be_kept_names_its_operator(name, tmp_path):
    flow = ps.Flow("kept")
    states = (
        _numbers(flow)
        .key_by(lambda _: 0)
        .stateful_map(lambda *_: (Hostile("__reduce__", raising(name)), 0), int, name="op")
    )
    states.write(ps.sinks.null())
    error = error_of(flow, ps.engines.Local(threads=2, checkpoint=tmp_path))
    assert "'op'" in str(error)
    assert name in str(error)


def test_no_interrupt_of_a_users_own_ends_the_caller():
    """Ctrl-C comes to the main thread; one that an operator raises is that operator's error."""
    flow = ps.Flow("raising")
    _numbers(flow).map(raising("KeyboardInterrupt"), name="op").write(ps.sinks.null())
    with pytest.raises(ps.OperatorError, match="'op' .*KeyboardInterrupt: enough"):
        flow.run(ps.engines.Local(threads=2))


@pytest.mark.parametrize("kind", [ps.PenstockError, ps.FlowError, ps.SourceError, ps.CheckpointError])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_of_our_tree_that_users_raise_is_the_operators(engine, kind):
    """It says nothing about whose it is, so it is told like any other, with the tuple and the original as cause."""

    def fail(*_):
        raise kind("their own")

    for place in ("map", "map behind another", "map_async", "key", "stateful_map", "window, time", "loop"):
        error = error_of(made(place, fail), ENGINES[engine]())
        assert isinstance(error, ps.OperatorError), (place, error)
        assert type(error.__cause__) is kind, place
        assert "'op'" in str(error), place
        assert "failed on 0" in str(error), (place, error)
        assert "their own" in str(error), place
    flow = ps.Flow("skipping")
    _numbers(flow).map(fail, name="op", on_error="skip").write(ps.sinks.null())
    assert flow.run(ENGINES[engine]()).operators["op"].failed == 6


# Policies and controllers


class Choosing(ps.SchedulingPolicy):
    def __init__(self, choose):
        self._choose = choose

    def priority(self, operator):
        return self._choose()


class Deciding(ps.Controller):
    name = "deciding"

    def __init__(self, decide, see=lambda: None):
        self._decide, self._see = decide, see

    def see(self, signals):
        self._see()

    def decide(self, signals):
        return self._decide()


@pytest.mark.parametrize("engine", [partial(ps.engines.Local, threads=2), partial(ps.engines.Simulated, cores=2)])
def test_a_policy_that_fails_is_named(engine):
    choices = {**{name: raising(name) for name in RAISED}, "TypeError": lambda: None}
    for name, choose in choices.items():
        flow = ps.Flow("policies")
        for _ in range(3):
            flow.read(ps.sources.items(range(1000))).map(lambda x: x).write(ps.sinks.null())
        error = error_of(flow, engine(policy=Choosing(choose)))
        assert isinstance(error, ps.PolicyError)
        assert "policy 'Choosing' failed" in str(error)
        assert name in str(error)


@pytest.mark.parametrize(
    "engine",
    [
        partial(ps.engines.Local, threads=2),
        partial(ps.engines.Simulated, cores=2),
        partial(ps.engines.Simulated, cores=2, like="spark", batch_rows=2),
    ],
)
def test_a_controller_that_fails_is_named(engine):
    unknown = ps.Change("replicas", "nothing", 1, 3, "because")
    controllers = [
        (Deciding(raising("GeneratorExit")), "GeneratorExit: closed"),
        (Deciding(raising("SystemExit")), "SystemExit: 3"),
        (Deciding(list, raising("ValueError")), "no such page"),
        (Deciding(lambda: [3]), "a list of ps.Change, not on 3"),
        (Deciding(lambda: {}["nothing"]), "KeyError: 'nothing'"),
        (Deciding(lambda: [unknown]), "'nothing'"),
    ]
    for controller, words in controllers:
        flow = ps.Flow("controllers")
        numbers = flow.read(ps.sources.generate(lambda x: x, count=100_000, rate=100))
        numbers.map(lambda x: x).write(ps.sinks.null())
        error = error_of(flow, engine(elastic=ps.Elastic(replicas=controller, threads="fixed", period=0.01)))
        assert isinstance(error, ps.PolicyError)
        assert "controller 'deciding'" in str(error)
        assert words in str(error)
