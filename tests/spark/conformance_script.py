"""Every flow on a master of one's choice, with every number of tasks, which changes after each batch."""

from __future__ import annotations

import random
from contextlib import suppress

import penstock as ps
from tests.spark.flows import FLOWS, collected, outputs

TASKS = (1, 2, 3, 7)


def main(master: str) -> None:
    for name, make in FLOWS.items():
        expected = outputs(make, 200, "sequential")
        for tasks in TASKS:
            flow, sinks = collected(make, 200)
            job = flow.start(ps.engines.Spark(master=master, parallelism=tasks, rows_per_batch=70))
            rescale_all_the_time(flow, job, seed=tasks)
            job.wait()
            found = [sink.items for sink in sinks]
            assert found == expected, f"{name} with {tasks} tasks on {master}: {found} instead of {expected}"
            print(name, tasks, flush=True)


def rescale_all_the_time(flow: ps.Flow, job: ps.Job, seed: int) -> None:
    chance = random.Random(seed)
    names = [node.name for node in flow.validate().nodes]
    seen = -1
    while job.is_running:
        if len(job.batches()) > seen:
            seen = len(job.batches())
            for name in names:
                with suppress(ps.FlowError):  # those that run in one task
                    job.rescale(name, chance.choice(TASKS))
        with suppress(TimeoutError):
            job.wait(timeout=0.01)
