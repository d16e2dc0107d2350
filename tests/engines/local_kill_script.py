"""Runs a flow on the local engine with a checkpoint, and kills its own process when a checkpoint has reached a step."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import penstock as ps
from penstock.engines import local_checkpoint
from penstock.engines.durable import steps
from tests.killed_flow import dying_at, make_flow


def main(folder: Path, step: str, batch: int, replicas: int = 1) -> None:
    steps.observer = dying_at(step, batch)
    _run(folder, replicas)


def die_anywhere(folder: Path, seed: int) -> None:
    """Kill this process at a moment that has nothing to do with what it is doing."""
    chance = random.Random(seed)
    threading.Timer(chance.uniform(0, 0.15), os.kill, (os.getpid(), signal.SIGKILL)).start()
    _run(folder, chance.choice([1, 3]))
    threading.Event().wait()


def _run(folder: Path, replicas: int) -> None:
    local_checkpoint._PAUSES_PER_INTERVAL = 0  # as many checkpoints as can be
    engine = ps.engines.Local(threads=3, checkpoint=folder / "checkpoint", checkpoint_seconds=0, replicas=replicas)
    make_flow(folder).run(engine)
