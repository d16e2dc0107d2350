"""The only code that moves calls to a thread of their own: for what may rely on always being called by one thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from penstock.connectors.sink import Rejected, Sink, SinkWriter
from penstock.runtime.standing import Abandoned, waits_for

T = TypeVar("T")


def open_on_one_thread(sink: Sink) -> SinkWriter:
    """A writer whose sink's `open`, `write`, `flush` and `close` are all called on one and the same thread."""
    return sink.open() if sink.any_thread else _OnOneThread(sink)


class _OnOneThread(SinkWriter):
    def __init__(self, sink: Sink) -> None:
        self._thread = OwnThread(f"penstock-sink-{sink.name}")
        try:
            self._writer: SinkWriter = self._thread.call(sink.open)
        except BaseException:
            self._thread.end()
            raise

    def write(self, values: Sequence[Any]) -> Rejected | None:
        return self._thread.call(lambda: self._writer.write(values))

    def flush(self) -> None:
        self._thread.call(self._writer.flush)

    def close(self) -> None:
        self._last(self._writer.close)

    def abandon(self) -> None:
        self._last(self._writer.abandon)

    def _last(self, function: Callable[[], None]) -> None:
        try:
            self._thread.call(function)
        finally:
            self._thread.end()


class OwnThread:
    """A thread that does what it is told, one call after another; its caller waits for it."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """What the function returns, or raises."""
        results: list[T] = []
        errors: list[BaseException] = []
        done = threading.Lock()
        done.acquire()

        def run() -> None:
            try:
                results.append(function())
            except Abandoned as error:
                errors.append(error)
                raise  # no caller waits any more
            except BaseException as error:
                errors.append(error)
            finally:
                done.release()

        me = threading.get_ident()
        waits_for[me] = self._thread.ident or me
        try:
            self._calls.put(run)
            done.acquire()
        finally:
            del waits_for[me]
        if errors:
            raise errors[0]
        return results[0]

    def end(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        with suppress(Abandoned):
            while (run := self._calls.get()) is not None:
                run()
