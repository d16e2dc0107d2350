"""What this machine costs, and how well the simulated engine foretells the local one on it.

penstock bench calibrate [--save machine.json] [--spark] [--quick] [--only figures|table]

First the figures of `ps.engines.Machine` are measured; then the flows of `penstock bench local` (and one that releases
the GIL) run for real on one and two cores, in every threading model and under every policy, and simulated with the
costs that a run on one thread has shown. Rounds in which others took cores, in which the machine was faster before
than after, or cores further apart than when the figures were measured, don't count where there are enough others.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import penstock as ps
from penstock.connectors.spark_session import session
from penstock.costs import Cost
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.profile import costs_of
from penstock.engines.spark.executors import SparkExecutors
from penstock.plan.groups import make_plan
from penstock.runtime.policies import POLICIES, OperatorView, SchedulingPolicy

sys.path.insert(0, str(Path(__file__).parent))

from local import UserZip, add, digit, keep, minus, total, triple
from tools.neighbours import Rounds, quiet_rounds

DATA = os.urandom(1 << 16)
SHARES = {"pick": 0.22, "take": 0.25, "give": 0.31, "release": 0.22}
"""How the time of a chunk's way is shared out among its points, from a profile."""


def best(function: Callable[[], float], repeats: int) -> float:
    return min(function() for _ in range(repeats))


