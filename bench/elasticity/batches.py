"""Micro-batches under a load that comes back: executors that find themselves, fixed ones, and a clairvoyant's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import penstock as ps
from elasticity.shown import changes, shown
from penstock.engines import Machine
from penstock.observe.report import Report

_QUIET, _PEAK, _EVERY, _LASTING = 200.0, 2000.0, 60.0, 15.0
_COST_SECONDS = 0.005
_TRIGGER_SECONDS = 1.0
_MOST = 16
_SEASONS_TO_LEARN = 2


@dataclass(frozen=True)
class Figures:
    """From the third season on."""

    p50: float
    p99: float
    slots: float
    """On average, from when they were asked for until they were given back."""
    moments: float
    """At which something was decided, in a season."""

    @classmethod
    def of(cls, report: Report, rate: ps.rates.Rate, slots: int, seconds: float) -> Figures:
        since = _SEASONS_TO_LEARN * _EVERY
        latencies = sorted(_latencies(report, rate, since))
        asked = [(0.0, slots), *((one.time, one.after) for one in changes(report, "executors")), (seconds, 0)]
        held = sum(max(0.0, after - max(since, before)) * count for (before, count), (after, _) in pairwise(asked))
        moments = {one.time for one in report.decisions if one.time >= since}
        return cls(
            latencies[len(latencies) // 2],
            latencies[int(len(latencies) * 0.99)],
            held / (seconds - since),
            len(moments) / (seconds - since) * _EVERY,
        )


def _latencies(report: Report, rate: ps.rates.Rate, since: float) -> Sequence[float]:
    """Of every tuple that came after some time: from then until its batch was over."""
    found, read, began = [], 0, 0.0
    for batch in report.batches:
        came = (rate.time_of(number) for number in range(read, read + batch.rows))
        found += [began + batch.seconds - time for time in came if time >= since]
        read += batch.rows
        began += max(batch.seconds, _TRIGGER_SECONDS)
    return found


class Clairvoyant(ps.Controller):
    """Knows what will come, and asks for just as many executors just in time."""

    name = "clairvoyant"
    settles = False

    def __init__(self, rate: ps.rates.Rate, room_seconds: float, start_seconds: float) -> None:
        self._rate = rate
        self._room_seconds = room_seconds
        self._start_seconds = start_seconds

    def decide(self, signals: ps.Signals) -> Sequence[ps.Change]:
        ahead = [signals.time + second for second in range(-2, math.ceil(self._start_seconds) + 2)]
        rate = max(self._rate.at(max(0.0, time)) for time in ahead)
        slots = math.ceil(rate * _COST_SECONDS * _TRIGGER_SECONDS / self._room_seconds)
        before = signals.threads + signals.stuck_threads
        if slots == before:
            return []
        tasks = signals.operators["work"].replicas
        return [
            ps.Change("executors", "", before, slots, "so many will be needed"),
            ps.Change("replicas", "work", tasks, slots, "so many will be needed"),
        ]


def run(elastic: ps.Elastic | None, slots: int, seconds: float) -> Figures:
    """Quiet, and every minute a peak of a quarter of it."""
    rate = ps.rates.spikes(_QUIET, _PEAK, every=_EVERY, lasting=_LASTING)
    flow = ps.Flow("seasons")
    stream = flow.read(ps.sources.generate(lambda n: n, rate=rate), name="in")
    stream.map(lambda n: n, name="work").write(ps.sinks.null(), name="out")
    engine = ps.engines.Simulated(
        like="spark",
        cores=slots,
        costs={"work": _COST_SECONDS},
        trigger=_TRIGGER_SECONDS,
        seconds=seconds,
        elastic=elastic or False,
    )
    return Figures.of(flow.run(engine), rate, slots, seconds)


def clairvoyant(seconds: float) -> Figures:
    machine = Machine()
    rate = ps.rates.spikes(_QUIET, _PEAK, every=_EVERY, lasting=_LASTING)
    room = _TRIGGER_SECONDS - machine.batch_seconds
    knows = Clairvoyant(rate, room, machine.executor_start_seconds)
    return run(ps.Elastic(replicas=knows, most_threads=_MOST), 2, seconds)


def batches(seconds: float) -> None:
    """Latency against executors, from the third season on."""
    print(f"\nA season on simulated micro-batches: {_QUIET:g} to {_PEAK:g} tuples a second for {_LASTING:g} s of every")
    print(f"{_EVERY:g}, {_COST_SECONDS * 1000:g} ms each, a trigger of {_TRIGGER_SECONDS:g} s; at most {_MOST} slots")
    shown("", "p50", "p99", "slots", "decisions/season")
    rows = {f"{slots} slots": run(None, slots, seconds) for slots in (5, 8, 12, 16)}
    rows["clairvoyant"] = clairvoyant(seconds)
    rows["found by itself"] = run(ps.Elastic(most_threads=_MOST), 2, seconds)
    for name, one in rows.items():
        shown(name, f"{one.p50:.2f} s", f"{one.p99:.2f} s", f"{one.slots:.1f}", f"{one.moments:.1f}")
