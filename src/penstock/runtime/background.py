"""The thread that a run goes on in while its caller does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class StopSignal:
    """How a caller tells a run to stop, and how the run waits without missing it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._drain = True

    def request(self, drain: bool) -> None:
        """Ask to stop; asking again can only make it more urgent."""
        self._drain = self._drain and drain
        self._event.set()

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    @property
    def at_once(self) -> bool:
        return self._event.is_set() and not self._drain

    def wait(self, seconds: float) -> None:
        """Return after so many seconds, or as soon as a stop is requested."""
        self._event.wait(seconds)


class Background(Generic[T]):
    """A function running in a thread of its own; its result or its exception comes out of `result`."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._result: T | None = None
        self._error: BaseException | None = None
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended.set()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; `False` if it has not come in time."""
        # Not by joining the thread: a Ctrl-C inside Thread.join makes it believe that the thread has ended.
        if not self._has_ended.wait(timeout_seconds):
            return False
        self._thread.join()
        return True

    def result(self) -> T:
        """What the function returned, or what it raised."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result
