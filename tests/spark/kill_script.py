"""Runs a flow on a checkpoint, and kills its own process when a batch has reached a step."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

from penstock.engines.durable import steps
from tests.killed_flow import dying_at, make_flow


def main(folder: Path, step: str, batch: int) -> None:
    steps.observer = dying_at(step, batch)
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

    steps.observer = reached
    _run(folder)


def _run(folder: Path) -> None:
    make_flow(folder).run("spark", checkpoint=str(folder / "checkpoint"), parallelism=2, bytes_per_batch=4000)
