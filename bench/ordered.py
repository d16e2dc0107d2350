"""Several workers in one operator, output in order: what order costs, and what workers bring. Ratios from one run.

penstock bench ordered [--quick] [--only <part>]

Every variant runs many times for a short while, in rounds, and is compared within its round: the median of these ratios
counts, because on a shared machine the best times come from different moments. Rounds in which others had more than 3%
of the cores don't count, where there are enough others.
Functions that release the GIL compute a checksum; those that do not count in a loop.
What comes out is kept, and compared when the time is taken: contestants whose results differ are no contestants.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.ordering.reorder import LockedBuffer, ReorderBuffer, Ring

sys.path.insert(0, str(Path(__file__).parent))

from tools.neighbours import Contest
from tools.results import Results, result_of

DATA = bytes(1 << 20)
RESULTS = Results()


def spin(steps: int) -> Callable[[int], int]:
    """A pure Python function of so many steps."""

    def work(x: int) -> int:
        for _ in range(steps):
            x ^= 1
        return x

    return work


def checksum(size: int) -> Callable[[int], int]:
    """A function that works outside the GIL, on so many bytes."""
    rounds = -(-size // len(DATA))
    data = memoryview(DATA)[: size // rounds]

    def work(x: int) -> int:
        for _ in range(rounds):
            zlib.crc32(data)
        return x

    return work


def calibrated(
    make: Callable[[int], Callable[[int], int]], microseconds: float, least: int = 1
) -> Callable[[int], int]:
    """A function that takes so long on this machine, at this moment."""
    size = 1 << 10
    while True:
        work = make(size)
        began = time.perf_counter()
        for x in range(50):
            work(x)
        taken = (time.perf_counter() - began) / 50 * 1e6
        if taken > microseconds / 4:
            return make(max(least, int(size * microseconds / taken)))
        size *= 2


def seconds_of(
    build: Callable[[ps.Stream], ps.Stream],
    count: int,
    values: Any = None,
    contest: str = "",
    in_any_order: bool = False,
    **options: Any,
) -> float:
    """How long a flow takes from items to a list, which must be the same as that of all others in its contest."""
    flow = ps.Flow("ordered")
    source = ps.sources.items(range(count) if values is None else values)
    sink: Any = ps.sinks.collect()
    build(flow.read(source)).write(sink)
    began = time.perf_counter()
    flow.run(ps.engines.Local(**options))
    seconds = time.perf_counter() - began
    if contest:
        RESULTS.note(contest, str(options), result_of(sink.items, in_any_order))
    return seconds


def bare_seconds(work: Callable[[int], int], count: int, workers: int) -> float:
    """Of threads that have nothing to do with each other: what this machine allows at this moment."""
    bunch = [threading.Thread(target=lambda: [work(x) for x in range(count // workers)]) for _ in range(workers)]
    return seconds_together(bunch)


def seconds_together(threads: list[threading.Thread]) -> float:
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def shown(title: str, ratio: float, goal: str = "", contest: Contest | None = None) -> None:
    rounds = f"  ({contest.quiet} of {contest.played} rounds quiet)" if contest else ""
    print(f"  {title:<72} {ratio:6.2f}{'  goal ' + goal if goal else ''}{rounds}", flush=True)


# What order costs


def order(scale: float, rounds: int) -> None:
    print("\nOrdered against unordered (throughput, two workers)")
    for microseconds, goal in (10, "0.97"), (100, "0.97"):
        count = int(1_500_000 * scale / microseconds)
        for what, make, least in ("outside the GIL", checksum, 8192), ("pure Python", spin, 1):
            work = calibrated(make, microseconds, least)

            def run(ordered: bool, work=work, count=count, contest=f"{microseconds} µs, {what}") -> float:
                build = partial(ps.Stream.map, fn=work, replicas=2, ordered=ordered)
                return seconds_of(build, count, contest=contest, in_any_order=True, threads=2)

            found = Contest({"ordered": lambda: run(True), "unordered": lambda: run(False)}, rounds)
            shown(f"{microseconds} µs a tuple, {what}", found.ratio("unordered", "ordered"), goal, found)


def latency(scale: float, rounds: int) -> None:
    """Paced, at half of what two workers can do; every tenth tuple takes ten times as long."""
    print("\nLatency with service times that vary tenfold (seconds from entry to sink)")
    short, long = calibrated(checksum, 100, 8192), calibrated(checksum, 1000, 8192)
    rate = 0.5 * 2 / (0.9 * 100e-6 + 0.1 * 1000e-6)
    count = int(rate * 3 * scale)

    def run(ordered: bool) -> list[float]:
        found: list[float] = []
        flow = ps.Flow("paced")
        began = 0.0

        def work(pair: tuple[int, float]) -> tuple[int, float]:
            (long if pair[0] % 10 == 0 else short)(pair[0])
            return pair

        paced = flow.read(ps.sources.generate(lambda i: (i, began + i / rate), count=count, rate=rate))
        done = paced.map(work, replicas=2, ordered=ordered)
        done.write(ps.sinks.call(lambda pair: found.append(time.perf_counter() - pair[1])))
        began = time.perf_counter()
        flow.run(ps.engines.Local(threads=3))
        if len(found) != count:
            raise RuntimeError(f"latency: {len(found):,} of {count:,} tuples came out")
        return sorted(found)

    def tail(ordered: bool) -> float:
        found = run(ordered)
        return found[int(len(found) * 0.99)]

    found = Contest({"ordered": lambda: tail(True), "unordered": lambda: tail(False)}, rounds)
    ordered, unordered = (statistics.median(found.seconds[which]) * 1e3 for which in ("ordered", "unordered"))
    title = f"p99 ordered ({ordered:.2f} ms) against unordered ({unordered:.2f} ms)"
    shown(title, found.ratio("ordered", "unordered"), "1.5", found)


# What workers bring


def in_threads(scale: float, rounds: int) -> None:
    print("\nTwo threads against one, functions that release the GIL")
    import numpy as np

    angles = np.random.default_rng(0).random(10_000)
    squeezed = os.urandom(5000)
    works: dict[str, Callable[[int], int]] = {
        "crc32": calibrated(checksum, 100, 8192),
        "numpy sine": lambda x: (np.sin(angles), x)[1],
        "zlib": lambda x: (zlib.compress(squeezed), x)[1],
    }
    for name, work in works.items():
        count = int(40_000 * scale)  # long enough for what begins and ends a run not to count

        def run(workers: int, work=work, count=count, contest=f"threads, {name}") -> float:
            build = partial(ps.Stream.map, fn=work, replicas=workers)
            return seconds_of(build, count, contest=contest, threads=workers)

        found = Contest(
            {
                "one": lambda: run(1),
                "two": lambda: run(2),
                "bare": lambda: bare_seconds(work, count, 1),
                "bare two": lambda: bare_seconds(work, count, 2),
            },
            rounds * 3 // 5,
        )
        possible = found.ratio("bare", "bare two")
        shown(f"{name} (bare threads gain {possible:.2f}x)", found.ratio("one", "two"), "1.8", found)
        shown(f"{name}: two threads of a flow against two bare ones", found.ratio("bare two", "two"))


def processes(scale: float, rounds: int) -> None:
    """Against one thread, and against what two processes that have nothing to do with each other gain here."""
    print("\nTwo companion processes against one thread, pure Python; start-up not counted")
    for microseconds, goal in (100, "1.85"), (20, "1.6"):
        count = int(4_000_000 * scale / microseconds)
        steps = _steps(microseconds)
        work = spin(steps)

        def run(work=work, count=count, contest=f"processes, {microseconds} µs", **options: Any) -> float:
            return _steady_seconds(lambda s: s.map(work), count, contest, **options)

        found = Contest(
            {
                "thread": lambda: run(threads=1),
                "companions": lambda: run(threads=2, workers="processes"),
                "alone": lambda: _independent(1, steps, count),
                "pair": lambda: _independent(2, steps, count // 2),
            },
            rounds * 3 // 5,
        )
        gains, possible = found.ratios("thread", "companions"), found.ratios("alone", "pair")
        shown(
            f"{microseconds} µs a tuple: {statistics.median(gains):.2f}x,"
            f" of the {statistics.median(possible):.2f}x of independent processes",
            statistics.median(gain / most * 2 for gain, most in zip(gains, possible, strict=True)),
            goal,
            found,
        )


def _steps(microseconds: float) -> int:
    began = time.perf_counter()
    spin(100_000)(0)
    return int(100_000 * microseconds * 1e-6 / (time.perf_counter() - began))


def _steady_seconds(build: Callable[[ps.Stream], ps.Stream], count: int, contest: str, **options: Any) -> float:
    """From the first tuple at the sink to the last, scaled to all: processes have started by then."""
    flow = ps.Flow("steady")
    times: list[tuple[float, int]] = []
    found: list[Any] = []

    def note(value: Any) -> None:
        found.append(value)
        if len(found) % 64 == 0:
            times.append((time.perf_counter(), len(found)))

    build(flow.read(ps.sources.items(range(count)))).write(ps.sinks.call(note))
    flow.run(ps.engines.Local(**options))
    RESULTS.note(contest, str(options), result_of(found))
    (began, first), (ended, last) = times[len(times) // 5], times[-1]
    return (ended - began) / (last - first) * count


def _independent(number: int, steps: int, count: int) -> float:
    code = (
        f"import time\nsteps, count = {steps}, {count}\n"
        "def work(x):\n    for _ in range(steps):\n        x ^= 1\n    return x\n"
        "began = time.perf_counter()\n"
        "for x in range(count):\n    work(x)\n"
        "print(time.perf_counter() - began)"
    )
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(number)]
    return max(float(process.communicate()[0]) for process in started)


# Keys


def skewed(count: int) -> list[int]:
    """Four of five tuples have the same key."""
    return [0 if x % 5 else x * 7919 % 1000 for x in range(count)]


def even(count: int) -> list[int]:
    return [x * 7919 % 1000 for x in range(count)]


def update(state: int, value: int) -> tuple[int, int]:
    return state + 1, state


def skew(scale: float, rounds: int) -> None:
    print("\n80% of tuples on one key, 100 µs of work before a keyed update, two workers")
    work = calibrated(checksum, 100, 8192)
    count = int(15_000 * scale)

    def both(state: int, value: int) -> tuple[int, int]:
        work(value)
        return update(state, value)

    def ours(values: list[int]) -> float:
        return seconds_of(
            lambda s: s.map(work, replicas=2).key_by(lambda x: x).stateful_map(update, init=int, replicas=2),
            count,
            values,
            contest=f"skew {hash(tuple(values))}",
            threads=2,
        )

    def by_hash(values: list[int]) -> float:
        return seconds_of(
            lambda s: s.key_by(lambda x: x).stateful_map(both, init=int, replicas=2),
            count,
            values,
            contest=f"skew {hash(tuple(values))}",
            threads=2,
            keyed_queue="partitioned",
        )

    found = Contest(
        {
            "ours": lambda: ours(skewed(count)),
            "ours, even": lambda: ours(even(count)),
            "by hash": lambda: by_hash(skewed(count)),
            "bare": lambda: bare_seconds(work, count, 1),
            "bare two": lambda: bare_seconds(work, count, 2),
        },
        rounds,
    )
    possible = 0.9 * found.ratio("bare", "bare two")  # one of two has nine tenths of the work
    shown(f"against hash partitioning (bare threads: {possible:.2f})", found.ratio("by hash", "ours"), "1.6", found)
    shown("against the same load without skew", found.ratio("ours, even", "ours"), "0.9", found)


def queues(scale: float, rounds: int) -> None:
    """Figures 9 and 10 of "Scaling Ordered Stream Processing", with two workers."""
    print("\nHybrid queue against partitioned and shared queue: throughput, work in the keyed function")
    work = calibrated(checksum, 50, 8192)
    count = int(20_000 * scale)

    def costly(state: int, value: int) -> tuple[int, int]:
        work(value)
        return update(state, value)

    def run(values: list[int], keyed_queue: str) -> float:
        return seconds_of(
            lambda s: s.key_by(lambda x: x).stateful_map(costly, init=int, replicas=2),
            count,
            values,
            contest=f"queues {hash(tuple(values))}",
            threads=2,
            keyed_queue=keyed_queue,
        )

    for share in 0.0, 0.3, 0.5, 0.8:
        hot = [0 if x % 10 < share * 10 else 1 + x * 7919 % 999 for x in range(count)]
        found = Contest(
            {name: (lambda name=name, hot=hot: run(hot, name)) for name in ("hybrid", "partitioned", "shared")}, rounds
        )
        shown(f"{share:.0%} on one key: hybrid against partitioned", found.ratio("partitioned", "hybrid"))
        shown(f"{share:.0%} on one key: hybrid against shared", found.ratio("shared", "hybrid"))


class Timed:
    """Where units go, and how long each was under way in its operator."""

    def __init__(self, outlet: Any, seconds: list[float]) -> None:
        self._outlet = outlet
        self._seconds = seconds

    @property
    def is_blocked(self) -> bool:
        return self._outlet.is_blocked

    def send(self, unit: Any) -> bool:
        is_sent = self._outlet.send(unit)
        if is_sent and unit.values:
            self._seconds.append(time.perf_counter() - unit.since)
        return is_sent


def under_way(scale: float, rounds: int) -> None:
    """Figure 10: from the moment a unit is taken to the moment it leaves in order, by the cost of a tuple."""
    print("\nProcessing latency of a unit (about a millisecond of tuples, or one of them): mean, even keys")
    for microseconds in 10, 100, 1000, 10_000:
        work = calibrated(checksum, microseconds, 8192)
        count = int(min(20_000, 2_000_000 / microseconds) * scale)

        def costly(state: int, value: int, work=work) -> tuple[int, int]:
            work(value)
            return update(state, value)

        def run(keyed_queue: str, count=count, costly=costly, contest=f"under way, {microseconds} µs") -> float:
            seconds: list[float] = []
            engine = ps.engines.Local(threads=2, keyed_queue=keyed_queue)
            ring = engine.settings.reorder
            engine.settings = replace(engine.settings, reorder=lambda size, outlet: ring(size, Timed(outlet, seconds)))
            flow = ps.Flow("ordered")
            values = flow.read(ps.sources.items(even(count)))
            sink: Any = ps.sinks.collect()
            values.key_by(lambda x: x).stateful_map(costly, init=int, replicas=2).write(sink)
            flow.run(engine)
            RESULTS.note(contest, keyed_queue, result_of(sink.items))
            return statistics.mean(seconds)

        queues = ("hybrid", "partitioned")
        found = Contest({name: (lambda name=name: run(name)) for name in queues}, min(rounds, 7))
        times = ", ".join(f"{name} {statistics.median(found.seconds[name]) * 1e3:.2f} ms" for name in queues)
        shown(f"{microseconds:,} µs a tuple: {times}; gain", found.ratio("partitioned", "hybrid"))


def buffers(scale: float, rounds: int) -> None:
    print("\nNon-blocking ring against the lock-based buffer: throughput, two workers")
    short, long = calibrated(checksum, 10, 8192), calibrated(checksum, 100, 8192)
    cases: dict[str, tuple[Callable[[ps.Stream], ps.Stream], int]] = {
        "light: pure Python, 0.1 µs": (lambda s: s.map(lambda x: x + 1, replicas=2), 1_000_000),
        "selectivity 50": (lambda s: s.flat_map(lambda x: [x] * 50, replicas=2), 40_000),
        "10 µs outside the GIL": (lambda s: s.map(short, replicas=2), 100_000),
        "100 µs outside the GIL": (lambda s: s.map(long, replicas=2), 12_000),
    }
    for name, (build, count) in cases.items():
        found = Contest(
            {
                kind: (
                    lambda kind=kind, build=build, count=count, name=name: seconds_of(
                        build, int(count * scale), contest=f"buffers {name}", threads=2, reorder=kind
                    )
                )
                for kind in ("ring", "lock")
            },
            rounds,
        )
        shown(name, found.ratio("lock", "ring"), "1.0", found)


class Kept:
    """Where units go: what comes of one is so many values."""

    is_blocked = False

    def __init__(self, selectivity: int) -> None:
        self._selectivity = selectivity
        self._values: list[int] = []
        self.sent = 0
        self.is_in_order = True

    def send(self, unit: int) -> bool:
        self.is_in_order &= unit == self.sent
        self.sent += 1
        for _ in range(self._selectivity):
            self._values.append(unit)
        if len(self._values) > 10_000:
            self._values.clear()
        return True


def bare_buffers(scale: float, rounds: int) -> None:
    """The buffers by themselves, with units of one tuple: in a flow a unit is a millisecond of work."""
    print("\nThe same by themselves, units of one tuple of 0.2 µs")

    def run(kind: type[ReorderBuffer], selectivity: int, workers: int, count: int = int(60_000 * scale)) -> float:
        kept = Kept(selectivity)
        buffer = kind(256, kept)
        admission = threading.Lock()
        taken = 0

        def work() -> None:
            nonlocal taken
            while True:
                with admission:
                    serial, is_admitted = taken, taken < buffer.next + buffer.size
                    if serial >= count:
                        return
                    taken += is_admitted
                if not is_admitted:
                    time.sleep(0)
                    continue
                for _ in range(10):
                    pass
                buffer.add(serial, serial)

        seconds = seconds_together([threading.Thread(target=work) for _ in range(workers)])
        if kept.sent != count or not kept.is_in_order:
            raise RuntimeError(f"{kind.__name__}: {kept.sent:,} of {count:,} units, in order: {kept.is_in_order}")
        return seconds

    for workers in 2, 4:
        for name, selectivity in ("light", 1), ("selectivity 50", 50):
            contest = {
                kind.__name__: (lambda kind=kind, n=selectivity, workers=workers: run(kind, n, workers))
                for kind in (Ring, LockedBuffer)
            }
            found = Contest(contest, rounds)
            shown(f"{name}, {workers} workers", found.ratio("LockedBuffer", "Ring"), "above 1", found)


def free_threaded(scale: float) -> None:
    """On a Python without a GIL, if there is one."""
    python = os.environ.get("PENSTOCK_FREE_THREADED")
    if not python:
        print("\nPENSTOCK_FREE_THREADED names no Python without a GIL: left out")
        return
    code = (
        f"import sys; sys.path[:0] = {[os.path.dirname(os.path.dirname(ps.__file__)), os.path.dirname(__file__)]!r}\n"
        "import ordered\n"
        f"work, count = ordered.spin(2000), {int(20_000 * scale)}\n"
        "run = lambda n: ordered.seconds_of(lambda s: s.map(work, replicas=n), count, contest='threads', threads=n)\n"
        "found = ordered.Contest({'one': lambda: run(1), 'two': lambda: run(2)}, 9)\n"
        "ordered.shown('pure Python, two threads against one', found.ratio('one', 'two'), '1.7', found)\n"
        f"ordered.bare_buffers({scale}, 9)"
    )
    print("\nWithout a GIL", flush=True)
    subprocess.run([python, "-c", code], check=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench ordered", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and less certain")
    parts = {
        "order": order,
        "latency": latency,
        "threads": in_threads,
        "processes": processes,
        "skew": skew,
        "queues": queues,
        "under-way": under_way,
        "buffers": buffers,
        "bare-buffers": bare_buffers,
    }
    parser.add_argument("--only", choices=[*parts, "free-threaded"])
    options = parser.parse_args(arguments)
    scale, rounds = (0.1, 3) if options.quick else (0.3, 25)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    for name, part in parts.items():
        if options.only in (None, name):
            part(scale, rounds)
    if options.only in (None, "free-threaded"):
        free_threaded(scale)


if __name__ == "__main__":
    main(sys.argv[1:])
