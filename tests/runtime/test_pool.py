"""Who sleeps, who finds that a run is at rest, and what others do while that is carried out."""

import threading

import pytest

import penstock as ps
from penstock.clock import FakeClock, SystemClock
from penstock.runtime.running.patience import Patience
from penstock.runtime.running.settings import Settings
from penstock.runtime.step_times import Shuffle
from penstock.runtime.threads import Threads
from penstock.runtime.virtual import Virtual
from penstock.runtime.worker import Point
from tests.runtime.runs import Quietly, put

SOON_SECONDS = 20.0


class Gate:
    """Holds a thread that comes to it until it is opened."""

    def __init__(self):
        self.reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, *_):
        self.reached.set()
        assert self._open.wait(60)

    def open(self):
        self._open.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


def returns_at_once(call):
    """Whether a call returns while something else is held up."""
    returned = threading.Event()
    threading.Thread(target=lambda: (call(), returned.set()), daemon=True).start()
    return returned.wait(SOON_SECONDS)


class FedWhileResting(Shuffle):
    """Something comes from outside after a worker has found rest, and before it carries out what is needed."""

    def __init__(self, seed, on_found):
        super().__init__(seed)
        self._on_found = on_found

    def done_at(self, worker, point, now):
        if point is Point.REST:
            self._on_found()
            # Late enough for all others to come to their next PICK, if nothing stops them.
            return now + 1.0
        return super().done_at(worker, point, now)


class Watched:
    """A flow that is fed while it takes a checkpoint: what happens, in which order."""

    ROUNDS = 3

    def __init__(self):
        self.events = []
        self.quiet = Quietly(lambda: self.events.append("taken"), self.feed_first)
        self.processed = threading.Event()
        self.run = None
        self._rounds = 0

    def build(self, stream):
        stream.map(self._process, name="op").write(ps.sinks.null())

    def feed_first(self):
        put(self.run, "op", "first")

    def _process(self, value):
        self.events.append(value)
        self.processed.set()
        self.quiet.due = True
        self.run.pause_if_due()
        return value

    def on_found(self):
        self.events.append("found")
        if self._rounds < self.ROUNDS:
            put(self.run, "op", self._rounds)
        elif self._rounds == self.ROUNDS:
            self.run.cell_of("in").finish()
        self._rounds += 1


@pytest.mark.parametrize("seed", range(50))
def test_nobody_works_between_finding_rest_and_carrying_it_out(fed, seed):
    """What comes from outside meanwhile is worked on afterwards, and not lost."""
    watched, clock = Watched(), FakeClock()
    pool = Virtual(1 + seed % 4, clock, FedWhileResting(seed, watched.on_found))
    run = watched.run = fed(watched.build, workers=pool, clock=clock, quiet=watched.quiet)
    pool.attach(run)
    pool.drive()
    run.leave()
    assert watched.events[:8] == ["first", "found", "taken", 0, "found", "taken", 1, "found"]
    assert [event for event in watched.events if event not in ("found", "taken")] == ["first", 0, 1, 2]
    assert "found" not in [
        after for event, after in zip(watched.events, watched.events[1:], strict=False) if event == "found"
    ]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("dedicated", [False, True])
def test_threads_sit_out_a_checkpoint_too(fed, threads, dedicated):
    """Fed, woken and joined by new ones while one of them takes it."""
    watched = Watched()
    pool = Threads(threads, "test", dedicated)

    def take():
        watched.processed.clear()
        watched.on_found()
        for count in 1, threads + 1, threads:
            pool.set_threads(count)
        assert not watched.processed.wait(0.02), "a worker has picked a cell meanwhile"
        watched.events.append("taken")

    watched.quiet = Quietly(take, watched.feed_first)
    run = watched.run = fed(watched.build, workers=pool, clock=SystemClock(), quiet=watched.quiet)
    pool.attach(run)
    pool.drive()
    run.leave()
    assert [event for event in watched.events if event not in ("found", "taken")] == ["first", 0, 1, 2]
    assert watched.events[:4] == ["first", "found", "taken", 0]


def test_a_checkpoint_that_is_held_up_holds_up_no_caller(gate, tmp_path):
    """A `call` sink is published while the flow is at rest: others may change it, and look at it, meanwhile."""
    flow = ps.Flow("held")
    numbers = flow.read(ps.sources.items(list(range(20))))
    numbers.map(lambda x: x, name="op").write(ps.sinks.call(gate))
    job = flow.start(ps.engines.Local(threads=2, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0))
    assert gate.reached.wait(SOON_SECONDS)

    def set_threads():
        job.threads = 3

    try:
        assert returns_at_once(set_threads)
        assert returns_at_once(job.metrics)
        assert returns_at_once(lambda: job.rescale("op", 2))
        assert returns_at_once(lambda: job.set_policy("random"))
        assert job.threads == 3
        assert job.is_running
    finally:
        gate.open()
        job.wait(SOON_SECONDS)


def test_a_run_that_ends_while_a_checkpoint_is_held_up_waits_for_no_other_worker(gate, fed):
    """Those that sit it out go home; the one that is held up is left behind, and named."""
    pool = Threads(3, "test", patience=Patience(operator=0.1, worker=0.2))
    quiet = Quietly(on_take=gate)
    run = fed(
        lambda stream: stream.write(ps.sinks.null()),
        workers=pool,
        clock=SystemClock(),
        quiet=quiet,
        settings=Settings(closes_at_end=False),
    )
    pool.attach(run)
    driving = threading.Thread(target=pool.drive, name="penstock-driving")
    driving.start()
    assert gate.reached.wait(SOON_SECONDS)
    run.stop(drain=False)
    driving.join(SOON_SECONDS)
    assert not driving.is_alive()
    (left,) = run.ending.left_behind
    assert left.operator == "the checkpoint"
    gate.open()
    for thread in threading.enumerate():
        if thread.name.startswith("penstock"):
            thread.join(SOON_SECONDS)


def test_a_pool_may_be_told_that_there_is_work_at_any_moment(fed):
    """A storm from outside: nothing that is fed is lost, whoever sleeps or looks at the time."""
    result = ps.sinks.collect()
    pool = Threads(3, "test")

    def feeds():
        for number in range(300):
            put(run, "op", number)
        run.cell_of("in").finish()

    feeder = threading.Thread(target=feeds)
    run = fed(
        lambda stream: stream.map(lambda x: x, name="op").write(result),
        workers=pool,
        clock=SystemClock(),
        quiet=Quietly(on_opened=feeder.start),
    )
    run.cell_of("in").is_waiting = True  # the feeder will notify it
    pool.attach(run)
    pool.drive()
    feeder.join(SOON_SECONDS)
    run.leave()
    assert result.items == list(range(300))
