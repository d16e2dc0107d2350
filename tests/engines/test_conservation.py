"""A tuple that is lost or doubled inside an engine fails the run, before anybody relies on its output."""

import json

import pytest

import penstock as ps
from penstock.connectors.memory import Items
from penstock.connectors.source import Chunk
from penstock.engines.durable.staging import FileStage, ValueStage
from penstock.runtime.cells.chains import ChainKernel
from penstock.runtime.cells.outbox import PortOutbox
from penstock.runtime.ports import Port
from penstock.runtime.teams.buckets import KeyedUnit
from penstock.runtime.teams.team import Team
from penstock.runtime.teams.units import Unit
from penstock.testing import shuffled

COUNT = 3000
ENGINES = {
    "local": lambda **options: ps.engines.Local(threads=2, queue_size=64, **options),
    "teams": lambda **options: shuffled(3, workers=3, replicas=3, queue_size=64, **options),
    "simulated": lambda **_: ps.engines.Simulated(cores=2, queue_size=64),
}


def build(source=None, sink=None):
    flow, sink = ps.Flow("leaky"), sink or ps.sinks.collect()
    numbers = flow.read(source or ps.sources.items(list(range(COUNT))), name="numbers")
    halves = numbers.map(lambda n: n + 1, name="more").filter(lambda n: n % 2, name="odd")
    counted = halves.key_by(lambda n: n % 5).stateful_map(lambda s, n: (s + 1, (n, s)), init=int, name="counted")
    counted.write(sink, name="out")
    return flow, sink


def once(monkeypatch, owner, name, change):
    """Let one call of a method that deals with several tuples go wrong."""
    right, done = getattr(owner, name), []

    def wrong(self, *args, **options):
        if done or not (broken := change(right, self, *args, **options)):
            return right(self, *args, **options)
        done.append(True)
        return broken[0]

    monkeypatch.setattr(owner, name, wrong)
    return done


def lossy_take(right, port, budget):
    if len(port) < 3:
        return None
    values, born = right(port, budget)
    return [(values[:-1], born)]


def doubling_take(right, port, budget):
    if len(port) < 3:
        return None
    values, born = right(port, budget)
    return [([*values, values[-1]], born)]


def lossy_offer(right, port, values, born, notifies=True):
    return [right(port, values[1:], born, notifies)] if len(values) > 2 else None


def doubling_offer(right, port, values, born, notifies=True):
    return [right(port, [values[0], *values], born, notifies)] if len(values) > 2 else None


def lossy_give(right, outbox, port, values, born):
    return [right(outbox, port, values[1:], born)] if len(values) > 2 else None


PORT = {
    "taken and lost": ("take", lossy_take),
    "taken twice": ("take", doubling_take),
    "offered and lost": ("offer", lossy_offer),
    "offered twice": ("offer", doubling_offer),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PORT)
def test_a_queue_that_leaks(monkeypatch, engine, name):
    method, change = PORT[name]
    done = once(monkeypatch, Port, method, change)
    flow, _ = build()
    with pytest.raises(ps.ConservationError, match=r"flow 'leaky': tuples don't add up: .* defect of Penstock"):
        flow.run(ENGINES[engine]())
    assert done


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_wrong_without_a_leak(engine):
    flow, sink = build()
    flow.run(ENGINES[engine]())
    seen = {}
    expected = []
    for number in range(1, COUNT + 1, 2):
        expected.append((number, seen.get(number % 5, 0)))
        seen[number % 5] = expected[-1][1] + 1
    assert sink.items == expected


def test_the_rest_of_a_chunk_that_did_not_fit(monkeypatch):
    right = Port.offer

    def wrong(port, values, born, notifies=True):
        rest = right(port, values, born, notifies)
        return [] if 0 < len(rest) < len(values) else rest

    monkeypatch.setattr(Port, "offer", wrong)
    flow, _ = build()
    with pytest.raises(ps.ConservationError, match="'numbers' gave 3,000 tuples for 'more'"):
        flow.run(ENGINES["local"]())


def test_output_that_is_not_given(monkeypatch):
    assert once(monkeypatch, PortOutbox, "give", lossy_give) == []
    flow, _ = build()
    with pytest.raises(ps.ConservationError, match="'numbers' emitted 3,000 tuples and its readers were given 2,999"):
        flow.run(ENGINES["local"]())


def test_a_generated_loop_that_skips_a_tuple(monkeypatch):
    right, done = ChainKernel._run_whole, []

    def wrong(kernel, values, born, give):
        whole = kernel._chain.whole

        def skipping(values, outputs, fail, passed):
            done.append(whole(values[1:], outputs, fail, passed))

        object.__setattr__(kernel._chain, "whole", skipping if not done else whole)
        right(kernel, values, born, give)
        object.__setattr__(kernel._chain, "whole", whole)

    monkeypatch.setattr(ChainKernel, "_run_whole", wrong)
    flow = ps.Flow("leaky")
    flow.read(ps.sources.items(list(range(10)))).map(str, name="text").write(ps.sinks.collect())
    with pytest.raises(ps.ConservationError, match="'text' emitted 10 tuples and its readers were given 9"):
        flow.run("local", threads=1)


@pytest.mark.parametrize("unit", [Unit, KeyedUnit])
def test_a_unit_that_loses_its_output(monkeypatch, unit):
    right, done = Team.send, []

    def wrong(team, sent):
        if type(sent) is unit and sent.given and not done:
            done.append(True)
            sent.given = sent.given[1:]
        return right(team, sent)

    monkeypatch.setattr(Team, "send", wrong)
    flow, _ = build()
    with pytest.raises(ps.ConservationError, match="its readers were given"):
        flow.run(ENGINES["teams"]())
    assert done


