"""Figure 10: how long a tuple is being processed, by what it costs, in the two queues."""

from __future__ import annotations

from functools import partial

from figures.figure import Claim, Figure, Found, Measure, Panel
from figures.ordered.measuring import CORES, measure
from figures.ordered.queries import Step
from figures.ordered.words import Points, milliseconds

_MICROSECONDS = (10, 100, 1_000, 10_000)
_TUPLES = 8_000
_LEAST_MICROSECONDS = 40
"""What a tuple costs by itself, at the least, with all that is done around it."""
_LEAST_SECONDS = 0.1
"""In chunks, so that there are many of them."""
_QUEUES = ("hybrid", "partitioned")
_CLOSE, _MUCH_HIGHER = 2.0, 2.0


def _measures() -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for microseconds in _MICROSECONDS:
        seconds = _TUPLES * max(_LEAST_MICROSECONDS, microseconds) * 1e-6 / CORES
        run = partial(measure, workers=CORES, policy="current-throughput")
        keyed = (Step("PS", microseconds * 1e-6),)
        for queue in _QUEUES:
            buckets = 100 if queue == "hybrid" else CORES
            for way, slice_seconds in ("", 1e-6), (" in chunks", 1e-3):
                found[f"{microseconds} {queue}{way}"] = partial(
                    run,
                    keyed,
                    seconds=max(seconds, _LEAST_SECONDS) if way else seconds,
                    keyed_queue=queue,
                    buckets=buckets,
                    slice_seconds=slice_seconds,
                )
        found[f"{microseconds} stateless"] = partial(
            run, (Step("SL", microseconds * 1e-6),), seconds=seconds, slice_seconds=1e-6
        )
    return found


def _read(points: Points) -> Found:
    def latencies(which: str) -> dict[int, float]:
        return {cost: points[f"{cost} {which}"]["latency_seconds"] for cost in _MICROSECONDS}

    found = {which: latencies(which) for which in (*_QUEUES, "stateless")}
    in_chunks = {which: latencies(f"{which} in chunks") for which in _QUEUES}
    times_cost = {which: _times_cost(by) for which, by in found.items()}
    higher = {cost: found["partitioned"][cost] / found["hybrid"][cost] for cost in _MICROSECONDS}

    def panel(title: str, found: dict[str, dict[int, float]]) -> Panel:
        lines = {which: [(cost, by[cost] * 1e6) for cost in _MICROSECONDS] for which, by in found.items()}
        return Panel(title, "µs a tuple", "latency (µs)", lines, log_x=True, log_y=True)

    is_close = all(ratio <= _CLOSE for ratio in times_cost["hybrid"].values())
    stateless = times_cost["stateless"]
    claims = [
        Claim(
            f"The hybrid queue's latency is close to a tuple's cost (at most {_CLOSE:g} times)",
            "close to the cost",
            _listed(times_cost["hybrid"]) + " times",
            is_close,
            ""
            if is_close
            else "What workers take is cut into units of a tuple for each worker, and a unit goes out when its last "
            "tuple is done. An operator without state, whose units are single tuples, has "
            f"{_listed(stateless)} times its cost (16 workers, all busy, make work 10% dearer). What the runtime does "
            "around each unit, about 45 µs, tells at 10 µs. "
            "With units of single tuples in the keyed operator as well, tried for that, it is 1.5 to 1.7 times from a "
            "millisecond on, for 2% of the throughput: tuples still wait for others in their partition.",
        ),
        Claim(
            f"The partitioned queue's is much higher (at least {_MUCH_HIGHER:g} times) at every cost",
            "much higher",
            _listed(higher) + " times the hybrid queue's",
            all(ratio >= _MUCH_HIGHER for ratio in higher.values()),
        ),
        Claim(
            "So it is with Penstock's chunks of a millisecond of work, from 100 µs on",
            "not measured: units are tuples there",
            ", ".join(
                f"{cost:,} µs: {milliseconds(in_chunks['hybrid'][cost])} against "
                f"{milliseconds(in_chunks['partitioned'][cost])}"
                for cost in _MICROSECONDS
            ),
            all(in_chunks["hybrid"][cost] < in_chunks["partitioned"][cost] for cost in _MICROSECONDS[1:]),
            is_beyond=True,
        ),
    ]
    return Found([panel("tuple by tuple", found), panel("in chunks of a millisecond", in_chunks)], claims)


def _times_cost(latencies: dict[int, float]) -> dict[int, float]:
    return {cost: seconds / (cost * 1e-6) for cost, seconds in latencies.items()}


def _listed(ratios: dict[int, float]) -> str:
    return ", ".join(f"{cost:,} µs: {ratio:.1f}" for cost, ratio in ratios.items())


FIGURE = Figure(
    "figure-10",
    "Latency vs. per-tuple processing cost",
    "One operator with partitioned state and uniform keys, 16 workers on 16 simulated cores, 100 partitions with the "
    "hybrid queue and 16 with the partitioned one. Tuple by tuple, as in the paper, whose workers take and send "
    "single tuples (`slice_seconds=1e-6`). Mean from the moment a tuple is begun with to its exit.",
    _measures(),
    _read,
)
