"""With a checkpoint, time bounds what is under way: checkpoints come when they should, however slow a flow is."""

import asyncio
import gzip
from itertools import pairwise

import pytest

import penstock as ps
import penstock.testing
from penstock.engines.durable import steps
from penstock.runtime.ports import Port
from tests.conftest import shuffled
from tests.killed_flow import written

COUNT = 1000
TUPLE_SECONDS = 0.01


class Slow:
    """Takes so long for each tuple, on a virtual clock."""

    def __init__(self, clock, seconds=TUPLE_SECONDS):
        self._clock = clock
        self._seconds = seconds

    def __call__(self, value):
        self._clock.sleep(self._seconds)
        return value


def numbers(tmp_path):
    return ps.sources.items(list(range(COUNT)))


def lines(tmp_path):
    (tmp_path / "numbers.txt").write_text("".join(f"{number}\n" for number in range(COUNT)))
    return ps.sources.text(tmp_path / "numbers.txt")


def generated(tmp_path):
    return ps.sources.generate(lambda number: number, count=COUNT)


async def _later(number):
    await asyncio.sleep(10 * TUPLE_SECONDS)
    return number


FLOWS = {
    "a function": lambda numbers, slow: numbers.map(slow),
    "replicas": lambda numbers, slow: numbers.map(slow, replicas=2),
    "keys": lambda numbers, slow: numbers.key_by(lambda n: int(n) % 7).stateful_map(
        lambda state, n: (state, slow(n)), init=int, replicas=2
    ),
    "many of one": lambda numbers, slow: (
        numbers.filter(lambda n: int(n) % 10 == 0).flat_map(lambda n: [n] * 10, replicas=2).map(slow)
    ),
    "two in a row": lambda numbers, slow: numbers.map(slow, replicas=2).map(slow, replicas=3),
    "awaited": lambda numbers, slow: numbers.map_async(_later, concurrency=10),
    "a loop": lambda numbers, slow: numbers.flow.add(Passes(slow), numbers),
}


class Passes(ps.Operator):
    def __init__(self, slow):
        self._slow = slow

    def __deepcopy__(self, memo):
        return self  # and with it the clock

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            await ctx.emit(self._slow(value))


def taken_at(make_flow, tmp_path, monkeypatch, source=numbers, seconds=1.0, **options):
    """When checkpoints were taken, in virtual time."""
    clock = ps.testing.FakeClock()
    times = [0.0]
    monkeypatch.setattr(steps, "observer", lambda step: times.append(clock.now()) if step == "published" else None)
    flow = ps.Flow("slow")
    sink = ps.sinks.collect()
    make_flow(flow.read(source(tmp_path)), Slow(clock)).write(sink)
    checkpoint = tmp_path / "checkpoint"
    flow.run(shuffled(1, clock=clock, checkpoint=checkpoint, checkpoint_seconds=seconds, **options), at_end="keep")
    return times, sink.items


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("source", [numbers, lines, generated])
def test_checkpoints_come_when_they_should(name, source, tmp_path, monkeypatch):
    times, items = taken_at(FLOWS[name], tmp_path, monkeypatch, source)
    assert [int(item) for item in items] == [n for n in range(COUNT) for n in _expected(name, n)]
    assert times[-1] > 3
    assert max(later - earlier for earlier, later in pairwise(times)) < 2


def test_nobody_starves_for_it(tmp_path, monkeypatch):
    """Three workers share out twenty seconds of work, and wait for several checkpoints meanwhile."""
    times, _ = taken_at(FLOWS["two in a row"], tmp_path, monkeypatch)
    assert len(times) > 5
    assert times[-1] < 1.05 * 2 * COUNT * TUPLE_SECONDS / 3


def test_what_can_only_be_read_from_the_start_is_read_once(tmp_path, monkeypatch):
    def compressed(folder):
        (folder / "numbers.txt.gz").write_bytes(gzip.compress(b"".join(b"%d\n" % number for number in range(COUNT))))
        return ps.sources.text(folder / "numbers.txt.gz")

    _, items = taken_at(FLOWS["a function"], tmp_path, monkeypatch, compressed)
    assert [int(item) for item in items] == list(range(COUNT))


@pytest.mark.parametrize("seed", range(5))
def test_a_fork_that_rejoins_gets_the_room_that_it_needs(seed, tmp_path):
    """One side waits for more tuples than its queue would hold by what they cost."""
    clock = ps.testing.FakeClock()
    flow = ps.Flow("rejoins")
    sink = ps.sinks.collect()
    numbers = flow.read(ps.sources.items(list(range(500))))
    late = numbers.filter(lambda n: n >= 300).map(Slow(clock))
    late.zip(numbers.map(Slow(clock))).write(sink)
    options = {"checkpoint": tmp_path / "checkpoint", "checkpoint_seconds": 0.1}
    flow.run(shuffled(seed, clock=clock, **options), at_end="keep")
    assert sink.items == [(n + 300, n) for n in range(200)]


def test_a_run_reads_on_in_the_middle_of_a_chunk(tmp_path):
    """What a checkpoint says has been read is what was sent, not the whole chunk."""

    def run(fails_at):
        clock = ps.testing.FakeClock()
        slow = Slow(clock)

        def checked(number):
            if number == fails_at:
                raise ValueError("the power has failed")
            return slow(number)

        flow = ps.Flow("power")
        flow.read(ps.sources.items(list(range(500)))).map(checked).write(ps.sinks.json(tmp_path / "out"))
        flow.run(shuffled(1, clock=clock, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=1))

    with pytest.raises(ps.OperatorError):
        run(fails_at=300)
    before = len(written(tmp_path, "out"))
    assert 150 < before < 300, "as of the last checkpoint"
    run(fails_at=None)
    assert written(tmp_path, "out") == [str(number) for number in range(500)]


def test_a_queue_that_had_to_grow_stays_so():
    port = Port("p", 100)
    port.limit(10)
    assert (port.capacity, port.is_limited) == (10, True)
    port.grow(40)
    port.limit(5)
    assert port.capacity == 40
    port.limit(1000)
    assert (port.capacity, port.is_limited) == (100, False)


def _expected(name, n):
    return ([n] * 10 if n % 10 == 0 else []) if name == "many of one" else [n]


def test_what_comes_when_sources_have_ended_is_not_held_back(tmp_path):
    """Nobody has seen a result before the end, and then they all come at once."""
    taken = []

    class Counting(Port):
        def take(self, budget):
            found = super().take(budget)
            taken.append(len(found[0]))
            return found

    clock = ps.testing.FakeClock()
    flow = ps.Flow("at the end")
    sink = ps.sinks.collect()
    slow = Slow(clock, 1e-5)
    keyed = flow.read(ps.sources.items(list(range(20_000)))).key_by(lambda n: n)
    keyed.window(ps.windows.tumbling(1e9, time=slow)).count().map(slow).write(sink)
    engine = shuffled(1, clock=clock, port=Counting, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=1)
    flow.run(engine, at_end="close")
    assert len(sink.items) == 20_000
    assert sum(map(bool, taken)) < 2000