class Skipping(Items):
    """Says that it is further than it has read."""

    def read(self, split, clock):
        for chunk in super().read(split, clock):
            yield Chunk(chunk.values[1:] if chunk.end == COUNT else chunk.values, chunk.end)


def test_a_source_that_goes_on_without_reading():
    flow, _ = build(Skipping(list(range(COUNT))))
    with pytest.raises(ps.ConservationError, match="source 'numbers' went on by 3,000 tuples and read 2,999"):
        flow.run(ENGINES["local"]())


def test_files_of_a_run_that_does_not_add_up_are_not_published(monkeypatch, tmp_path):
    once(monkeypatch, Port, "take", lossy_take)
    flow, _ = build(sink=ps.sinks.json(tmp_path / "out"))
    with pytest.raises(ps.ConservationError, match="was not published"):
        flow.run(ENGINES["local"]())
    assert list((tmp_path / "out").glob("*")) == []


# Checkpoints

LEAKS = {
    "a queue": (Port, "take", lossy_take),
    "a stage of files": (FileStage, "write", lambda right, stage, values: [right(stage, values[1:])]),
    "a stage that doubles": (FileStage, "write", lambda right, stage, values: [right(stage, [values[0], *values])]),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_nothing_of_a_checkpoint_that_does_not_add_up_is_published(monkeypatch, tmp_path, leak):
    def run():
        flow, _ = build(sink=ps.sinks.json(tmp_path / "out"))
        flow.run(ENGINES["local"](checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0.0), at_end="close")

    with monkeypatch.context() as patched:
        done = once(patched, *LEAKS[leak])
        with pytest.raises(ps.ConservationError, match=r"[Nn]othing .* was published"):
            run()
    assert done
    assert list((tmp_path / "out").glob("part-*")) == []
    run()  # nothing was kept of it either, so it can be done again
    lines = [line for path in sorted((tmp_path / "out").glob("part-*")) for line in path.read_text().splitlines()]
    assert [json.loads(line)[0] for line in lines] == list(range(1, COUNT + 1, 2))


def test_collected_values_are_counted_as_well(monkeypatch, tmp_path):
    once(monkeypatch, ValueStage, "write", lambda right, stage, values: [right(stage, values[1:])])
    flow, _ = build()
    with pytest.raises(ps.ConservationError, match="sink 'out' took in 1,500 tuples and 1,499 are to be published"):
        flow.run(ENGINES["local"](checkpoint=tmp_path / "checkpoint"), at_end="close")


# What may be missing


class First(ps.Operator):
    """Reads three tuples, and returns."""

    async def process(self, ctx):
        for _ in range(3):
            if await ctx.wait_all():
                await ctx.emit(ctx.inputs[0].pop())


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_reader_leaves_when_it_returns_is_not_missed(engine):
    flow, sink, others = ps.Flow("early"), ps.sinks.collect(), ps.sinks.collect()
    numbers = flow.read(ps.sources.items(list(range(COUNT)))).map(lambda n: n, name="same", replicas=2)
    flow.add(First(), numbers.map(lambda n: -n, name="less"), name="first").write(sink)
    flow.add(First(), numbers, name="other").write(others)
    flow.run(ENGINES[engine]())
    assert (sink.items, others.items) == ([0, -1, -2], [0, 1, 2])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_fails_and_what_is_late_is_accounted_for(engine):
    flow = ps.Flow("failing")
    sinks = [ps.sinks.collect() for _ in range(5)]
    numbers = flow.read(ps.sources.items(list(range(COUNT))), name="numbers")
    skipped = numbers.map(lambda n: (1 // (n % 3), n)[1], name="skips", on_error="skip")
    dead = skipped.map(lambda n: (1 // (n % 5), n)[1], name="dies", on_error="dead-letter")
    windows = dead.key_by(lambda n: n % 2).window(
        ps.windows.tumbling(10, time=lambda n: n % 100, on_late="dead-letter")
    )
    windows.count(name="windows").write(sinks[0])
    flow.dead_letters("dies").write(sinks[1])
    flow.dead_letters("windows").write(sinks[2])
    even, odd = dead.branch(lambda n: n % 2 == 0)
    even.write(sinks[3])
    odd.map_batch(lambda values: values[::2], name="halves").write(sinks[4])
    report = flow.run(ENGINES[engine]())
    assert len(sinks[1].items) == report.operators["dies"].failed == 400
    assert len(sinks[2].items) == report.operators["windows"].late > 0


def test_a_run_that_is_stopped_at_once_need_not_add_up():
    flow, _ = build(ps.sources.generate(lambda n: n))
    job = flow.start(ENGINES["local"]())
    while not job.metrics()["out"].received:
        pass
    job.stop(drain=False)
    job.wait()


def test_those_who_help_are_counted_once(monkeypatch):
    right = Team.__init__

    def with_guests(team, *args, **options):
        right(team, *args, **options)
        team.roster.allow_guests(2)

    monkeypatch.setattr(Team, "__init__", with_guests)
    flow, sink = ps.Flow("helped"), ps.sinks.collect()
    numbers = flow.read(ps.sources.items(list(range(COUNT)))).map(lambda n: n, name="one", replicas=1)
    numbers.map(lambda n: n + 1, name="two", replicas=2).write(sink)
    report = flow.run(shuffled(1, workers=4, helping=0.5, queue_size=64))
    assert sink.items == list(range(1, COUNT + 1))
    assert report.operators["two"].received == COUNT
