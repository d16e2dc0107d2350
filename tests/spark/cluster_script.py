"""Runs flows on a cluster and says how what they give differs from the sequential engine.

python -m tests.spark.cluster_script <master> flows|long|straggling <folder> [setting=value …]

A process of its own, because a process can have one Spark session only. A long flow says "batch" when one is out; at
the end there is one line for each sink.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import penstock as ps
from tests.spark.conformance_script import rescale_all_the_time
from tests.spark.flows import FLOWS, collected, outputs
from tests.waiting import until

CONF = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "600m"}
ROWS_PER_BATCH = 3 * 8192
"""So that three tasks read each batch: the engine puts no fewer values into a part of its own accord."""
LONG_COUNT = 5 * ROWS_PER_BATCH


def slow(x: int) -> int:
    """Enough work that a death finds tasks under way."""
    for _ in range(1_000):
        x ^= 1
    return x


def straggling(folder: str) -> Callable[[int], int]:
    """Once in a batch, the first attempt of a task waits for a second one; each visit leaves a file behind."""

    def straggle(x: int) -> int:
        if x % ROWS_PER_BATCH == ROWS_PER_BATCH - 100:
            visits = Path(folder, str(x))
            visits.mkdir(exist_ok=True)
            visit = visits / str(os.getpid())
            visit.touch()
            if list(visits.iterdir()) == [visit]:
                until(lambda: len(list(visits.iterdir())) > 1, "a second attempt")
        return x

    return straggle


def long_flow(work: Callable[[int], int]) -> Callable[[ps.Flow, int], list[Any]]:
    """Every kind of stage: stateless, keyed, windows, and one that sees everything."""

    def make(flow: ps.Flow, count: int) -> list[Any]:
        numbers = flow.read(ps.sources.items(list(range(count)))).map(work)
        sums = numbers.key_by(lambda x: x % 97).stateful_map(lambda s, x: (s + x, (x, s)), init=int)
        timed = numbers.key_by(lambda x: x % 5).window(ps.windows.tumbling(500, time=float))
        total = sums.map(lambda pair: pair[1]).scan(lambda s, x: (s + x, s + x), 0)
        return [sums, timed.count(), total]

    return make


SOME_FLOWS = ("keyed", "own_classes", "windows", "columns", "dead_letters")
"""A flow with every kind of stage; the others take as long again."""


def moody(folder: str) -> Callable[[ps.Flow, int], list[Any]]:
    """Two branches see the same token of a tuple, which no second attempt would give again.

    Every task of the branches leaves a file behind when it begins.
    """

    def begun(state: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        Path(folder, f"begun-{context.taskAttemptId()}").touch()
        return slow(state)

    def make(flow: ps.Flow, count: int) -> list[Any]:
        tokens = flow.read(ps.sources.items(list(range(count)))).map(lambda x: (x, os.urandom(8).hex()))

        def branch(keys: int) -> Any:
            keyed = tokens.key_by(lambda pair: pair[0] % keys)
            return keyed.stateful_map(lambda s, pair: (begun(s), pair), init=int)

        return [branch(97), branch(89)]

    return make


def main(master: str, which: str, folder: str, *settings: str) -> None:
    conf = CONF | dict(setting.split("=", 1) for setting in settings)
    if which in ("flows", "all-flows"):
        for name in FLOWS if which == "all-flows" else SOME_FLOWS:
            engine = ps.engines.Spark(master=master, parallelism=3, rows_per_batch=70, conf=conf)
            flow, sinks = collected(FLOWS[name], 200)
            job = flow.start(engine)
            rescale_all_the_time(flow, job, seed=3)
            job.wait()
            compare(name, [sink.items for sink in sinks], outputs(FLOWS[name], 200, "sequential"))
        return
    if which == "step":
        step_in_load(master, conf)
        return
    engine = ps.engines.Spark(master=master, parallelism=3, rows_per_batch=ROWS_PER_BATCH, conf=conf)
    flow = ps.Flow(which)
    sinks = []
    make = moody(folder) if which == "moody" else long_flow(slow if which == "long" else straggling(folder))
    for stream in make(flow, LONG_COUNT):
        sinks.append(ps.sinks.collect())
        stream.write(sinks[-1])
    job = flow.start(engine)
    tell_batches(job)
    job.wait()
    if which == "moody":
        compare(which, [sinks[0].items], [sinks[1].items])
        return
    compare(which, [sink.items for sink in sinks], outputs(long_flow(lambda x: x), LONG_COUNT, "sequential"))


def counted_by_key(rate: ps.rates.Rate | None, count: int, seconds_each: float) -> tuple[ps.Flow, Any]:
    """Some work for each number, and then a count by its last digits."""
    flow, sink = ps.Flow("step"), ps.sinks.collect()

    def work(n: int) -> int:
        end = time.perf_counter() + seconds_each
        while time.perf_counter() < end:
            pass
        return n

    numbers = flow.read(ps.sources.generate(lambda n: n, count=count, rate=rate), name="in").map(work, name="work")
    numbers.key_by(lambda n: n % 100).stateful_map(lambda seen, n: (seen + 1, (n, seen)), init=int, name="seen").write(
        sink, name="out"
    )
    return flow, sink


def step_in_load(master: str, conf: dict[str, str]) -> None:
    """Little to do, then more than one executor can, then little again: executors go, come and go."""
    rate = ps.rates.steps((0, 40), (60, 260), (110, 40))
    count = int(rate.count_by(150))
    flow, sink = counted_by_key(rate, count, 0.005)
    engine = ps.engines.Spark(master=master, trigger=2.0, elastic=ps.Elastic(most_threads=2), conf=conf)
    report = flow.run(engine)
    for one in report.decisions:
        if one.signals.get("what") == "executors":
            print(f"executors {one.before:g} {one.after:g} at {one.time:.0f}: {one.reason}", flush=True)
    expected_flow, expected = counted_by_key(None, count, 0.0)
    expected_flow.run("sequential")
    compare("step", [sink.items], [expected.items])


def tell_batches(job: ps.engines.Job) -> None:
    told = 0
    while job.is_running:
        received = sum(operator.received for operator in job.metrics().values())
        if received > told:
            print("batch", flush=True)
            told = received
        with suppress(TimeoutError):
            job.wait(timeout=0.02)


def compare(name: str, found: list[list[Any]], expected: list[list[Any]]) -> None:
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        pairs = enumerate(zip(ours, theirs, strict=False))
        different = next((f"at {at}: {our!r}, not {their!r}" for at, (our, their) in pairs if our != their), None)
        if different is None and len(ours) != len(theirs):
            different = f"{len(ours)} tuples, not {len(theirs)}"
        print(f"{name} {number}: {different or f'the same {len(ours)} tuples'}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
