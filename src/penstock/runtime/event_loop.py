"""Event loops for functions and sources that await: one in a thread of its own, and one on a virtual clock."""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from penstock.observe.report import LeftBehind
from penstock.runtime.running.patience import Patience
from penstock.runtime.standing import Abandoned, abandon, standing

_REAL_SECONDS = 0.001


class EventLoop(Protocol):
    """Where coroutines run."""

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine on the loop; its result comes as a future."""
        ...

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, soon."""
        ...

    def close(self, awaiting: str) -> Sequence[LeftBehind]:
        """Cancel what is under way; what does not end is named after the operators that await it."""
        ...

    def is_mine(self, thread: int) -> bool:
        """Whether coroutines run in this thread, and nothing else does."""
        ...


class Raised(Exception):
    """What awaited code raised, in an envelope: asyncio lets `SystemExit` end the loop instead of the task."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def enveloped(awaited: Callable[[], Awaitable[Any]], timeout_seconds: float | None) -> Any:
    """What an awaitable gives in so many seconds; or `Raised`, whatever that is. Nothing where the run has ended."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    try:
        async with asyncio.timeout(timeout_seconds):
            return await awaited()
    except BaseException as error:
        if not loop.is_running() or (task is not None and task.cancelling()):
            return None
        raise Raised(error) from None


class ThreadedEventLoop:
    """Started when it is first needed, ended with the run."""

    def __init__(self, name: str, patience_seconds: float = Patience.awaited) -> None:
        self._name = name
        self._patience_seconds = patience_seconds
        """For what was cancelled, before it is left behind."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def call(self, function: Callable[[], object]) -> None:
        self._running().call_soon_threadsafe(function)

    def close(self, awaiting: str) -> Sequence[LeftBehind]:
        loop, thread = self._loop, self._thread
        self._loop = None
        if loop is None or thread is None:
            return ()
        have_ended = threading.Event()
        loop.call_soon_threadsafe(_cancel_everything, loop, have_ended.set)
        is_quiet = have_ended.wait(self._patience_seconds)
        loop.call_soon_threadsafe(loop.stop)
        if is_quiet:
            thread.join()
            return ()
        assert thread.ident is not None
        left = LeftBehind(awaiting, standing(thread.ident))
        abandon(thread.ident)
        return (left,)

    def is_mine(self, thread: int) -> bool:
        """Whether this is the thread of the loop."""
        return self._thread is not None and self._thread.ident == thread

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        with suppress(Abandoned):
            loop.run_forever()
    finally:
        loop.set_exception_handler(lambda *_: None)  # what has not ended by now is told where it was left behind
        for task in asyncio.all_tasks(loop):
            with suppress(BaseException):
                task.get_coro().close()
        loop.close()


class SteppedEventLoop:
    """Runs in the thread of a driver, between two steps, on the driver's clock: sleeping takes virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._loop: _Clocked | None = None
        self._tasks = 0
        self.is_used = False

    @property
    def due(self) -> float:
        """When something on the loop wants to be woken."""
        return self._loop.due if self._loop is not None else math.inf

    @property
    def has_calls(self) -> bool:
        """Whether something on the loop can go on."""
        return self._loop is not None and self._loop.has_calls

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return self._tasks > 0

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._tasks += 1
        task = self._running().create_task(coroutine)
        task.add_done_callback(lambda task: self._done(task, future))
        return future

    def call(self, function: Callable[[], object]) -> None:
        self._running().call_soon(function)

    def run_ready(self) -> None:
        """Whatever can go on now, and whatever that makes ready."""
        loop = self._loop
        while loop is not None and (loop.has_calls or loop.due <= self._now()):
            loop.run_once()

    def run_for_real(self) -> None:
        """Wait a moment for what is no matter of this clock, such as a connection."""
        loop = self._running()
        threading.Event().wait(_REAL_SECONDS)
        loop.run_once()

    def close(self, awaiting: str) -> Sequence[LeftBehind]:
        if self._loop is not None:
            self._loop.call_soon(_cancel_everything, self._loop, self._loop.stop)
            self._loop.run_forever()
            self._loop.close()
        return ()

    def is_mine(self, thread: int) -> bool:
        return False  # it is the driver's

    def _running(self) -> _Clocked:
        if self._loop is None:
            self._loop = _Clocked(self._now)
            self.is_used = True
        return self._loop

    def _done(self, task: asyncio.Task[Any], future: Future[Any]) -> None:
        self._tasks -= 1
        if future.cancelled():
            return
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())


class _Clocked(asyncio.SelectorEventLoop):
    """An event loop with another clock, which tells what it has to do."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.has_calls = False
        self._current_time = now
        self._times: list[float] = []
        super().__init__()

    def time(self) -> float:
        return self._current_time()

    @property
    def due(self) -> float:
        return self._times[0] if self._times else math.inf

    def call_soon(self, *args: Any, **options: Any) -> asyncio.Handle:  # type: ignore[override]
        self.has_calls = True
        return super().call_soon(*args, **options)

    def call_at(self, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        heapq.heappush(self._times, when)
        return super().call_at(when, *args, **options)

    def run_once(self) -> None:
        now = self.time()
        while self._times and self._times[0] <= now:
            heapq.heappop(self._times)
        self.has_calls = False
        super().call_soon(self.stop)
        self.run_forever()


def _cancel_everything(loop: asyncio.AbstractEventLoop, when_done: Callable[[], object]) -> None:
    """Called on the loop: end its tasks, and tell when they have."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if not tasks:
        when_done()
    else:
        asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: when_done())
