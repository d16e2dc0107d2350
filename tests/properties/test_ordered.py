"""Any number of workers in any operator, changing all the time, and the output is that of one thread."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.properties.engines import shuffled, threaded
from tests.properties.test_flows import STEPS


class Echo(ps.Operator):
    kind = "stateless"

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            await ctx.emit_many([value] * (value % 3))


def busy(value: int) -> int:
    """Ten times as much work for one tuple as for another."""
    for _ in range(500 if value % 5 == 0 else 50):
        value ^= 1
    return value


def mostly_one(value: int) -> int:
    """Four tuples of five have the same key."""
    return 0 if value % 5 else value


TRANSFORMS = {step.name: step.on_stream for step in STEPS} | {
    "busy": lambda s: s.map(busy),
    "many": lambda s: s.filter(lambda x: x % 7 == 3).flat_map(lambda x: [x] * 50),
    "echo": lambda s: s >> Echo(),
    "last of each": lambda s: s.key_by(lambda x: x % 4).stateful_map(lambda last, x: (x, x - last), init=int),
    "mostly one key": lambda s: s.key_by(mostly_one).stateful_map(lambda n, x: (n + 1, x + n + 1), init=int),
    "windows": lambda s: s.key_by(mostly_one).window(ps.windows.tumbling(9, time=float)).count().map(lambda w: w.value),
}
SPLITS = {"branch": lambda s: s.branch(lambda x: x % 3 == 0)}
JOINS = {"zip": lambda one, other: one.zip(other).map(sum)}


@dataclass(frozen=True)
class Node:
    """An operator that is drawn, and which of the streams before it it reads."""

    name: str
    reads: tuple[int, int]

    def __repr__(self) -> str:
        return f"{self.name} of {self.reads}"

    def added_to(self, streams):
        one, other = (streams[place % len(streams)] for place in self.reads)
        if self.name in SPLITS:
            return [*streams, *SPLITS[self.name](one)]
        return [*streams, JOINS[self.name](one, other) if self.name in JOINS else TRANSFORMS[self.name](one)]


# Most read what has just been made, so that flows are long as well as wide.
PLACES = st.one_of(st.just(-1), st.just(-1), st.integers(0, 7))
NODES = st.lists(
    st.builds(Node, st.sampled_from([*TRANSFORMS, *SPLITS, *JOINS]), st.tuples(PLACES, PLACES)), min_size=1, max_size=7
).filter(lambda nodes: sum(node.name == "many" for node in nodes) <= 1)  # two would make thousands of one
RESCALES = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 20), st.integers(1, 4)), max_size=6)


def outputs(engine, nodes, values, rescales=()):
    """What comes to the sinks, of which there is one behind every stream."""
    flow = ps.Flow("ordered")
    job = None
    place = 0

    def rescale(value):
        """Called for one tuple after the other, by a worker in the middle of its work."""
        nonlocal place
        names = [node.name for node in flow.validate().nodes]
        for at, operator, count in rescales:
            if at == place and job is not None:
                with suppress(ps.FlowError):  # those that have one replica
                    job.rescale(names[operator % len(names)], count)
        place += 1
        return value

    streams = [flow.read(ps.sources.items(values)).scan(lambda state, value: (state, rescale(value)), 0)]
    for node in nodes:
        streams = node.added_to(streams)
    sinks = [ps.sinks.collect() for _ in streams]
    for stream, sink in zip(streams, sinks, strict=True):
        stream.write(sink)
    job = flow.start(engine)
    job.wait(timeout=60)
    return [sink.items for sink in sinks]


def check(engine, nodes, values, rescales):
    assert outputs(engine, nodes, values, rescales) == outputs(ps.engines.Sequential(), nodes, values)


CASES = (
    st.one_of(shuffled(), shuffled(), threaded()),
    NODES,
    st.lists(st.integers(-20, 20), max_size=30),
    RESCALES,
)


DEATHS = (
    st.sets(st.integers(0, 39), max_size=2),
    st.integers(2, 4),
    st.sampled_from([1, 5, 1000]),
    st.sampled_from(["pull", "round-robin", "least-loaded"]),
)


@given(*DEATHS)
@settings(max_examples=4)
def test_companions_may_die_at_any_tuple(deaths, threads, queue_size, split):
    check_deaths(deaths, threads, queue_size, split)


@pytest.mark.long
@pytest.mark.timeout(3000)
@given(*DEATHS)
@settings(max_examples=150, derandomize=False)
def test_companions_may_die_at_any_tuple_often(deaths, threads, queue_size, split):
    check_deaths(deaths, threads, queue_size, split)


def check_deaths(deaths, threads, queue_size, split):
    """Each of these tuples kills the process that first works on it."""
    with TemporaryDirectory() as died:

        def deadly(value):
            if value in deaths and not (marker := Path(died, str(value))).exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return -value

        flow = ps.Flow("deaths")
        sink = ps.sinks.collect()
        flow.read(ps.sources.items(range(40))).map(deadly).write(sink)
        flow.run(ps.engines.Local(threads=threads, workers="processes", queue_size=queue_size, split=split))
        assert sink.items == [-value for value in range(40)]
        assert {int(name) for name in os.listdir(died)} == deaths


@given(*CASES)
@settings(max_examples=300)
def test_theorem_5_2_only_ordered_executions(engine, nodes, values, rescales):
    check(engine, nodes, values, rescales)


@pytest.mark.long
@pytest.mark.timeout(3000)
@given(*CASES)
@settings(max_examples=10_000, derandomize=False)
def test_theorem_5_2_ten_thousand_times(engine, nodes, values, rescales):
    check(engine, nodes, values, rescales)
