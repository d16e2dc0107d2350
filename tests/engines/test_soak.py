"""A run that goes on and on needs no more at its end than near its beginning.

Half an hour: PENSTOCK_SOAK_SECONDS=1800 pytest -s -m long tests/engines/test_soak.py
"""

import os
import threading
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

import penstock as ps
from penstock.clock import SystemClock
from penstock.engines import local_checkpoint
from penstock.engines.durable import steps
from penstock.engines.durable.checkpoint import Checkpoint

SECONDS = float(os.environ.get("PENSTOCK_SOAK_SECONDS", "60"))
CHECKPOINT_SECONDS = 1.0
SAMPLES = 40
WARM_UP = 0.25
"""Of the samples: until all caches are filled."""
KEYS_PER_SECOND = 1000
"""Of event time: so many come, and never again."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    memory_mb: float
    open_files: int
    threads: int
    needed_files: int
    """Files with states that the last manifest needs."""
    needed_mb: float
    checkpoint_files: int
    """All that are in the checkpoint."""


ALLOWED = {"memory_mb": 15.0, "open_files": 3, "threads": 1, "needed_files": 8, "needed_mb": 0.5}
"""By so much, or by a quarter, the second half may have more than the first. What nothing needs any more is deleted in
rounds, after a while: how many files there are is shown."""


class Watched:
    """When checkpoints were taken, and what the last one needs."""

    def __init__(self, clock):
        self._clock = clock
        self._checkpoint = None
        self.times = []
        self.needed = (0, 0.0)

    def attach(self, monkeypatch):
        watched = self

        class Noted(Checkpoint):
            def __init__(self, *args):
                watched._checkpoint = self
                super().__init__(*args)

        monkeypatch.setattr(local_checkpoint, "Checkpoint", Noted)
        monkeypatch.setattr(steps, "observer", self._reached)

    def _reached(self, step):
        if step == "published":
            self.times.append(self._clock.now())
            chains = self._checkpoint.manifests.chains().values()
            segments = {segment for chain in chains for segment in chain}
            files, size_bytes = {segment.file for segment in segments}, sum(segment.length for segment in segments)
            self.needed = (len(files), size_bytes / 1e6)


def sample(watched, checkpoint):
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        pages * PAGE_BYTES / 1e6,
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        *watched.needed,
        sum(len(files) for _, _, files in os.walk(checkpoint)),
    )


def build(out):
    """Keys that come once, in windows of every kind, states that are forgotten, and a join."""
    flow = ps.Flow("soak")
    numbers = flow.read(ps.sources.generate(lambda n: (n, n / KEYS_PER_SECOND), rate=20_000))
    keyed = numbers.key_by(lambda value: value[0])

    def time(value):
        return value[1]

    counted = [
        keyed.window(ps.windows.tumbling(1, time=time)).count(),
        keyed.window(ps.windows.session(1, time=time)).count(replicas=2),
        keyed.window(ps.windows.sliding(2, every=1, time=time)).count(),
    ]
    seen = keyed.stateful_map(lambda n, value: (n + 1, value), init=int, ttl=1, time=time)
    joined = seen.key_by(lambda value: value[0]).join(keyed, within=1, time=time, lateness=0)
    results = [one.map(lambda result: str(result.key)) for one in counted] + [joined.map(lambda pair: str(pair[0][0]))]
    results[0].merge(*results[1:]).filter(lambda text: text.endswith("00")).write(ps.sinks.text(out))
    return flow


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the figures of a process are Linux's")
@pytest.mark.timeout(SECONDS + 300)
def test_a_long_run_stays_as_it_is(tmp_path, monkeypatch):
    clock = SystemClock()
    watched = Watched(clock)
    watched.attach(monkeypatch)
    engine = ps.engines.Local(threads=2, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=CHECKPOINT_SECONDS)
    began = clock.now()
    job = build(tmp_path / "out").start(engine)
    samples = []
    try:
        for _ in range(SAMPLES):
            clock.sleep(SECONDS / SAMPLES)
            assert job.is_running
            samples.append(sample(watched, tmp_path / "checkpoint"))
            print(f"{clock.now() - began:7.1f} s, {len(watched.times)} checkpoints: {samples[-1]}")
    finally:
        job.stop()
    warm = samples[int(WARM_UP * SAMPLES) :]
    for name in [field.name for field in fields(Sample) if field.name in ALLOWED]:
        first, second = (
            median(getattr(one, name) for one in half) for half in (warm[: len(warm) // 2], warm[len(warm) // 2 :])
        )
        assert second <= max(1.25 * first, first + ALLOWED[name]), f"{name}: {first} at first, {second} later"
    warm_times = [time for time in watched.times if time > began + WARM_UP * SECONDS]
    intervals = [later - earlier for earlier, later in pairwise(warm_times)]
    print("seconds between checkpoints:", [round(seconds, 2) for seconds in intervals])
    middle = len(intervals) // 2
    assert median(intervals[middle:]) <= 1.5 * median(intervals[:middle])
    assert median(intervals) < 3 * CHECKPOINT_SECONDS
