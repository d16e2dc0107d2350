"""The local engine against a hand-written loop, per-tuple queues and Bytewax: ratios from one run.

penstock bench local [--quick]

CPU time is the process's; every variant runs several times, interleaved, and the best time of each counts.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import penstock as ps

sys.path.insert(0, str(Path(__file__).parent))

from tools.results import Result, Results, result_of

try:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main
except ImportError:
    Dataflow = None


def add(x):
    return x + 1


def keep(x):
    return x % 5


def triple(x):
    return x * 3


def minus(x):
    return x - 7


def digit(x):
    return x % 1000


def total(state, x):
    state = state + x
    return state, state


# A flow of four functions and keyed state


def by_hand(values, keyed):
    out, states = [], {}
    for x in values:
        x = add(x)
        if not keep(x):
            continue
        x = minus(triple(x))
        if keyed:
            key = digit(x)
            states[key], x = total(states.get(key, 0), x)
        out.append(x)
    return out


def by_penstock(values, keyed):
    flow = ps.Flow("bench")
    stream = flow.read(ps.sources.items(values)).map(add).filter(keep).map(triple).map(minus)
    if keyed:
        stream = stream.key_by(digit).stateful_map(total, init=int)
    result = ps.sinks.collect()
    stream.write(result)
    flow.run(ps.engines.Local(threads=1))
    return result.items


def by_asyncio_queues(values, keyed):
    """An operator per task, a queue between each two, a tuple at a time."""
    end = object()

    async def stage(source, target, function):
        while (x := await source.get()) is not end:
            for y in function(x):
                await target.put(y)
        await target.put(end)

    states = {}

    def remember(x):
        key = digit(x)
        states[key], y = total(states.get(key, 0), x)
        return (y,)

    functions = [
        lambda x: (add(x),),
        lambda x: (x,) if keep(x) else (),
        lambda x: (triple(x),),
        lambda x: (minus(x),),
    ] + ([remember] if keyed else [])

    async def main():
        queues = [asyncio.Queue(1024) for _ in range(len(functions) + 1)]
        out = []

        async def feed():
            for x in values:
                await queues[0].put(x)
            await queues[0].put(end)

        async def drain():
            while (x := await queues[-1].get()) is not end:
                out.append(x)

        stages = [stage(a, b, f) for a, b, f in zip(queues, queues[1:], functions, strict=False)]
        await asyncio.gather(feed(), drain(), *stages)
        return out

    return asyncio.run(main())


def by_bytewax(values, keyed):
    out = []
    flow = Dataflow("bench")
    stream = op.input("in", flow, TestingSource(values, batch_size=1000))
    stream = op.map("add", stream, add)
    stream = op.filter("keep", stream, lambda x: bool(keep(x)))
    stream = op.map("triple", stream, triple)
    stream = op.map("minus", stream, minus)
    if keyed:
        by_digit = op.key_on("digit", stream, lambda x: str(digit(x)))
        stream = op.stateful_map("total", by_digit, lambda state, x: total(state or 0, x))
    op.output("out", stream, ListSink(out))
    run_main(flow)
    return out


def must_be(right: Result, found: Result, name: str) -> None:
    """All of it, at the size that is measured, when no time is taken."""
    if found != right:
        raise RuntimeError(f"{name} has {found}, and {right} is right")


def cpu_seconds(function: Callable[[], Any]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def chains(count: int, repeats: int) -> None:
    values = list(range(count))
    for keyed in (True, False):
        variants: dict[str, Callable[[], Any]] = {
            "by hand": lambda: by_hand(values, keyed),
            "penstock": lambda: by_penstock(values, keyed),
        }
        slow = list(range(count // 10))
        variants_slow: dict[str, Callable[[], Any]] = {"asyncio queues": lambda: by_asyncio_queues(slow, keyed)}
        if Dataflow is not None:
            variants_slow["bytewax"] = lambda: by_bytewax(slow, keyed)
        right, right_slow = result_of(by_hand(values, keyed)), result_of(by_hand(slow, keyed))
        for name, function in variants.items():
            must_be(right, result_of(function()), name)
        for name, function in variants_slow.items():
            out = function()
            # Bytewax gives pairs of key and value behind a keyed operator.
            must_be(right_slow, result_of([x[1] for x in out] if out and isinstance(out[0], tuple) else out), name)
        best = {name: float("inf") for name in (*variants, *variants_slow)}
        for _ in range(repeats):
            for _ in range(3):  # their difference is what matters, and it is small
                for name, function in variants.items():
                    best[name] = min(best[name], cpu_seconds(function) / count)
            for name, function in variants_slow.items():
                best[name] = min(best[name], cpu_seconds(function) / len(slow))
        what = "four functions and keyed state" if keyed else "four functions"
        print(f"\n{what}: nanoseconds of CPU a tuple, best of {repeats} ({3 * repeats} for the first two)")
        for name, seconds in best.items():
            print(f"  {name:<16}{seconds * 1e9:>8.0f}   {seconds / best['penstock']:.2f} of penstock")
        print(f"  penstock is {best['penstock'] / best['by hand']:.3f} of the hand-written loop")


# Driver loops


class UserZip(ps.Operator):
    inputs = 2

    async def process(self, ctx):
        left, right = ctx.inputs
        while await ctx.wait_all():
            await ctx.emit((left.pop(), right.pop()))


def zips(count: int, repeats: int) -> None:
    values = list(range(count))

    def run(build, sink=None):
        sink = sink or ps.sinks.null()
        flow = ps.Flow("bench")
        left, right = flow.read(ps.sources.items(values)), flow.read(ps.sources.items(values))
        build(flow, left, right).write(sink)
        flow.run(ps.engines.Local(threads=1))

    variants = {
        "driver loop": lambda sink=None: run(lambda flow, a, b: flow.add(UserZip(), a, b), sink),
        "built-in zip": lambda sink=None: run(lambda flow, a, b: a.zip(b), sink),
    }
    for name, function in variants.items():
        sink: Any = ps.sinks.collect()
        function(sink)
        must_be(result_of(zip(values, values, strict=True)), result_of(sink.items), name)
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(repeats):
        for name, function in variants.items():
            best[name] = min(best[name], cpu_seconds(function))
    print(f"\nzip of two streams: million pairs a second of CPU, best of {repeats}")
    for name, seconds in best.items():
        print(f"  {name:<16}{count / seconds / 1e6:>8.2f}")


# Long chains


def long_chains(count: int, repeats: int) -> None:
    def run(operators, tuples, fuse, is_checked=False):
        flow = ps.Flow("bench")
        stream = flow.read(ps.sources.items(range(tuples)))
        for _ in range(operators):
            stream = stream.map(add)
        sink: Any = ps.sinks.collect() if is_checked else ps.sinks.null()
        stream.write(sink)
        job = flow.start(ps.engines.Local(threads=1, fuse=fuse))
        job.wait()
        if is_checked:
            wanted = result_of(range(operators, operators + tuples))
            must_be(wanted, result_of(sink.items), f"{operators} operators, fuse={fuse}")

    print(f"\nlong chains: nanoseconds of CPU a tuple and hop, best of {repeats}")
    for fuse in (True, False):
        cost = {}
        for operators in (10, 1000):
            tuples = count // operators
            few, many = [], []
            run(operators, tuples, fuse, is_checked=True)
            for _ in range(repeats):
                few.append(cpu_seconds(lambda: run(operators, 1, fuse)))
                many.append(cpu_seconds(lambda: run(operators, tuples, fuse)))
            cost[operators] = (min(many) - min(few)) / tuples / operators
        print(
            f"  {'fused' if fuse else 'unfused':<16}10: {cost[10] * 1e9:.0f}   1000: {cost[1000] * 1e9:.0f}   "
            f"ratio {cost[1000] / cost[10]:.2f}"
        )


# Latency


def hand_off(seconds: float, rate: float) -> list[float]:
    """From one thread to another and no more: what any engine with threads must pay."""
    box: queue.SimpleQueue[Any] = queue.SimpleQueue()
    delays: list[float] = []

    def take():
        while (due := box.get()) is not None:
            delays.append(time.perf_counter() - due)

    thread = threading.Thread(target=take)
    thread.start()
    started = time.perf_counter()
    for number in range(int(seconds * rate)):
        due = started + number / rate
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        box.put(due)
    box.put(None)
    thread.join()
    return delays


def penstock_latency(seconds: float, rate: float, **options: Any) -> list[float]:
    delays: list[float] = []
    started = 0.0

    def due(number):
        nonlocal started
        if number == 0:
            started = time.perf_counter()
        return started + number / rate

    def note(intended):
        delays.append(time.perf_counter() - intended)

    flow = ps.Flow("bench")
    stream = flow.read(ps.sources.generate(due, count=int(seconds * rate), rate=rate))
    for _ in range(5):
        stream = stream.map(lambda x: x)
    stream.write(ps.sinks.call(note))
    flow.run(ps.engines.Local(**options))
    return delays


def bytewax_latency(seconds: float, rate: float) -> list[float]:
    delays: list[float] = []
    flow = Dataflow("bench")
    stream = op.input("in", flow, PacedSource(int(seconds * rate), rate))
    for number in range(5):
        stream = op.map(f"map-{number}", stream, lambda x: x)
    op.output("out", stream, CallSink(lambda intended: delays.append(time.perf_counter() - intended)))
    run_main(flow)
    return delays


def peak(function: Callable[[int], Any], count: int) -> float:
    started = time.perf_counter()
    function(count)
    return count / (time.perf_counter() - started)


def penstock_peak(count: int) -> None:
    flow = ps.Flow("bench")
    stream = flow.read(ps.sources.items(range(count)))
    for _ in range(5):
        stream = stream.map(lambda x: x)
    stream.write(ps.sinks.call(lambda x: None))
    flow.run(ps.engines.Local())


def bytewax_peak(count: int) -> None:
    flow = Dataflow("bench")
    stream = op.input("in", flow, TestingSource(range(count), batch_size=1000))
    for number in range(5):
        stream = op.map(f"map-{number}", stream, lambda x: x)
    op.output("out", stream, CallSink(lambda x: None))
    run_main(flow)


def latencies(seconds: float, repeats: int) -> None:
    peaks = [peak(penstock_peak, 200_000)] + ([peak(bytewax_peak, 100_000)] if Dataflow is not None else [])
    print(f"\nlatency through five operators, microseconds; medians of {repeats} runs of {seconds} s")
    print(f"  peak rates: penstock {peaks[0]:,.0f}/s" + (f", bytewax {peaks[1]:,.0f}/s" if len(peaks) > 1 else ""))
    for share in (0.1, 0.8):
        rate = share * min(peaks)
        variants: dict[str, Callable[[], list[float]]] = {
            "penstock": lambda: penstock_latency(seconds, rate),
            "penstock, 1": lambda: penstock_latency(seconds, rate, threads=1),
            "hand-off": lambda: hand_off(seconds, rate),
        }
        if Dataflow is not None:
            variants["bytewax"] = lambda: bytewax_latency(seconds, rate)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
        for _ in range(repeats):
            for name, function in variants.items():
                delays = sorted(function())
                if len(delays) != int(seconds * rate):
                    raise RuntimeError(f"{name}: {len(delays):,} of {int(seconds * rate):,} tuples came out")
                found[name].append((delays[len(delays) // 2], delays[int(len(delays) * 0.99)]))
        print(f"  at {share:.0%} of the lower peak ({rate:,.0f}/s)")
        for name, pairs in found.items():
            p50, p99 = (statistics.median(pair[place] for pair in pairs) * 1e6 for place in (0, 1))
            print(f"    {name:<14}p50 {p50:>8.0f}   p99 {p99:>8.0f}")


def idle(seconds: float) -> None:
    """A flow whose source gives nothing: how much of a core does it use?"""
    flow = ps.Flow("bench")
    flow.read(ps.sources.generate(lambda i: i, rate=0.001)).map(add).write(ps.sinks.null())
    job = flow.start(ps.engines.Local(threads=4))
    time.sleep(0.5)
    started = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - started
    job.stop()
    print(f"\nan idle flow with 4 threads uses {used / seconds:.3%} of a core")


def policies(repeats: int) -> None:
    """Throughput and latency of a flow of costly and cheap operators under every policy."""
    from penstock.runtime.policies import POLICIES

    results = Results()

    def run(policy):
        flow = ps.Flow("bench")
        numbers = flow.read(ps.sources.items(range(100_000)))
        left = numbers.map(add, replicas=1).map_batch(lambda xs: [triple(x) for x in xs])
        right = numbers.filter(keep).map_batch(lambda xs: [minus(x) for x in xs])
        sinks: list[Any] = [ps.sinks.collect(), ps.sinks.collect()]
        left.zip(numbers).key_by(lambda pair: pair[1] % 100).count().write(sinks[0])
        right.map_batch(lambda xs: xs).write(sinks[1])
        report = flow.run(ps.engines.Local(threads=2, policy=policy, fuse=False))
        for number, sink in enumerate(sinks):
            results.note(f"policies, output {number}", policy, result_of(sink.items))
        return report

    found: dict[str, list[Any]] = {name: [] for name in POLICIES}
    for _ in range(repeats):
        for name in POLICIES:
            found[name].append(run(name))
    print(f"\npolicies, two threads: medians of {repeats}")
    for name, reports in found.items():
        rate = statistics.median(100_000 / report.elapsed_seconds for report in reports)
        p50 = statistics.median(report.latency.p50 for report in reports) * 1e3
        p99 = statistics.median(report.latency.p99 for report in reports) * 1e3
        print(f"  {name:<20}{rate:>10,.0f} tuples/s   p50 {p50:>7.1f} ms   p99 {p99:>7.1f} ms")


if Dataflow is not None:

    class _CallPartition(StatelessSinkPartition):
        def __init__(self, function):
            self._function = function

        def write_batch(self, items):
            for item in items:
                self._function(item)

    class CallSink(DynamicSink):
        def __init__(self, function):
            self._function = function

        def build(self, step_id, worker_index, worker_count):
            return _CallPartition(self._function)

    class _ListPartition(StatelessSinkPartition):
        def __init__(self, out):
            self._out = out

        def write_batch(self, items):
            self._out.extend(items)

    class ListSink(DynamicSink):
        def __init__(self, out):
            self._out = out

        def build(self, step_id, worker_index, worker_count):
            return _ListPartition(self._out)

    class _PacedPartition(StatelessSourcePartition):
        def __init__(self, count, rate):
            from datetime import datetime

            self._count, self._rate, self._number = count, rate, 0
            self._started = time.perf_counter()
            self._wall = datetime.now(UTC)

        def next_batch(self):
            now, batch = time.perf_counter(), []
            while self._number < self._count and (due := self._started + self._number / self._rate) <= now:
                batch.append(due)
                self._number += 1
            if not batch and self._number >= self._count:
                raise StopIteration
            return batch

        def next_awake(self):
            from datetime import timedelta

            return self._wall + timedelta(seconds=self._number / self._rate)

    class PacedSource(DynamicSource):
        def __init__(self, count, rate):
            self._count, self._rate = count, rate

        def build(self, step_id, worker_index, worker_count):
            return _PacedPartition(self._count, self._rate)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench local", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and less certain")
    parser.add_argument("--only", choices=["chains", "zips", "long", "latency", "idle", "policies"])
    options = parser.parse_args(arguments)
    scale, repeats = (0.2, 2) if options.quick else (1.0, 5)
    if Dataflow is None:
        print("Bytewax is not installed (pip install bytewax): its rows are left out")
    parts = {
        "chains": lambda: chains(int(500_000 * scale), repeats),
        "zips": lambda: zips(int(1_000_000 * scale), repeats),
        "long": lambda: long_chains(int(5_000_000 * scale), repeats),
        "latency": lambda: latencies(2.0 * scale + 0.5, repeats),
        "idle": lambda: idle(4.0 * scale + 1),
        "policies": lambda: policies(repeats),
    }
    print(f"Python {sys.version.split()[0]}")
    for name, part in parts.items():
        if options.only in (None, name):
            part()


if __name__ == "__main__":
    main(sys.argv[1:])
