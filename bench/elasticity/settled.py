"""What a flow does for real once it has settled."""

from __future__ import annotations

import time
from collections.abc import Collection

import penstock as ps
from penstock.observe.report import Report


def settled_tuple_seconds(
    flow: ps.Flow, engine: ps.engines.Local, operators: Collection[str], seconds: float
) -> tuple[float, Report]:
    """Seconds for each tuple that these operators receive in the second half of so many seconds."""
    job = flow.start(engine)
    time.sleep(seconds / 2)
    before, since = job.metrics(), time.perf_counter()
    time.sleep(seconds / 2)
    after, elapsed = job.metrics(), time.perf_counter() - since
    job.stop(drain=False)
    return elapsed / sum(after[name].received - before[name].received for name in operators), job.wait()
