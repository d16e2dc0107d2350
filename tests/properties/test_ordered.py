"""Any number of workers in any operator, changing all the time, and the output is that of one thread."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.properties.engines import shuffled, threaded
from tests.properties.test_flows import STEPS, Step


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


def last_of_each(values):
    seen: dict[int, int] = {}
    found = []
    for value in values:
        found.append(value - seen.get(value % 4, 0))
        seen[value % 4] = value
    return found


def mostly_one(value: int) -> int:
    """Four tuples of five have the same key."""
    return 0 if value % 5 else value


def counted(values):
    keys = [mostly_one(value) for value in values]
    return [value + keys[: place + 1].count(keys[place]) for place, value in enumerate(values)]


STEPS_IN_TEAMS = [
    *STEPS,
    Step("busy", lambda s: s.map(busy), lambda v: [busy(x) for x in v]),
    Step("echo", lambda s: s >> Echo(), lambda v: [x for x in v for _ in range(x % 3)]),
    Step(
        "last of each",
        lambda s: s.key_by(lambda x: x % 4).stateful_map(lambda last, x: (x, x - last), init=int),
        last_of_each,
    ),
    Step(
        "mostly one key",
        lambda s: s.key_by(mostly_one).stateful_map(lambda n, x: (n + 1, x + n + 1), init=int),
        counted,
    ),
]
RESCALES = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 9), st.integers(1, 4)), max_size=6)


def check(engine, steps, values, rescales):
    flow = ps.Flow("ordered")
    sink = ps.sinks.collect()
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

    stream = flow.read(ps.sources.items(values)).scan(lambda state, value: (state, rescale(value)), 0)
    for step in steps:
        stream = step.on_stream(stream)
    stream.write(sink)
    job = flow.start(engine)
    job.wait(timeout=60)
    for step in steps:
        values = step.on_list(values)
    assert sink.items == values


CASES = (
    st.one_of(shuffled(), shuffled(), threaded()),
    st.lists(st.sampled_from(STEPS_IN_TEAMS), min_size=1, max_size=5),
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
def test_theorem_5_2_only_ordered_executions(engine, steps, values, rescales):
    check(engine, steps, values, rescales)


@pytest.mark.long
@pytest.mark.timeout(3000)
@given(*CASES)
@settings(max_examples=10_000, derandomize=False)
def test_theorem_5_2_ten_thousand_times(engine, steps, values, rescales):
    check(engine, steps, values, rescales)
