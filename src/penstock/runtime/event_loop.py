"""Event loops for functions and sources that await: one in a thread of its own, and one on a virtual clock."""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

_REAL_SECONDS = 0.001


class EventLoop(Protocol):
    """Where coroutines run."""

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine on the loop; its result comes as a future."""
        ...

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, soon."""
        ...

    def close(self) -> None:
        """Cancel what is under way."""
        ...


class ThreadedEventLoop:
    """Started when it is first needed, ended with the run."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def call(self, function: Callable[[], object]) -> None:
        self._running().call_soon_threadsafe(function)

    def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_everything(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop


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

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run_until_complete(_cancel_everything())
            self._loop.close()

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


async def _cancel_everything() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
