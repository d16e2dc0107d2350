"""Graphs of 1,000 operators, on machines of 176 and 184 cores, under each threading model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import penstock as ps
from penstock.elasticity.signals import Signals

OPERATORS = 1000
SETTING = (
    "Simulated, 1,000 operators, 176 cores (Xeon) and 184 (Power8). A floating point operation takes 5 ns, a tuple at "
    "least 0.1 µs; on Power8, where eight threads share a core, twice as long. What queues and locks cost is the "
    "default machine's, measured on Python threads, but that a thread wakes within 5 µs; so that they count as much as "
    "in the paper, where a tuple is moved by itself, chunks are small: 15 µs of work in pipelines, 1 µs (a tuple, "
    "mostly) in the split. Queues have room for 256 tuples, the policy is least recently run, and nothing is fused but "
    "with manual. The split is an operator with 1,000 replicas (no more than cores where threads are fewer), whose "
    "output is put in order under a lock: that is what the paper's threads meet at, too."
)
_PIPELINE_CHUNK, _SPLIT_CHUNK = 15e-6, 1e-6
_MACHINE = ps.engines.Machine(park_seconds=2e-6, wake_seconds=5e-6, notify_seconds=1e-6)
"""As if threads that find nothing would look for a while before they sleep."""
_LEAST_SECONDS, _FLOP_SECONDS = 0.1e-6, 5e-9
_LOOKS = 8
"""A run is looked at so many times; the last two count, when the graph has filled."""
_GROWTH = 1.5


@dataclass(frozen=True)
class Host:
    name: str
    cores: int
    slowness: float

    def cost(self, flops: int) -> float:
        return self.slowness * max(_LEAST_SECONDS, flops * _FLOP_SECONDS)


XEON, POWER8 = Host("Xeon", 176, 1.0), Host("Power8", 184, 2.0)
HOSTS = {host.name: host for host in (XEON, POWER8)}


@dataclass(frozen=True)
class Graph:
    build: Callable[[ps.Flow, int], list[str]]
    """Told how many replicas the split has; the names of operators that cost something."""
    width: int
    chunk_seconds: float

    def passes(self, counts: Sequence[int]) -> float:
        """How many tuples went through, from what each of these operators has processed."""
        return sum(counts) / len(counts) * self.width


class Recorder(ps.Controller):
    """Decides as another one, or nothing, and keeps what it is shown."""

    name = "recorder"

    def __init__(self, other: ps.Controller | None = None) -> None:
        self._other = other
        self.settles = other is not None and other.settles
        self.seen: list[Signals] = []

    def __deepcopy__(self, memo: object) -> Recorder:
        return self

    def see(self, signals: Signals) -> None:
        self.seen.append(signals)
        if self._other is not None:
            self._other.see(signals)

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        self.seen.append(signals)
        return [] if self._other is None else self._other.decide(signals)


def _pipeline(flow: ps.Flow, replicas: int) -> list[str]:
    stream = flow.read(ps.sources.generate(_itself), name="in")
    for number in range(OPERATORS):
        stream = stream.map(_itself, name=f"op{number}")
    stream.write(_in_order(), name="out")
    return [f"op{number}" for number in range(OPERATORS)]


def _split(flow: ps.Flow, replicas: int) -> list[str]:
    stream = flow.read(ps.sources.generate(_itself), name="in")
    stream.map(_itself, name="op", replicas=replicas or None).write(_in_order(), name="out")
    return ["op"]


def _both(flow: ps.Flow, replicas: int) -> list[str]:
    """A width of 10, a depth of 100."""
    source, names, ways = flow.read(ps.sources.generate(_itself), name="in"), [], []
    for way in range(_WIDTH):
        stream = source.filter(partial(_goes, way), name=f"way{way}")
        for depth in range(OPERATORS // _WIDTH):
            names.append(f"op{way}_{depth}")
            stream = stream.map(_itself, name=names[-1])
        ways.append(stream)
    ways[0].merge(*ways[1:], name="merge").write(ps.sinks.null(), name="out")
    return names


_WIDTH = 10
GRAPHS = {
    "pipeline": Graph(_pipeline, 1, _PIPELINE_CHUNK),
    "split": Graph(_split, 1, _SPLIT_CHUNK),
    "10 x 100": Graph(_both, _WIDTH, _PIPELINE_CHUNK),
}


def fixed(host: str, graph: str, flops: int, threads: int, seconds: float) -> dict[str, Any]:
    """Dynamic, with so many threads."""
    cores = HOSTS[host].cores
    return _run(host, graph, flops, seconds, cores, threading="dynamic", threads=threads)


def dedicated(host: str, graph: str, flops: int, seconds: float) -> dict[str, Any]:
    """A thread for each operator."""
    return _run(host, graph, flops, seconds, OPERATORS, threading="dedicated")


def manual(host: str, graph: str, flops: int, seconds: float) -> dict[str, Any]:
    """One thread, and no queues in between."""
    flow, costs = _made(host, graph, flops, 0)
    report = flow.run(ps.engines.Simulated(cores=HOSTS[host].cores, threading="manual", costs=costs, seconds=seconds))
    return {"throughput": report.operators["out"].received / seconds}


def elastic(host: str, graph: str, flops: int, period: float, periods: int) -> dict[str, Any]:
    """Dynamic, from one thread on with the algorithm of figure 7, whose levels are each half as much again."""
    cores = HOSTS[host].cores
    controller = Recorder(ps.controllers.Figure7(growth=_GROWTH))
    flow, costs = _made(host, graph, flops, cores)
    flow.run(
        ps.engines.Simulated(
            cores=cores,
            threads=1,
            costs=costs,
            seconds=period * (periods + 0.5),
            elastic=ps.Elastic(threads=controller, replicas="fixed", helping=False, period=period, most_threads=cores),
            **_options(graph),
        )
    )
    names = list(costs)
    found = [_throughput(signals, graph, names) for signals in controller.seen]
    return {
        "throughput": statistics.fmean(found[-5:]),
        "times": [signals.time for signals in controller.seen],
        "threads": [signals.threads for signals in controller.seen],
        "processed": [
            sum(signals.operators[name].received for name in names) / signals.seconds for signals in controller.seen
        ],
    }


def defaults(host: str, graph: str, flops: int, seconds: float) -> dict[str, Any]:
    """As a user gets it who says nothing; only that it looks sooner, for little time is simulated."""
    recorder = Recorder()
    cores = HOSTS[host].cores
    flow, costs = _made(host, graph, flops, 0)
    flow.run(
        ps.engines.Simulated(
            cores=cores,
            costs=costs,
            seconds=seconds,
            elastic=ps.Elastic(helping=recorder, period=seconds / _LOOKS / 2),
        )
    )
    last = recorder.seen[_LOOKS:]
    came = sum(signals.operators["out"].received for signals in last)
    return {"throughput": came / sum(signals.seconds for signals in last), "threads": last[-1].threads}


def _run(host: str, graph: str, flops: int, seconds: float, replicas: int, **options: Any) -> dict[str, Any]:
    recorder = Recorder()
    flow, costs = _made(host, graph, flops, replicas)
    report = flow.run(
        ps.engines.Simulated(
            cores=HOSTS[host].cores,
            costs=costs,
            seconds=seconds,
            elastic=ps.Elastic(threads="fixed", replicas=recorder, helping=False, period=seconds / _LOOKS),
            **_options(graph),
            **options,
        )
    )
    found = [_throughput(signals, graph, list(costs)) for signals in recorder.seen]
    assert report.simulation is not None
    waited = sorted(report.simulation.waited_seconds.items(), key=lambda one: -one[1])[:2]
    return {"throughput": statistics.fmean(found[-2:]), "waited": waited}


def _options(graph: str) -> dict[str, Any]:
    return {
        "fuse": False,
        "queue_size": 256,
        "slice_seconds": GRAPHS[graph].chunk_seconds,
        "policy": "least-recently-run",
        "reorder": "lock",
        "machine": _MACHINE,
    }


def _made(host: str, graph: str, flops: int, replicas: int) -> tuple[ps.Flow, dict[str, float]]:
    flow = ps.Flow(graph.replace(" ", "-"))
    names = GRAPHS[graph].build(flow, replicas)
    return flow, dict.fromkeys(names, HOSTS[host].cost(flops))


def _throughput(signals: Signals, graph: str, names: Sequence[str]) -> float:
    return GRAPHS[graph].passes([signals.operators[name].received for name in names]) / signals.seconds


def _goes(way: int, n: int) -> bool:
    return n % _WIDTH == way


def _itself(n: int) -> int:
    return n


def _in_order() -> ps.sinks.Sink:
    numbers = iter(range(1 << 62))

    def leave(number: int) -> None:
        assert number == next(numbers), "tuples overtook each other"

    return ps.sinks.call(leave)


def points(
    host: str, graph: str, flops: int, levels: Sequence[int], seconds: float, period: float, default_seconds: float
) -> dict[str, Callable[[], dict[str, Any]]]:
    """All models on one graph; named by host, graph, operations and model."""
    models: dict[str, Callable[[], dict[str, Any]]] = {
        "manual": partial(manual, host, graph, flops, 300 * OPERATORS * HOSTS[host].cost(flops)),
        "dedicated": partial(dedicated, host, graph, flops, seconds),
        "elastic": partial(elastic, host, graph, flops, period, 32),
        "defaults": partial(defaults, host, graph, flops, default_seconds),
    }
    models |= {str(level): partial(fixed, host, graph, flops, level, seconds) for level in levels}
    return {f"{host}, {graph}, {flops}, {model}": one for model, one in models.items()}
