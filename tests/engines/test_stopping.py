"""`stop` returns, whatever operators do; what is stuck is named, and publishes nothing any more."""

import asyncio
import linecache
import threading
from contextlib import suppress
from functools import partial

import pytest

import penstock as ps
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split
from penstock.runtime.running.patience import Patience

pytestmark = pytest.mark.timeout(60)

HURRIED = Patience(operator=0.1, worker=0.2, awaited=0.1, end=0.5, closing=0.2)
"""Each part shorter than the whole, as by default: so the same ends are come to, only sooner."""


def hurried(make, **options):
    """An engine that does not wait for long for what does not come back."""
    engine = make(**options)
    engine.patience = HURRIED
    return engine


ENGINES = {
    "sequential": partial(hurried, ps.engines.Sequential),
    "local": partial(hurried, ps.engines.Local, threads=2),
    "dedicated": partial(hurried, ps.engines.Local, threading="dedicated"),
    "manual": partial(hurried, ps.engines.Local, threading="manual"),
    "replicas": partial(hurried, ps.engines.Local, threads=2, replicas=2),
    "simulated": partial(hurried, ps.engines.Simulated, cores=2),
}
QUICK = ["sequential", "local", "simulated"]
OTHERS = [name for name in ENGINES if name not in QUICK]
SOON_SECONDS = 10.0
"""It takes two at the most; but a busy machine may take its time."""


class Gate:
    """Where users' code gets stuck, until the test lets it go."""

    def __init__(self):
        self.reached = threading.Event()
        self._open = threading.Event()

    def stick(self, *_):
        self.reached.set()
        self._open.wait()  # stuck here
        return 0

    def open(self):
        self._open.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()
    _until_threads_are_gone()


class StuckSource(Source):
    name = "op"

    def __init__(self, where, gate):
        self._where, self._gate = where, gate

    def splits(self):
        if self._where == "splits":
            self._gate.stick()
        return [Split("all")]

    def read(self, split, clock):
        yield Chunk([1, 2, 3], 3)
        self._gate.stick()


class StuckSink(Sink):
    name = "op"

    def __init__(self, where, gate):
        self._where, self._gate = where, gate

    def open(self):
        if self._where == "open":
            self._gate.stick()
        return _StuckWriter(self._where, self._gate)


class _StuckWriter(SinkWriter):
    def __init__(self, where, gate):
        self._where, self._gate = where, gate

    def write(self, values):
        if self._where == "write":
            self._gate.stick()

    def close(self):
        if self._where == "close":
            self._gate.stick()


class StuckLoop(ps.Operator):
    kind = "sequential"
    gate: Gate

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            self.gate.stick()
            await ctx.emit(value)


def stuck_loop(gate):
    return type("op", (StuckLoop,), {"gate": gate})()


async def stuck_await(gate, _):
    gate.stick()


async def deaf_await(gate, _):
    """It does not even listen to being cancelled."""
    gate.reached.set()
    while not gate._open.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


def _numbers(flow):
    return flow.read(ps.sources.items(range(6)), name="numbers")


def _window(stream, gate):
    spec = ps.windows.tumbling(3, time=lambda x: x)
    return stream.key_by(lambda x: x).window(spec).aggregate(int, gate.stick, name="op")


STUCK = {
    "map": lambda flow, gate: _numbers(flow).map(lambda x: x).map(gate.stick, name="op"),
    "map_batch": lambda flow, gate: _numbers(flow).map_batch(gate.stick, name="op"),
    "map_async": lambda flow, gate: _numbers(flow).map_async(partial(stuck_await, gate), name="op"),
    "map_async, deaf": lambda flow, gate: _numbers(flow).map_async(partial(deaf_await, gate), name="op"),
    "scan": lambda flow, gate: _numbers(flow).scan(gate.stick, 0, name="op"),
    "key": lambda flow, gate: _numbers(flow).key_by(gate.stick).count(name="op"),
    "window": lambda flow, gate: _window(_numbers(flow), gate),
    "loop": lambda flow, gate: _numbers(flow) >> stuck_loop(gate),
    "source, splits": lambda flow, gate: flow.read(StuckSource("splits", gate), name="op"),
    "source, read": lambda flow, gate: flow.read(StuckSource("read", gate), name="op"),
    "call": lambda flow, gate: _numbers(flow).write(ps.sinks.call(gate.stick), name="op"),
    "sink, open": lambda flow, gate: _numbers(flow).write(StuckSink("open", gate), name="op"),
    "sink, write": lambda flow, gate: _numbers(flow).write(StuckSink("write", gate), name="op"),
    "sink, close": lambda flow, gate: _numbers(flow).write(StuckSink("close", gate), name="op"),
}


