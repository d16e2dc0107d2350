"""Waiting for what other processes and threads of others do: the only place in tests that polls, and never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.02


def until(condition: Callable[[], T], what: str, seconds: float = 200.0) -> T:
    """Wait until something outside of this process is so, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {seconds:.0f} seconds: {what}")
        time.sleep(_POLL_SECONDS)
    return found
