"""What every test gets: the engines to run on, and a watch over what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps

ENGINES = {
    "sequential": lambda: ps.engines.Sequential(),
    "sequential, restarted": lambda: ps.engines.Sequential(restart="every-wait"),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    """Every engine in turn: the same test runs on all of them."""
    return ENGINES[request.param]()


@pytest.fixture(autouse=True)
def no_thread_left_behind() -> Iterator[None]:
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
    assert left == [], f"still running: {left}"
