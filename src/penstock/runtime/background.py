"""The thread that a run goes on in while its caller does something else, and how it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.runtime.standing import abandon, standing

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
        self._lock = threading.Lock()
        self._is_given_up = False
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        result, error = _outcome(self._function)
        with self._lock:
            if not self._is_given_up:
                self._result, self._error = result, error
                self._has_ended.set()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; `False` if it has not come in time."""
        # Not by joining the thread: a Ctrl-C inside Thread.join makes it believe that the thread has ended.
        if not self._has_ended.wait(timeout_seconds):
            return False
        if not self._is_given_up:
            self._thread.join()
        return True

    def give_up(self, instead: Callable[[], T]) -> None:
        """The function does not come back: from now on its result is another one, whatever it does later."""
        with self._lock:
            is_first = not self._is_given_up and not self._has_ended.is_set()
            self._is_given_up = self._is_given_up or is_first
        if is_first:
            self._result, self._error = _outcome(instead)
            abandon(self.ident)
            self._has_ended.set()
        self._has_ended.wait()

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def is_mine(self) -> bool:
        """Whether the caller is the function itself, or called by it."""
        return threading.get_ident() == self.ident

    @property
    def standing(self) -> str:
        """The line that the function stands at."""
        return standing(self.ident)

    @property
    def ident(self) -> int:
        """Of its thread."""
        assert self._thread.ident is not None
        return self._thread.ident

    def result(self) -> T:
        """What the function returned, or what it raised."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


def _outcome(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error