def stopped(job, gate):
    """What a job that is stuck says was left behind."""
    assert gate.reached.wait(30)
    stopping = threading.Thread(target=job.stop, kwargs={"drain": False}, daemon=True)
    stopping.start()
    stopping.join(SOON_SECONDS)
    assert not stopping.is_alive()
    assert not job.is_running
    return job.wait(0).left_behind


def check(place, engine, gate):
    flow = ps.Flow("stuck")
    stream = STUCK[place](flow, gate)
    if stream is not None:
        stream.write(ps.sinks.null())
    (left,) = stopped(flow.start(engine), gate)
    assert left.operator == "op"
    if place != "map_async, deaf":  # which stands nowhere
        assert left.where.endswith(" in stick")
        file, line = left.where.removesuffix(" in stick").rsplit(":", 1)
        assert "# stuck here" in linecache.getline(file, int(line))


@pytest.mark.parametrize("place", STUCK)
def test_what_is_stuck_is_left_behind_and_named(place, gate):
    check(place, ENGINES["local"](), gate)


def test_what_is_stuck_is_left_behind_with_the_patience_of_every_day(gate):
    engine = ps.engines.Local(threads=2)
    assert engine.patience == Patience()
    check("map", engine, gate)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "local"])
def test_what_is_stuck_is_left_behind_on_every_engine(engine, gate):
    check("map", ENGINES[engine](), gate)


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", STUCK)
def test_everything_that_is_stuck_on_every_engine(place, engine, gate):
    is_stepped = engine in ("sequential", "simulated")
    if place == "map_async, deaf" and is_stepped:
        pytest.skip("there it is no other thread that awaits")
    check(place, ENGINES[engine](), gate)


def test_a_stuck_policy(gate):
    class Stuck(ps.SchedulingPolicy):
        def priority(self, operator):
            return gate.stick()

    flow = ps.Flow("stuck")
    for _ in range(3):
        flow.read(ps.sources.items(range(1000))).map(lambda x: x).write(ps.sinks.null())
    left = stopped(flow.start(hurried(ps.engines.Local, threads=1, policy=Stuck())), gate)
    assert [(one.operator, one.where.split(" in ")[1]) for one in left] == [("the policy 'Stuck'", "stick")]


def test_a_stuck_controller(gate):
    class Stuck(ps.Controller):
        name = "stuck"

        def __deepcopy__(self, _):
            return self

        def decide(self, signals):
            return gate.stick()

    flow = ps.Flow("stuck")
    flow.read(ps.sources.generate(lambda x: x, rate=10)).write(ps.sinks.null())
    elastic = ps.Elastic(replicas=Stuck(), threads="fixed", period=0.01)
    left = stopped(flow.start(hurried(ps.engines.Local, threads=2, elastic=elastic)), gate)
    assert [(one.operator, one.where.split(" in ")[1]) for one in left] == [("a controller", "stick")]


