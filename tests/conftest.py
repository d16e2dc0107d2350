"""What every test gets: the engines to run on, and a watch over what is left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

import penstock as ps
from penstock.testing import shuffled

# At a desk, hypothesis looks somewhere else each time; in CI, a change is judged by the same examples as the last one.
settings.register_profile("penstock", max_examples=100, deadline=None, derandomize="CI" in os.environ)
settings.load_profile("penstock")


ENGINES = {
    "sequential": lambda: ps.engines.Sequential(),
    "sequential, restarted": lambda: ps.engines.Sequential(restart="every-wait"),
    "local, 1 thread": lambda: ps.engines.Local(threads=1),
    "local, 4 threads": lambda: ps.engines.Local(threads=4),
    "local, dedicated": lambda: ps.engines.Local(threading="dedicated"),
    "local, manual": lambda: ps.engines.Local(threading="manual"),
    "local, unfused, queues of one": lambda: ps.engines.Local(threads=2, fuse=False, queue_size=1),
    "local, shuffled": lambda: shuffled(seed=1, queue_size=2),
    "local, 3 replicas": lambda: ps.engines.Local(threads=3, replicas=3),
    "local, 3 replicas, shuffled": lambda: shuffled(seed=2, queue_size=2, replicas=3),
    "simulated, 3 cores": lambda: ps.engines.Simulated(cores=3, replicas=2, queue_size=50),
    "spark": lambda: ps.engines.Spark(parallelism=2),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    """Every engine in turn: the same test runs on all of them."""
    if request.param == "spark" and request.node.get_closest_marker("in_process"):
        pytest.skip("on Spark, functions run in other processes, and a batch that fails is not published")
    return ENGINES[request.param]()


@pytest.fixture(autouse=True)
def no_thread_left_behind() -> Iterator[None]:
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
    assert left == [], f"still running: {left}"
