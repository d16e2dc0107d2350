"""How fast the simulated engine simulates.

penstock bench simulate [--quick]

A tuple-hop is one tuple that one operator has really processed, one at a time; chunks don't count as such.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import penstock as ps


def hops(report: ps.Report) -> int:
    """Tuples that operators have received, sources aside."""
    return sum(operator.received for operator in list(report.operators.values())[1:])


def chain(length: int, count: int, cost_seconds: float, cores: int, **options: object) -> tuple[float, int, float]:
    """Simulate a chain: the real seconds, the tuple-hops, the simulated seconds."""
    flow = ps.Flow("chain")
    stream = flow.read(ps.sources.items(range(count)), name="in")
    for number in range(length):
        stream = stream.map(lambda x: x + 1, name=f"op{number}")
    sink: Any = ps.sinks.collect()
    stream.write(sink, name="out")
    costs = {f"op{number}": cost_seconds for number in range(length)}
    began = time.perf_counter()
    report = flow.run(ps.engines.Simulated(cores=cores, costs=costs, fuse=False, **options))
    seconds = time.perf_counter() - began
    # A simulation that ends at a given time has let out the first of them; others all.
    came = len(sink.items) if "seconds" in options else count
    if sink.items != list(range(length, length + came)):
        raise RuntimeError(f"{len(sink.items):,} tuples came out, which are not the first {came:,}")
    return seconds, hops(report), report.elapsed_seconds


def shown(what: str, real: float, count: int, simulated: float, goal: str = "") -> None:
    print(f"  {what:48} {count / real:12,.0f} hops/s  {simulated:9.2f} simulated s in {real:6.1f} real s  {goal}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench simulate", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    scale = 0.1 if parser.parse_args(arguments).quick else 1.0
    print(f"Python {sys.version.split()[0]}")
    for microseconds in 10, 100, 1000:
        count = int(max(2_000, 4_000_000 // microseconds) * scale)
        best = min(chain(10, count, microseconds / 1e6, cores=8) for _ in range(3))
        shown(
            f"10 operators of {microseconds:,} µs, 8 cores",
            *best,
            "(goal 200,000 hops/s)" if microseconds == 10 else "",
        )
    minute = 60.0 * scale
    for milliseconds in 10, 1:
        best = chain(1000, 10_000_000, milliseconds / 1e3, cores=184, seconds=minute, queue_size=256)
        shown(f"1,000 operators of {milliseconds} ms, 184 cores, a minute", *best, "(goal: under 120 real s)")


if __name__ == "__main__":
    main(sys.argv[1:])