@pytest.mark.parametrize("engine", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_what_comes_back_after_the_end_writes_nothing(engine, gate, tmp_path):
    """Neither the operator that was stuck, nor the sink behind it, nor another sink that had not been closed."""
    flow = ps.Flow("late")
    collected, called = ps.sinks.collect(), []

    def sometimes(x):
        if x == 3:
            gate.stick()
        called.append(x)

    numbers = _numbers(flow)
    numbers.write(ps.sinks.call(sometimes), name="op")
    numbers.map(lambda x: x).write(collected)
    numbers.write(ps.sinks.json(tmp_path / "out"))
    job = flow.start(ENGINES[engine]())
    (left,) = stopped(job, gate)
    assert left.operator == "op"
    seen = list(collected.items), list(called), sorted(path.name for path in tmp_path.rglob("*"))
    gate.open()
    _until_threads_are_gone()
    assert (collected.items, called, sorted(path.name for path in tmp_path.rglob("*"))) == seen
    assert called == [0, 1, 2]


def _until_threads_are_gone():
    for thread in threading.enumerate():
        if thread.name.startswith("penstock"):
            thread.join(30)
            assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("where", ["operator", "publishing", "state"])
def test_a_checkpoint_is_let_go_of_and_left_alone(where, gate, tmp_path):
    """Another run may go on with it while the first is stuck; when that comes back, it changes nothing."""
    sticks = [True]

    def stuck_once(where_now, value):
        if where_now == where and value == 3 and sticks:
            sticks.clear()
            gate.stick()
        return value

    State.on_reduce = partial(stuck_once, "state")

    def flow():
        made = ps.Flow("kept")
        sink = ps.sinks.call(partial(stuck_once, "publishing"))
        numbers = made.read(ps.sources.items(list(range(6))), name="numbers").map(partial(stuck_once, "operator"))
        states = numbers.key_by(lambda x: x).stateful_map(lambda _, x: (State(x), x), int, name="state")
        states.write(ps.sinks.json(tmp_path / "out"))
        states.write(sink)
        return made

    left = stopped(flow().start(hurried(ps.engines.Local, threads=2, checkpoint=tmp_path / "checkpoint")), gate)
    assert left[0].where.endswith(" in stick")
    flow().run(ps.engines.Local(threads=2, checkpoint=tmp_path / "checkpoint"))
    assert _written(tmp_path / "out") == list(range(6))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    gate.open()
    _until_threads_are_gone()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


class State:
    on_reduce = None

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        State.on_reduce(self.number)
        return State, (self.number,)


def _written(folder):
    return [int(line) for path in sorted(folder.glob("*.json*")) for line in path.read_text().splitlines()]


# Who asks, when, and how often


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("drain", [True, False])
def test_an_operator_may_ask(engine, drain):
    flow = ps.Flow("asking")
    jobs, has_job = [], threading.Event()

    def ask(x):
        assert has_job.wait(30)
        jobs[0].stop(drain)
        jobs[0].stop(drain)
        return x

    sink = ps.sinks.collect()
    flow.read(ps.sources.generate(lambda x: x)).map(ask).write(sink)
    jobs.append(flow.start(ENGINES[engine]()))
    has_job.set()
    assert jobs[0].wait(30).left_behind == ()
    assert sink.items == list(range(len(sink.items)))


@pytest.mark.parametrize("engine", ["sequential", "local"])
def test_an_operator_that_waits_for_the_end_is_told_that_it_cannot(engine):
    flow = ps.Flow("asking")
    jobs, has_job = [], threading.Event()

    def wait(_):
        assert has_job.wait(30)
        jobs[0].wait()

    _numbers(flow).map(wait, name="op").write(ps.sinks.null())
    jobs.append(flow.start(ENGINES[engine]()))
    has_job.set()
    with pytest.raises(ps.OperatorError, match=r"operator 'op' .* job.wait\(\) waits for the end of the flow"):
        jobs[0].wait(30)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("drain", [True, False])
def test_several_may_ask_at_once_and_at_any_time(engine, drain):
    for _ in range(5):
        flow = ps.Flow("asking")
        sink = ps.sinks.collect()
        flow.read(ps.sources.generate(lambda x: x, rate=1000)).map(lambda x: x).write(sink)
        job = flow.start(ENGINES[engine]())  # and at once, before it has really begun
        asking = [threading.Thread(target=job.stop, args=(drain,), daemon=True) for _ in range(3)]
        for thread in asking:
            thread.start()
        job.stop(drain)
        for thread in asking:
            thread.join(30)
            assert not thread.is_alive()
        job.stop(not drain)
        assert job.wait(0).left_behind == ()
        assert sink.items == list(range(len(sink.items)))


@pytest.mark.parametrize("engine", ["local"])
def test_who_waits_for_a_drain_is_freed_by_who_does_not(engine, gate):
    flow = ps.Flow("stuck")
    _numbers(flow).map(gate.stick, name="op").write(ps.sinks.null())
    job = flow.start(ENGINES[engine]())
    assert gate.reached.wait(30)
    patient = threading.Thread(target=job.stop, daemon=True)
    patient.start()
    (left,) = stopped(job, gate)
    patient.join(10)
    assert not patient.is_alive()
    assert left.operator == "op"


@pytest.mark.parametrize("engine", ["sequential", "local"])
def test_a_drain_has_its_time(engine, gate):
    flow = ps.Flow("stuck")
    _numbers(flow).map(gate.stick, name="op").write(ps.sinks.null())
    job = flow.start(ENGINES[engine]())
    assert gate.reached.wait(30)
    job.stop(grace_seconds=0.1)
    assert [left.operator for left in job.wait(0).left_behind] == ["op"]
    assert "left behind: op at " in str(job.wait(0))


def test_a_thread_that_computes_for_ever_ends_with_the_run():
    """It is not only left behind: it would take the GIL from everybody else."""
    flow = ps.Flow("busy")
    reached = threading.Event()

    def busy(_):
        reached.set()
        while True:
            pass

    _numbers(flow).map(busy, name="op").write(ps.sinks.null())
    job = flow.start(ENGINES["local"]())
    assert reached.wait(30)
    job.stop(drain=False)
    assert [left.operator for left in job.wait(0).left_behind] == ["op"]
    _until_threads_are_gone()
