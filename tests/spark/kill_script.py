"""Runs a flow on a checkpoint, and kills its own process when a batch has reached a step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import penstock as ps
from penstock.engines.spark import admission, batches


def make_flow(folder: Path, inputs: Path | None = None) -> ps.Flow:
    flow = ps.Flow("killed")
    lines = flow.read(ps.sources.text(inputs or folder / "in"), name="lines").map(int)
    counted = lines.key_by(lambda x: x % 7).stateful_map(lambda s, x: (s + 1, [x, s]), init=int, name="counted")
    counted.write(ps.sinks.json(folder / "out"), name="files")
    total = counted.map(lambda pair: pair[0]).scan(lambda s, x: (s + x, s + x), 0, name="total")
    total.write(ps.sinks.text(folder / "totals"), name="totals")
    return flow


def main(folder: Path, step: str, batch: int) -> None:
    seen = 0

    def reached(name: str) -> None:
        nonlocal seen
        if name == step:
            if seen == batch:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    batches.reached = reached
    admission.reached = reached
    make_flow(folder).run("spark", checkpoint=str(folder / "checkpoint"), parallelism=2, bytes_per_batch=4000)
