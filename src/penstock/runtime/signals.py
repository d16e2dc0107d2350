"""The only code that listens to signals: Ctrl-C and SIGTERM let a run drain, and end it at once the second time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 20.0
"""How long a run may drain after SIGTERM: its sender, such as a container's host, kills some 30 seconds later."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as the main thread sees it."""

    exit_code = 128 + signal.SIGTERM


class Stoppable(Protocol):
    """What can be told to stop."""

    def stop(self, drain: bool = True, grace_seconds: float | None = None) -> None: ...

    @property
    def is_running(self) -> bool: ...


def attended(
    job: Stoppable,
    wait: Callable[[], T],
    grace_seconds: float = GRACE_SECONDS,
    on_signal: Callable[[], None] = lambda: None,
) -> T:
    """Wait for a job; raises `KeyboardInterrupt` (`Terminated` after SIGTERM) when a signal has made it stop."""
    with _sigterm_heard():
        try:
            return wait()
        except KeyboardInterrupt as asked:
            try:
                on_signal()
                job.stop(drain=True, grace_seconds=grace_seconds if isinstance(asked, Terminated) else None)
            except KeyboardInterrupt:
                job.stop(drain=False)
            raise
        except BaseException:
            if job.is_running:  # raised by something else in this thread, such as an alarm: this thread waits no more
                job.stop(drain=False)
            raise


@contextmanager
def _sigterm_heard() -> Iterator[None]:
    """Only in the main thread, where signals arrive, and only where no other code has said what SIGTERM means."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(_number: int, _frame: Any) -> None:
    raise Terminated
