"""Runs a flow on a checkpoint, and kills its own process when a batch has reached a step."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import penstock as ps
from penstock.engines.spark import admission, batches


def make_flow(folder: Path, inputs: Path | None = None) -> ps.Flow:
    flow = ps.Flow("killed")
    lines = flow.read(ps.sources.text(inputs or folder / "in"), name="lines").map(int)
    counted = lines.key_by(lambda x: x % 7).stateful_map(lambda s, x: (s + 1, [x, s]), init=int, name="counted")
    counted.write(ps.sinks.json(folder / "out"), name="files")
    windows = lines.key_by(lambda x: x % 11).window(ps.windows.tumbling(100, time=lambda x: x % 977, lateness=500))
    windows.count(name="windows").write(ps.sinks.json(folder / "windows"), name="counts")
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
    _run(folder)


def die_anywhere(folder: Path, seed: int) -> None:
    """Kill this process at a moment that has nothing to do with what it is doing."""
    chance = random.Random(seed)
    batch, seconds = chance.randrange(4), chance.uniform(0, 0.6)
    seen = 0

    def reached(name: str) -> None:
        nonlocal seen
        if name == "admitted":
            if seen == batch:
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            seen += 1

    admission.reached = reached
    _run(folder)


def _run(folder: Path) -> None:
    make_flow(folder).run("spark", checkpoint=str(folder / "checkpoint"), parallelism=2, bytes_per_batch=4000)
