"""A process that is killed at any moment, and started again, has written every tuple once and in order."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import penstock as ps
from penstock.engines.durable import steps
from penstock.engines.durable.claims import Claims
from penstock.state.files import Files
from penstock.state.manifests import Manifests
from tests.conftest import shuffled
from tests.killed_flow import check_written, write_input, written

ROOT = str(Path(__file__).parents[2])
STEPS = ("staged", "processed", "manifest", "published")


def run_script(folder, call):
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); from pathlib import Path; "
        f"from tests.engines.local_kill_script import die_anywhere, main; folder = Path({str(folder)!r}); {call}"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path):
    write_input(tmp_path, files=12)
    return tmp_path


def check_finished(folder):
    finished = run_script(folder, "main(folder, 'never', 0, replicas=2)")
    assert finished.returncode == 0, finished.stderr[-2000:]
    check_written(folder)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step(folder, step):
    for batch in (0, 1):
        killed = run_script(folder, f"main(folder, {step!r}, {batch})")
        assert killed.returncode == -9, killed.stderr[-2000:]
    check_finished(folder)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_random_three_times(folder, seed):
    for life in range(3):
        assert run_script(folder, f"die_anywhere(folder, {seed * 3 + life})").returncode == -9
    check_finished(folder)


class Pairs(ps.Operator):
    async def process(self, ctx):
        (port,) = ctx.inputs
        while await ctx.wait_all({port: 2}):
            await ctx.emit((port.pop(), port.pop()))


class Numbered(ps.Operator):
    kind = "keyed"

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            await ctx.emit((value, ctx.state["n"]))


OPERATORS = {
    "keyed": lambda s: s.key_by(lambda x: x % 3).stateful_map(lambda n, x: (n + x, (x, n)), init=int, name="op"),
    "scan": lambda s: s.scan(lambda n, x: (n + x, n), 0, name="op"),
    "windows": lambda s: s.key_by(lambda x: x % 3).window(ps.windows.tumbling(4, time=float)).collect(name="op"),
    "windows of keys that go": lambda s: (
        s.key_by(lambda x: x // 3).window(ps.windows.tumbling(4, time=float)).count(name="op")
    ),
    "pairs": lambda s: s.flow.add(Pairs(), s, name="op"),
    "keyed loop": lambda s: s.flow.add(Numbered(), s.key_by(lambda x: x % 3), name="op"),
    "zip": lambda s: s.filter(lambda x: x % 4).zip(s.map(str), name="op"),
    "forgetful": lambda s: s.key_by(lambda x: x % 3).stateful_map(
        lambda n, x: (n + 1, (x, n)), init=int, ttl=5, time=float, name="op"
    ),
    "awaited": lambda s: s.map_async(_later, concurrency=3, name="op"),
}


async def _later(x):
    return x + 1


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_many_lives_are_one(operator, replicas, tmp_path):
    """Each run reads some more, and goes on with what the one before knew; the last one closes."""

    def run(count, engine, **options):
        flow = ps.Flow("lives")
        sink = ps.sinks.collect()
        OPERATORS[operator](flow.read(ps.sources.items(range(count)))).write(sink)
        flow.run(engine, **options)
        return sink.items

    checkpoint = {"checkpoint": tmp_path / "checkpoint", "checkpoint_seconds": 0, "replicas": replicas}
    for life, count in enumerate((7, 7, 20, 33)):
        kept = run(count, shuffled(life, queue_size=3, **checkpoint))
        assert kept == run(count, "sequential", at_end="keep")
    assert run(50, ps.engines.Local(threads=2, **checkpoint), at_end="close") == run(50, "sequential")
    with pytest.raises(ps.FlowError, match="a run that has ended"):
        run(60, ps.engines.Local(**checkpoint))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("first", [1, 3])
def test_replicas_may_change_between_checkpoints(operator, first, tmp_path):
    """What another cell has forgotten since the last checkpoint stays forgotten, and what it knew is known."""

    def run(count, engine, **options):
        flow = ps.Flow("lives")
        sink = ps.sinks.collect()
        job = None

        def rescale(value):
            if job is not None and value % 5 == 3:
                with suppress(ps.FlowError):  # those that have one replica
                    job.rescale("op", 1 + value % 4)
            return value

        read = flow.read(ps.sources.items(range(count)))
        OPERATORS[operator](read.scan(lambda state, value: (state, rescale(value)), 0, name="rescale")).write(sink)
        job = flow.start(engine, **options)
        job.wait()
        return sink.items

    checkpoint = {"checkpoint": tmp_path / "checkpoint", "checkpoint_seconds": 0, "replicas": first}
    for life, count in enumerate((13, 27, 44)):
        kept = run(count, shuffled(life, queue_size=3, **checkpoint))
        assert kept == run(count, "sequential", at_end="keep")
    assert run(60, ps.engines.Local(threads=2, **checkpoint), at_end="close") == run(60, "sequential")


def by_key(key):
    """Operators that remember something of each key of `range(n)`, where most come once."""
    return {
        "keyed": lambda s: s.key_by(key).stateful_map(lambda n, x: (n + x, n), init=int, name="op"),
        "windows": lambda s: s.key_by(key).window(ps.windows.tumbling(1e9, time=float)).count(name="op"),
        "keyed loop": lambda s: s.flow.add(Numbered(), s.key_by(key), name="op"),
        "forgetful": lambda s: s.key_by(key).stateful_map(
            lambda n, x: (n + 1, n), init=int, ttl=1e9, time=float, name="op"
        ),
    }


@pytest.mark.parametrize("operator", by_key(None))
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_checkpoint_writes_what_has_changed(operator, replicas, tmp_path):
    def written_bytes(count):
        before = set((tmp_path / "checkpoint" / "state").glob("*"))
        flow = ps.Flow("many keys")
        by_key(lambda x: x)[operator](flow.read(ps.sources.items(range(count)))).write(ps.sinks.null())
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint", replicas=replicas))
        after = set((tmp_path / "checkpoint" / "state").glob("*"))
        return sum(file.stat().st_size for file in after - before)

    all_keys = written_bytes(3000)
    assert written_bytes(3003) < all_keys / 50


def test_keys_that_equal_nothing_are_known_again(tmp_path):
    def run(count):
        flow = ps.Flow("nan")
        sink = ps.sinks.collect()
        keyed = flow.read(ps.sources.items(range(count))).key_by(lambda x: (float("nan"), x % 2))
        keyed.stateful_map(lambda n, x: (n + 1, n), init=int, name="count").write(sink)
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))
        return sink.items

    for count in 2, 4, 6:
        assert run(count) == [n // 2 for n in range(count)]


def test_nothing_is_seen_before_its_manifest(tmp_path, monkeypatch):
    seen = {}

    def reached(step):
        seen[step] = written(tmp_path, "out")

    monkeypatch.setattr(steps, "observer", reached)
    flow = ps.Flow("unseen")
    flow.read(ps.sources.items(range(3))).write(ps.sinks.text(tmp_path / "out"))
    report = flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))
    assert seen == {"staged": [], "processed": [], "manifest": [], "published": ["0", "1", "2"]}
    assert [(batch.number, batch.rows) for batch in report.batches] == [(0, 3)]
    assert report.batches[0].seconds > 0


@pytest.mark.parametrize("dies_in", [(Claims, "make"), (Files, "seal"), (Files, "create"), (Manifests, "write")])
def test_a_run_that_dies_while_it_takes_a_directory_is_gone_on_with(dies_in, tmp_path, monkeypatch):
    def run():
        flow = ps.Flow("owner")
        flow.read(ps.sources.items(range(3))).write(ps.sinks.text(tmp_path / "out"))
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))

    def dies(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*dies_in, dies)
        with pytest.raises((KeyboardInterrupt, ps.PenstockError), match="^$|KeyboardInterrupt"):
            run()
    run()
    assert written(tmp_path, "out") == ["0", "1", "2"]


def test_what_failed_is_done_again_by_the_next_run(tmp_path):
    def run(divisor):
        flow = ps.Flow("mended")
        divided = flow.read(ps.sources.items(range(5))).map(lambda x: x // divisor, name="divided")
        divided.write(ps.sinks.json(tmp_path / "out"))
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))

    with pytest.raises(ps.OperatorError, match="'divided'"):
        run(0)
    assert written(tmp_path, "out") == []
    run(1)
    assert [json.loads(line) for line in written(tmp_path, "out")] == list(range(5))


def test_a_run_that_is_stopped_is_gone_on_with(tmp_path):
    def run(wait_for):
        flow = ps.Flow("endless")
        sink, published, enough = ps.sinks.collect(), [], threading.Event()

        def count(value):
            published.append(value)
            if len(published) >= wait_for:
                enough.set()

        numbers = flow.read(ps.sources.generate(lambda i: i, rate=2000))
        sums = numbers.scan(lambda n, x: (n + x, n), 0, name="sum")
        sums.write(sink)
        sums.map(str).write(ps.sinks.call(count))
        job = flow.start(ps.engines.Local(checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0))
        assert enough.wait(60)
        job.stop()
        return sink.items

    first = run(50)
    second = run(50)
    assert len(second) >= len(first) + 50
    assert second[: len(first)] == first
    assert second == [n * (n - 1) // 2 for n in range(len(second))]


def test_a_loop_that_stands_elsewhere_is_named(tmp_path):
    class Wanders(ps.Operator):
        async def process(self, ctx):
            (port,) = ctx.inputs
            while await ctx.wait_all():
                first = port.pop()
                if await ctx.wait_all():
                    await ctx.emit((first, port.pop()))

    flow = ps.Flow("wandering")
    flow.add(Wanders(), flow.read(ps.sources.items(range(3))), name="wanders").write(ps.sinks.null())
    with pytest.raises(ps.CheckpointError, match="'wanders' waits at .*test_local_checkpoint.py"):
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))


class Source(ps.Operator):
    inputs = 0

    async def process(self, ctx):
        await ctx.emit(1)


def test_what_cannot_be_read_again_is_refused(tmp_path):
    flow = ps.Flow("loop")
    flow.add(Source(), name="made-up").write(ps.sinks.null())
    with pytest.raises(ps.FlowError, match="'made-up' .* driver loop without inputs"):
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))


def test_a_changed_flow_is_refused(tmp_path):
    def run(key):
        flow = ps.Flow("changed")
        numbers = flow.read(ps.sources.items([{"a": 1, "b": 2}]))
        numbers.key_by(key).count(name="counted").write(ps.sinks.null())
        flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))

    run("a")
    with pytest.raises(ps.CheckpointError, match="'counted' was running count by key a and is running count by key b"):
        run("b")


def test_a_list_keeps_what_another_sink_was_given_too(tmp_path):
    """Staged files are named by their content: what one sink is done with may be the only copy of the list's."""

    def run(count):
        flow = ps.Flow("same")
        numbers = flow.read(ps.sources.items(list(range(count))), name="numbers")
        sink, called = ps.sinks.collect(), []
        numbers.write(ps.sinks.call(called.append), name="called")
        numbers.write(sink, name="kept")
        flow.run(shuffled(1, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0))  # many batches
        return sink.items, called

    assert run(50) == (list(range(50)), list(range(50)))
    assert run(80) == (list(range(80)), list(range(50, 80)))
