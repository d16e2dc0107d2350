"""What a checkpoint writes, and what a run keeps in memory and needs on disk, depends on what is alive."""

import gc
import types
from collections import deque
from dataclasses import dataclass

import pytest

import penstock as ps
from penstock.connectors.source import Chunk, Source, Split
from penstock.engines import local_checkpoint
from penstock.engines.durable import steps
from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.local_checkpoint import LocalCheckpoint
from penstock.runtime.teams import keyed
from tests.conftest import shuffled

KEYS = 100
"""So many come in each chunk, and as many go: their time is that of the chunk."""
CHUNKS = 50


class Waves(Source):
    """A chunk of keys that never come again, in each second of event time."""

    def __init__(self, chunks=CHUNKS, keys=KEYS):
        self._chunks = chunks
        self._keys = keys

    def splits(self):
        return [Split("waves", 0, self._chunks)]

    def read(self, split, clock):
        for wave in range(split.start, split.end):
            yield Chunk([(wave * self._keys + key, float(wave)) for key in range(self._keys)], wave + 1)


def key(value):
    return value[0]


def time(value):
    return value[1]


class Once(ps.Operator):
    """Ends with the first tuple of its key."""

    kind = "keyed"

    async def process(self, ctx):
        ctx.state["kept until then"] = "x" * 1000
        if await ctx.wait_any():
            await ctx.emit([port.pop() for port in ctx.inputs if len(port)])


class OnceOfTwo(Once):
    inputs = 2


def _windowed(window):
    return lambda waves: waves.key_by(key).window(window).count(name="op")


OPERATORS = {
    "tumbling": _windowed(ps.windows.tumbling(2, time=time)),
    "tumbling, of a few keys": lambda waves: (
        waves.key_by(lambda value: value[0] % 4).window(ps.windows.tumbling(2, time=time)).count(name="op")
    ),
    "sliding": _windowed(ps.windows.sliding(4, every=1, time=time)),
    "session": _windowed(ps.windows.session(3, time=time)),
    "join": lambda waves: waves.key_by(key).join(
        waves.map(lambda value: value).key_by(key), within=2, time=time, lateness=0, name="op"
    ),
    "ttl": lambda waves: waves.key_by(key).stateful_map(
        lambda n, value: (n + 1, n), init=int, ttl=3, time=time, name="op"
    ),
}


LOOPS = {
    "loop": lambda waves: waves.flow.add(Once(), waves.key_by(key), name="op"),
    "loop with two inputs": lambda waves: waves.flow.add(
        OnceOfTwo(), waves.key_by(key), waves.map(lambda value: value).key_by(key), name="op"
    ),
    "loops for a few": lambda waves: waves.flow.add(Once(), waves.key_by(lambda value: value[0] % 10), name="op"),
}


@dataclass(frozen=True)
class Size:
    """Of one checkpoint."""

    written_bytes: int
    needed_bytes: int
    """The segments of all chains."""
    needed_files: int
    entries: int
    """In all that can be reached from the run and its checkpoint, before it is taken."""


def entries_of(*roots):
    """How many things are in containers that can be reached, but for records of a fixed length."""
    seen, found, todo = set(), 0, list(roots)
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, types.ModuleType | type | types.CodeType | types.FrameType | str | bytes):
            continue
        seen.add(id(one))
        if isinstance(one, types.FunctionType):
            todo += [one.__defaults__, one.__closure__]
        elif not (isinstance(one, deque) and one.maxlen):
            found += len(one) if isinstance(one, dict | set | list | deque) else 0
            todo += gc.get_referents(one)
    return found


def sizes(operator, tmp_path, monkeypatch, chunks_per_checkpoint=1, chunks=CHUNKS, **options):
    """Of each checkpoint of a run over waves of keys."""
    found, entries, state = [], [], tmp_path / "checkpoint" / "state"
    checkpoints, runs, asked = [], [], [0]
    attach, is_due = LocalCheckpoint.attach, LocalCheckpoint.is_due

    class Noted(Checkpoint):
        def __init__(self, *args):
            stores.append(self)
            super().__init__(*args)

    stores = []

    def reached(step):
        (checkpoint,), (run,) = checkpoints, runs
        if step == "staged":
            entries.append(entries_of(run, checkpoint))
        if step == "published":
            files = set(state.glob("*"))
            segments = {one for chain in stores[0].manifests.chains().values() for one in chain}
            found.append(
                Size(
                    sum(file.stat().st_size for file in files - seen),
                    sum(one.length for one in segments),
                    len({one.file for one in segments}),
                    entries[-1],
                )
            )
            seen.update(files)

    def attached(checkpoint, registry):
        checkpoints.append(checkpoint)
        runs.append(registry)
        attach(checkpoint, registry)

    def is_due_now(checkpoint):
        asked[0] += 1
        return asked[0] % chunks_per_checkpoint == 0 and is_due(checkpoint)

    seen = set()
    monkeypatch.setattr(keyed, "_MOST_KNOWN_KEYS", KEYS)
    monkeypatch.setattr(steps, "observer", reached)
    monkeypatch.setattr(local_checkpoint, "Checkpoint", Noted)
    monkeypatch.setattr(LocalCheckpoint, "attach", attached)
    monkeypatch.setattr(LocalCheckpoint, "is_due", is_due_now)
    flow = ps.Flow("waves")
    ({**OPERATORS, **LOOPS})[operator](flow.read(Waves(chunks))).write(ps.sinks.null())
    flow.run(shuffled(1, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0, **options))
    return found


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("operator", OPERATORS)
def test_fifty_checkpoints_are_like_ten(operator, replicas, tmp_path, monkeypatch):
    found = sizes(operator, tmp_path, monkeypatch, replicas=replicas)
    assert len(found) >= CHUNKS
    for what in Size.__annotations__:
        early, late = (max(getattr(size, what) for size in some) for some in (found[5:12], found[-7:]))
        assert late <= 1.5 * early + (what == "needed_files"), what


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("operator", OPERATORS)
def test_what_comes_and_goes_between_two_checkpoints_leaves_nothing(operator, replicas, tmp_path, monkeypatch):
    often = sizes(operator, tmp_path, monkeypatch, replicas=replicas)[-5:]
    seldom = sizes(operator, tmp_path / "seldom", monkeypatch, 20, replicas=replicas, chunks=100)[-2:]
    for what in "written_bytes", "needed_bytes", "entries":
        assert max(getattr(size, what) for size in seldom) <= 1.5 * max(getattr(size, what) for size in often), what


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_has_returned_leaves_a_mark(loop, replicas, tmp_path, monkeypatch):
    """Its key must be known, for what else comes for it is for nobody; and nothing more."""
    found = sizes(loop, tmp_path, monkeypatch, chunks=20, replicas=replicas)
    new_keys = 0 if loop == "loops for a few" else 10 * KEYS
    assert found[19].needed_bytes - found[9].needed_bytes <= 2 * 60 * new_keys
    assert found[19].entries - found[9].entries <= 100 + 6 * new_keys
