"""The same drawn flows and loads on the cores that there are, with functions that release the GIL."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial

from tools.neighbours import Contest

import penstock as ps
from elasticity.shown import shown
from elasticity.storms import Case, drawn
from elasticity.topologies import checksum
from penstock.observe.report import Report

SECONDS = 12.0
_ROUNDS = 1
_BLOCK_SECONDS = 200e-6
"""Work is done in checksums of so long: their buffer stays in a cache."""


def worked(case: Case) -> Case:
    """The case with functions that take as long as it says."""
    block = checksum(_BLOCK_SECONDS * 1e6)
    case.work = {name: partial(_work, block, seconds) for name, seconds in case.costs.items()}
    return case


def _work(block: Callable[[object], object], seconds: float, n: int) -> int:
    """For so long, less what is left of a block; every so-many-th tuple makes up for that."""
    blocks, rest = divmod(seconds, _BLOCK_SECONDS)
    for _ in range(int(blocks) + (n * 0.6180339887498949 % 1.0 < rest / _BLOCK_SECONDS)):
        block(n)
    return n


def run(case: Case, **options: object) -> Report:
    """So much of it as comes within its time."""
    engine = ps.engines.Local(queue_size=64, fuse=False, **options)  # type: ignore[arg-type]
    job = case.flow().start(engine)
    time.sleep(case.seconds)
    return job.stop(drain=False) or job.wait()


def real_storms(count: int, seed: int) -> None:
    cores = os.cpu_count() or 1
    print(f"\nStorms for real, {cores} cores: {count} drawn cases from seed {seed}, {SECONDS:g} s for each setting")
    shown("case", "of best fixed", "best fixed")
    settings = {
        f"{threads} x {replicas}": (threads, replicas) for threads, replicas in ((1, 1), (cores, 1), (cores, cores))
    }
    ratios = []
    for number in range(seed, seed + count):
        case = worked(drawn(number, cores, SECONDS))

        def seconds_a_tuple(case: Case = case, **options: object) -> float:
            return SECONDS / max(1e-9, case.done(run(case, **options)))

        contest = Contest(
            {
                "elastic": partial(seconds_a_tuple, elastic=ps.Elastic()),
                **{
                    name: partial(seconds_a_tuple, threads=threads, replicas=replicas)
                    for name, (threads, replicas) in settings.items()
                },
            },
            rounds=_ROUNDS,
        )
        best = min(settings, key=lambda name: statistics.median(contest.seconds[name]))
        ratios.append(contest.ratio(best, "elastic"))
        shown(f"{number}: {case.topology}, {case.load}", f"{ratios[-1]:.3f}", best)
    shown("of best fixed", f"median {statistics.median(ratios):.3f}", f"worst {min(ratios):.3f}")
