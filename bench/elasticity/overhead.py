"""What it costs to measure and to decide."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

from tools.neighbours import Contest
from tools.results import Results, result_of

import penstock as ps
from elasticity.shown import shown


def overhead(seconds: float) -> None:
    """Four cheap functions and a keyed state on one thread, watched every quarter of a second, and not."""
    print("\nWhat measuring and deciding costs: throughput, watched against not watched")
    count = int(1_500_000 * seconds / 10)
    results = Results()

    def run(elastic: Any) -> float:
        flow = ps.Flow("watched")
        stream = flow.read(ps.sources.items(range(count)))
        for _ in range(4):
            stream = stream.map(lambda n: n + 1)
        sink: Any = ps.sinks.collect()
        stream.key_by(lambda n: n % 100).count().write(sink)
        began = time.perf_counter()
        flow.run(ps.engines.Local(threads=1, elastic=elastic))
        seconds = time.perf_counter() - began
        results.note("overhead", str(elastic), result_of(sink.items))
        return seconds

    watching = ps.Elastic(period=0.25, apply=False)
    contest = Contest({"watched": partial(run, watching), "not": partial(run, False)}, rounds=15)
    shown("local engine", f"{contest.ratio('not', 'watched'):.3f}", f"{contest.quiet} of {contest.played} quiet")


def spark_overhead() -> None:
    """Batches of 20,000 rows through two exchanges; the time from a batch's end to what was decided."""
    from penstock.engines.batch_plant import BatchSteering

    print("\nWhat measuring and deciding costs on Spark: share of a batch")
    spent: list[float] = []
    measured = BatchSteering.after_batch

    def timed(self: Any, seconds: float) -> None:
        began = time.perf_counter()
        measured(self, seconds)
        spent.append((time.perf_counter() - began) / seconds)

    BatchSteering.after_batch = timed  # type: ignore[method-assign]
    flow = ps.Flow("batches")
    numbers = flow.read(ps.sources.generate(lambda n: n, count=600_000))
    numbers.key_by(lambda n: n % 1000).count().write(ps.sinks.null())
    flow.run(ps.engines.Spark(rows_per_batch=20_000, elastic=ps.Elastic(apply=False)))
    shown(
        "spark engine, local[2]", f"{statistics.median(spent):.2%}", f"most {max(spent):.2%}", f"{len(spent)} batches"
    )