def seconds_of(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


# Figures


def hop_seconds(replicas: int, operators: int = 20, count: int = 1500) -> float:
    """A chunk of one tuple on its way through one operator, on one thread."""
    flow = ps.Flow("hops")
    stream = flow.read(ps.sources.items(range(count)))
    for _ in range(operators):
        stream = stream.map(add, replicas=replicas)
    stream.write(ps.sinks.null())
    report = flow.run(ps.engines.Local(threads=1, fuse=False, queue_size=2))
    busy = sum(operator.busy_seconds for operator in report.operators.values())
    return (report.elapsed_seconds - busy) / count / (operators + 1)


def wake_seconds(times: int = 500) -> float:
    """From the call that wakes a sleeping thread to its first instruction."""
    condition, found = threading.Condition(), []
    told = 0.0
    turn = 0

    def sleeper() -> None:
        nonlocal turn
        for _ in range(times):
            with condition:
                while turn != 1:
                    condition.wait()
                found.append(time.perf_counter() - told)
                turn = 0
                condition.notify()

    thread = threading.Thread(target=sleeper)
    thread.start()
    for _ in range(times):
        with condition:
            told = time.perf_counter()
            turn = 1
            condition.notify()
            while turn != 0:
                condition.wait()
    thread.join()
    return statistics.median(found)


def park_seconds(times: int = 2000) -> float:
    """A worker of a flow of ten operators that finds nothing to do."""
    flow = ps.Flow("parking")
    stream = flow.read(ps.sources.generate(lambda n: n, rate=0.01))
    for _ in range(8):
        stream = stream.map(add)
    stream.write(ps.sinks.null())
    job = flow.start(ps.engines.Local(threads=1, fuse=False))
    time.sleep(0.05)
    driver = job._driver
    worker = driver._workers[0]

    def park() -> None:
        for _ in range(times):
            with driver._condition:
                driver._may_sleep(worker)

    found = best(lambda: seconds_of(park), 3) / times
    job.stop(drain=False)
    return found


def notify_seconds(sleepers: int = 4, times: int = 300) -> float:
    """The call that wakes sleeping threads, for each of them."""
    condition = threading.Condition()
    is_over = False

    def sleep() -> None:
        with condition:
            while not is_over:
                condition.wait()

    threads = [threading.Thread(target=sleep) for _ in range(sleepers)]
    for thread in threads:
        thread.start()
    found = []
    for _ in range(times):
        time.sleep(0.0005)
        began = time.perf_counter()
        with condition:
            condition.notify_all()
        found.append(time.perf_counter() - began)
    with condition:
        is_over = True
        condition.notify_all()
    for thread in threads:
        thread.join()
    return statistics.median(found) / sleepers


def slowdown(step: Callable[[], Any], threads: int, pairs: int = 120, phase_seconds: float = 0.006) -> float:
    """How much longer a step takes if so many threads do nothing else, against one alone on each of the cores.

    A phase is so short that the machine is as fast in the next one, mostly; pairs of phases between which it has
    changed don't count. What is left is the median.
    """
    cores = len(os.sched_getaffinity(0))
    gates = [threading.Semaphore(0) for _ in range(threads - 1)]
    done = threading.Semaphore(0)
    counts = [0] * threads
    until, is_over = 0.0, False

    def steps() -> int:
        count = 0
        while True:
            step()
            count += 1
            if time.perf_counter() >= until:
                return count

    def help_out(number: int) -> None:
        while True:
            gates[number - 1].acquire()
            if is_over:
                return
            counts[number] = steps()
            done.release()

    def phase() -> float:
        nonlocal until
        began = time.perf_counter()
        until = began + phase_seconds
        count = steps()
        return (time.perf_counter() - began) / count

    def alone() -> list[float]:
        return [on_core(number, phase) for number in range(cores)]

    helpers = [threading.Thread(target=help_out, args=(number,)) for number in range(1, threads)]
    for helper in helpers:
        helper.start()
    found = []
    before = alone()
    for _ in range(pairs):
        began = time.perf_counter()
        until = began + 2 * phase_seconds
        for gate in gates:
            gate.release()
        counts[0] = steps()
        for _ in gates:
            done.acquire()
        taken = (time.perf_counter() - began) / sum(counts)
        after = alone()
        drift = max(abs(one / other - 1) for one, other in zip(before, after, strict=True))
        found.append((drift, taken / statistics.mean(before + after)))
        before = after
    is_over = True
    for gate in gates:
        gate.release()
    for helper in helpers:
        helper.join()
    steady = [ratio for drift, ratio in found if drift < 0.07]
    return statistics.median(steady or [ratio for _, ratio in found])


def gil_turns(interval: float, few: int = 2, many: int = 7) -> tuple[float, float]:
    """What it costs two busy threads to pass the GIL on, each time that they do, and every further one that waits.

    They work on chunks of tuples, as operators do: what one core has in its cache, the other one has not.
    """
    values = list(range(1_000_000, 1_004_096))
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        turn, crowded_turn = (
            interval * max(0.0, slowdown(lambda: [x * 3 for x in [x + 1 for x in values]], threads) - 1)
            for threads in (few, many)
        )
    finally:
        sys.setswitchinterval(before)
    return turn, max(0.0, crowded_turn - turn) / (many - few)


def crowding_share(pairs: int = 120) -> float:
    """How much longer a checksum takes on each of two cores at once."""
    return max(0.0, 2 * slowdown(lambda: zlib.crc32(DATA), 2, pairs) - 1)


class BreadthFirst(SchedulingPolicy):
    """Fills every queue before anybody reads from it: tuples wait for as long as they can."""

    name = "breadth-first"

    def priority(self, operator: OperatorView) -> float:
        return -operator.depth


def cold_seconds(warm_tuples: float, count: int = 100_000, queue_size: int = 16_384) -> float:
    """What a tuple costs more where queues are full, on average: the same flows, breadth first and depth first."""
    lost = hops = 0.0
    for build in functions, branches:
        flow = made(build, count)

        def busy(policy: Any, flow: ps.Flow = flow) -> tuple[float, int]:
            report = flow.run(ps.engines.Local(threads=1, fuse=False, policy=policy, queue_size=queue_size))
            done = report.operators.values()
            return sum(operator.busy_seconds for operator in done), sum(operator.received for operator in done)

        pairs = [(busy(BreadthFirst()), busy("last-in-pipeline")) for _ in range(11)]
        lost += statistics.median(cold - warm for (cold, _), (warm, _) in pairs)
        hops += pairs[0][0][1]
    return max(0.0, lost / hops) * (queue_size + warm_tuples) / queue_size


def lock_seconds(times: int = 200_000) -> float:
    lock = threading.Lock()

    def hold() -> None:
        for _ in range(times):
            with lock:
                pass

    return best(lambda: seconds_of(hold), 5) / times


def pickle_seconds(count: int = 2000) -> float:
    values = [{"user": n, "page": "/index", "score": n / 7} for n in range(count)]

    def there_and_back() -> None:
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(values, protocol=5)), protocol=5))

    return best(lambda: seconds_of(there_and_back), 20) / count


def context_switch_seconds(times: int = 5000) -> float:
    """Two processes on one core that pass a byte to and fro."""
    there, back = os.pipe(), os.pipe()
    cores = os.sched_getaffinity(0)
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {min(cores)})
        for _ in range(times):
            os.read(there[0], 1)
            os.write(back[1], b"x")
        os._exit(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        began = time.perf_counter()
        for _ in range(times):
            os.write(there[1], b"x")
            os.read(back[0], 1)
        return (time.perf_counter() - began) / times / 2
    finally:
        os.sched_setaffinity(0, cores)
        os.waitpid(child, 0)
        for end in (*there, *back):
            os.close(end)


def figures(repeats: int) -> Machine:
    default = Machine()
    hop = best(lambda: hop_seconds(replicas=1), repeats)
    unit = max(0.0, best(lambda: hop_seconds(replicas=2), repeats) - hop)
    lock = lock_seconds()
    switch, switch_asking = on_cores(1, lambda: gil_turns(default.gil_slice_seconds))
    # Between the other figures, for the cores may be further apart at one moment than at another.
    moves = [on_cores(2, lambda: gil_turns(default.gil_slice_seconds))]
    crowding, cold = crowding_share(), on_cores(1, lambda: cold_seconds(default.warm_tuples))
    moves.append(on_cores(2, lambda: gil_turns(default.gil_slice_seconds)))
    by_policy = policy_seconds()
    moves.append(on_cores(2, lambda: gil_turns(default.gil_slice_seconds)))
    move, move_asking = min(moves)
    found = replace(
        default,
        **{f"{point}_seconds": hop * share for point, share in SHARES.items()},
        unit_seconds=unit,
        park_seconds=park_seconds(),
        wake_seconds=wake_seconds(),
        notify_seconds=notify_seconds(),
        gil_switch_seconds=switch,
        gil_switch_asking_seconds=switch_asking,
        gil_move_seconds=move,
        gil_move_asking_seconds=move_asking,
        context_switch_seconds=context_switch_seconds(),
        # A lock that is held for a handful of operations, each about as long as taking it.
        ready_list_seconds=5 * lock,
        port_seconds=10 * lock,
        worklist_seconds=15 * lock,
        reorder_seconds=15 * lock,
        pickle_seconds=pickle_seconds(),
        crowding_share=crowding,
        cold_seconds=cold,
        policy_seconds=by_policy,
    )
    distance = Distance(found)
    return replace(found, moved_seconds=min(distance.moved_seconds() for _ in range(20)))


def policy_seconds() -> dict[str, float]:
    """What it costs to ask each policy about one operator: of a flow that branches, while it runs."""
    found = {}
    for name, kind in POLICIES.items():
        spent, asked = 0.0, 0

        class Timed(kind):  # type: ignore[misc, valid-type]
            def priority(self, operator: Any) -> float:
                nonlocal spent, asked
                began = time.perf_counter()
                priority: float = super().priority(operator)
                spent += time.perf_counter() - began
                asked += 1
                return priority

        made(branches, 60_000).run(ps.engines.Local(threads=1, policy=Timed(), queue_size=2048))
        began = time.perf_counter()
        for _ in range(10_000):
            time.perf_counter()
        found[name] = max(0.0, spent / max(1, asked) - (time.perf_counter() - began) / 10_000)
    return found


def spark_figures(machine: Machine, rows: int = 1_000_000) -> Machine:
    """A batch with nothing in it, an exchange with nothing in it, and an exchange of many tuples."""

    def made_with(count: int, exchanges: bool) -> ps.Flow:
        flow = ps.Flow("batches")
        stream = flow.read(ps.sources.generate(lambda n: n, count=count))
        if exchanges:
            stream = stream.key_by(lambda x: x % 1000).stateful_map(lambda n, x: (n + 1, n), init=int, name="count")
        stream.write(ps.sinks.null())
        return flow

    def batch(count: int, exchanges: bool) -> float:
        report = made_with(count, exchanges).run(ps.engines.Spark(master="local[2]", parallelism=2))
        return min(batch.seconds for batch in report.batches)

    levels = len(make_plan(made_with(1, True).validate()).levels) - 1
    few = best(lambda: batch(1, False), 5)
    exchanged = best(lambda: batch(1, True), 5)
    many = (best(lambda: batch(rows, True), 3) - best(lambda: batch(rows, False), 3)) / rows
    return replace(
        machine,
        batch_seconds=few,
        exchange_seconds=max(0.0, exchanged - few) / levels,
        exchanged_tuple_seconds=max(0.0, many) / levels,
    )


def executor_start_seconds(repeats: int = 3) -> float:
    """On a standalone cluster: from the request for a second executor to the first task that runs there; the median."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.spark.cluster import standalone_cluster, until

    with suppress(PySparkRuntimeError):
        SparkSession.active().stop()  # a process has one Spark
    with TemporaryDirectory() as folder, standalone_cluster(Path(folder), workers=2) as cluster:
        conf = {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.cores.max": "2"}
        spark = session(cluster.master, conf)
        try:
            executors = SparkExecutors(spark)
            until(lambda: len(executors.alive()) == 2, "two executors")
            taken = []
            for _ in range(repeats):
                spark.range(2).count()
                until(lambda: executors.release(1) or len(executors.alive()) == 1, "an idle executor")
                until(lambda: len(executors.alive()) == 1, "one executor")
                began = time.perf_counter()
                executors.request(2)
                until(lambda: len(_hosts(spark)) == 2, "tasks on two executors")
                taken.append(time.perf_counter() - began)
        finally:
            spark.stop()
    return statistics.median(taken)


def _hosts(spark: Any) -> set[int]:
    """The executors that the tasks of a small job ran on."""

    def told(rows: Any) -> Any:
        for batch in rows:  # each executor has a daemon of its own that starts its Python workers
            yield pa.RecordBatch.from_pydict({"where": [os.getppid()] * batch.num_rows})

    frame = spark.range(0, 8, 1, 8).mapInArrow(told, "where long")
    return {row["where"] for row in frame.collect()}


# The table


def functions(flow: ps.Flow, count: int) -> None:
    stream = flow.read(ps.sources.items(range(count)), name="in")
    stream = stream.map(add).filter(keep).map(triple).map(minus)
    stream.key_by(digit).stateful_map(total, init=int, name="total").write(ps.sinks.null(), name="out")


def zipped(flow: ps.Flow, count: int) -> None:
    left = flow.read(ps.sources.items(range(count)), name="left")
    right = flow.read(ps.sources.items(range(count)), name="right")
    flow.add(UserZip(), left, right, name="zip").write(ps.sinks.null(), name="out")


def branches(flow: ps.Flow, count: int) -> None:
    """The flow on which `penstock bench local` compares policies."""
    numbers = flow.read(ps.sources.items(range(count)), name="in")
    left = numbers.map(add, replicas=1).map_batch(lambda xs: [triple(x) for x in xs], name="triple")
    right = numbers.filter(keep).map_batch(lambda xs: [minus(x) for x in xs], name="minus")
    left.zip(numbers).key_by(lambda pair: pair[1] % 100).count().write(ps.sinks.null(), name="left-out")
    right.map_batch(lambda xs: xs, name="pass").write(ps.sinks.null(), name="right-out")


def released(flow: ps.Flow, count: int) -> None:
    stream = flow.read(ps.sources.items(range(count)), name="in")
    stream.map(lambda x: zlib.crc32(DATA) and x, name="checksum", replicas=2).write(ps.sinks.null(), name="out")


FLOWS: dict[str, tuple[Callable[[ps.Flow, int], None], int, dict[str, float]]] = {
    "functions and a keyed state": (functions, 600_000, {}),
    "zip of two streams": (zipped, 300_000, {}),
    "branches": (branches, 250_000, {}),
    "checksums outside the GIL": (released, 60_000, {"checksum": 0.97}),
}


def made(build: Callable[[ps.Flow, int], None], count: int) -> ps.Flow:
    flow = ps.Flow("calibrate")
    build(flow, count)
    return flow


def on_cores(count: int, run: Callable[[], Any]) -> Any:
    return _on(sorted(os.sched_getaffinity(0))[:count], run)


def on_core(number: int, run: Callable[[], Any]) -> Any:
    return _on([sorted(os.sched_getaffinity(0))[number]], run)


def _on(cores: list[int], run: Callable[[], Any]) -> Any:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return run()
    finally:
        os.sched_setaffinity(0, before)


_FAR_SECONDS = 8e-9
"""A tuple's way is longer by so much where cores share no cache, at least: 0 to 3 ns were seen, and 20 to 30."""


class Distance:
    """How far the cores are from each other: what a tuple costs more on another core than the one it was made on.

    A thread for each of some functions, on two cores and on one: what two cores lose beyond what the GIL's turns are
    said to cost. A hypervisor may move cores, to where they share a cache and to where they don't, at any moment.
    """

    def __init__(self, machine: Machine, count: int = 30_000) -> None:
        self._patience_seconds = 600.0
        """For how long to wait for cores that come near again, all rounds together."""
        self.usual_moved_seconds = machine.moved_seconds
        """When the machine was measured."""
        self._flow = made(functions, count)
        known = on_core(0, lambda: costs_of(self._flow.run(ps.engines.Local(threads=1, fuse=False))))

        def said(cores: int, moved_seconds: float) -> float:
            figures = replace(machine, moved_seconds=moved_seconds)
            return foretold(self._flow, cores, {"threading": "dedicated"}, known, figures)

        near, far = said(2, 0.0), said(2, 100e-9)
        self._lost_anyway = near - said(1, 0.0)
        self._times_moved = (far - near) / 100e-9

    def moved_seconds(self, repeats: int = 5) -> float:
        def lost() -> float:
            one, two = (on_cores(cores, self._seconds) for cores in (1, 2))
            return two - one

        found = statistics.median(lost() for _ in range(repeats))
        return max(0.0, found - self._lost_anyway) / self._times_moved

    def once_near(self) -> float:
        """The same, when the cores are as near as they were when the machine was measured; one waits for a while."""
        while (found := self.moved_seconds()) > self.usual_moved_seconds + _FAR_SECONDS and self._patience_seconds > 0:
            time.sleep(1.0)
            self._patience_seconds -= 1.0
        return found

    def _seconds(self) -> float:
        return self._flow.run(ps.engines.Local(threading="dedicated")).elapsed_seconds


@dataclass(frozen=True)
class Measured:
    """The seconds that a flow took, and what its operators and the machine cost on those cores at that time."""

    seconds: float
    costs: dict[str, Cost]
    figures: dict[str, float]
    """Of the machine, where they may change from one moment to the next."""
    drift: float
    """By how much all that has changed from just before to just after, on the core where it changed most."""


@dataclass(frozen=True)
class Moment:
    """What is measured between two runs: what operators cost on each core, and figures of the machine."""

    costs: list[dict[str, Cost]]
    figures: dict[str, float]

    def drift(self, later: Moment, usual_moved_seconds: float) -> float:
        """In shares of what a tuple costs; cores that have moved since the machine was measured are another machine."""
        pairs = zip(self.costs, later.costs, strict=True)
        drifts = [total_seconds(after) / total_seconds(before) - 1 for before, after in pairs]
        if "moved_seconds" in later.figures:
            total = statistics.mean(map(total_seconds, self.costs))
            drifts += [(one.figures["moved_seconds"] - usual_moved_seconds) / total for one in (self, later)]
        if "crowding_share" in later.figures:
            drifts.append(later.figures["crowding_share"] - self.figures["crowding_share"])
        return max(drifts, key=abs)


def rounds_of(
    flow: ps.Flow,
    outside: dict[str, float],
    cores: int,
    options: dict[str, Any],
    wanted: int,
    distance: Distance,
) -> Rounds[Measured]:
    """The flow for real, again and again, and between the runs what its operators cost on one thread.

    One core is often faster than the other, for what neighbours do, and that changes from one second to the next: so
    costs are taken on each of them, just before and just after.
    """

    def real() -> float:
        return flow.run(ps.engines.Local(threads=cores, **options)).elapsed_seconds

    def profiled() -> list[dict[str, Cost]]:
        one_thread = ps.engines.Local(threads=1, fuse=options["fuse"])
        return [on_core(core, lambda: costs_of(flow.run(one_thread))) for core in range(cores)]

    def figures() -> dict[str, float]:
        found = {}
        if cores > 1:
            found["moved_seconds"] = distance.once_near()
            if outside:
                found["crowding_share"] = on_cores(cores, lambda: crowding_share(pairs=8))
        return found

    before = Moment(profiled(), figures())

    def play(_: int) -> Measured:
        nonlocal before
        seconds = on_cores(cores, real)
        after = Moment(profiled(), figures())
        found = Measured(
            seconds,
            mean_costs(before.costs + after.costs, outside),
            {name: statistics.mean([before.figures[name], after.figures[name]]) for name in after.figures},
            before.drift(after, distance.usual_moved_seconds),
        )
        before = after
        return found

    return quiet_rounds(play, wanted, lambda one: one.drift)


def mean_costs(found: list[dict[str, Cost]], outside: dict[str, float]) -> dict[str, Cost]:
    return {
        name: replace(
            cost,
            seconds=statistics.mean(float(costs[name].seconds) for costs in found),
            released=outside.get(name, 0.0),
        )
        for name, cost in found[0].items()
    }


def total_seconds(costs: dict[str, Cost]) -> float:
    return sum(float(cost.seconds) for cost in costs.values())


def foretold(flow: ps.Flow, cores: int, options: dict[str, Any], costs: dict[str, Cost], machine: Machine) -> float:
    """The seconds that it is said to take."""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    engine = ps.engines.Simulated(cores=cores, threads=cores, costs=costs, gil=has_gil, machine=machine, **options)
    return flow.run(engine).elapsed_seconds


def table(machine: Machine, repeats: int, scale: float, only: str | None) -> None:
    models: list[dict[str, str]] = [{"threading": "dedicated"}, {"threading": "manual"}]
    models += [{"policy": policy} for policy in POLICIES]
    ratios: dict[str, list[float]] = {}
    distance = Distance(machine)
    print(f"\ntuples a second, measured and simulated: medians of {repeats}; the ratio is the median of ratios")
    for name, (build, most, outside) in FLOWS.items():
        if only is not None and only not in name:
            continue
        count = int(most * scale)
        for cores in 1, 2:
            for options in models:
                flow = made(build, count)
                settings = {"fuse": options.get("threading") != "dedicated", **options}
                rounds = rounds_of(flow, outside, cores, settings, repeats, distance)
                pairs = [
                    (one.seconds, foretold(flow, cores, settings, one.costs, replace(machine, **one.figures)))
                    for one in rounds.results
                ]
                real, simulated = (count / statistics.median(seconds) for seconds in zip(*pairs, strict=True))
                ratio = statistics.median(took / said for took, said in pairs)
                moved = [one.figures["moved_seconds"] for one in rounds.results if cores > 1]
                far = f"  moved {statistics.median(moved) * 1e9:.0f} ns" if moved else ""
                what = options.get("threading") or f"dynamic, {options['policy']}"
                ratios.setdefault(what, []).append(ratio)
                print(
                    f"  {name:28} {cores} core{'s' if cores > 1 else ' '}  {what:28} {real:>12,.0f} "
                    f"{simulated:>12,.0f}   {ratio:5.2f}{'' if is_close(ratio) else '  *'}"
                    f"  ({rounds.quiet} of {rounds.played} quiet){far}",
                    flush=True,
                )
    every = [ratio for found in ratios.values() for ratio in found]
    print(f"\nwithin 15%: {sum(map(is_close, every))} of {len(every)}; means, lowest and highest of each model:")
    for what, found in ratios.items():
        print(f"  {what:28} {statistics.geometric_mean(found):5.2f} {min(found):5.2f} {max(found):5.2f}")


def is_close(ratio: float) -> bool:
    return 0.85 <= ratio <= 1.15


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench calibrate", description=__doc__)
    parser.add_argument("--save", help="write the figures to this file, for Simulated(machine=FILE)")
    parser.add_argument("--spark", action="store_true", help="measure the figures of the Spark engine as well")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["figures", "table"])
    parser.add_argument("--flow", help="only flows with this in their names")
    options = parser.parse_args(arguments)
    repeats, scale = (5, 0.2) if options.quick else (20, 0.25)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    machine = figures(7) if options.only != "table" else Machine()
    if options.spark:
        machine = replace(spark_figures(machine), executor_start_seconds=executor_start_seconds())
    for name, seconds in asdict(machine).items():
        for policy, own in seconds.items() if isinstance(seconds, dict) else [("", seconds)]:
            is_time = name not in ("crowding_share", "warm_tuples")
            figure = f"{own * 1e6:12.3f} µs" if is_time else f"{own:12.3f}"
            print(f"  {name:24} {policy:20} {figure}")
    if options.save:
        machine.save(options.save)
    if options.only != "figures":
        table(machine, repeats, scale, options.flow)


if __name__ == "__main__":
    main(sys.argv[1:])
