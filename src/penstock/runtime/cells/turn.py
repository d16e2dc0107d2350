"""Whose turn it is: the only code that decides whether a worker may be in a cell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum, auto


class Status(Enum):
    """Where a cell is in its life; changed only under its lock."""

    IDLE = auto()
    QUEUED = auto()
    RUNNING = auto()
    DIRTY = auto()
    """Running, and notified since it began: it must look again."""
    COMPLETE = auto()


# Looked up in its class, a member of an enumeration takes ten times as long (CPython 3.11).
_IDLE, _QUEUED, _RUNNING, _DIRTY, _COMPLETE = Status


class Turn:
    """Lets one worker at a time into a cell, and loses no notification.

    A cell is in the list of ready cells at most once: `make_ready` is called when it has to be added.

    >>> turn = Turn(lambda: print("ready"))
    >>> turn.notify()
    ready
    >>> turn.claim(), turn.claim()
    (True, False)
    >>> turn.notify()
    >>> turn.release(has_more=False)
    >>> turn.is_queued
    True
    """

    def __init__(
        self,
        make_ready: Callable[[], None],
        tell_news: Callable[[], None] = lambda: None,
        has_more: Callable[[], bool] | None = None,
    ) -> None:
        self._make_ready = make_ready
        self._tell_news = tell_news
        """Called instead, where it is in the list already: something has changed about it."""
        self._has_more = has_more
        """Asked when it has been released and is idle: whether it has to be notified after all."""
        self._lock = threading.Lock()
        self._status = _IDLE
        self._is_listed = False

    @property
    def is_idle(self) -> bool:
        return self._status is _IDLE

    @property
    def is_queued(self) -> bool:
        return self._status is _QUEUED

    @property
    def is_taken(self) -> bool:
        """Whether a worker is in the cell."""
        return self._status is _RUNNING or self._status is _DIRTY

    @property
    def has_ended(self) -> bool:
        return self._status is _COMPLETE

    @property
    def is_at_rest(self) -> bool:
        return self._status in (_IDLE, _COMPLETE)

    def notify(self) -> None:
        """Something has changed: make sure that a worker looks at the cell after now."""
        with self._lock:
            if self._status is _RUNNING:
                self._status = _DIRTY
            must_be_listed = self._status is _IDLE and self._queue()
        if must_be_listed:
            self._make_ready()
        elif self._is_listed:
            self._tell_news()

    def _queue(self) -> bool:
        """Become queued; whether that needs an entry in the list of ready cells. The caller must hold the lock."""
        self._status = _QUEUED
        must_be_listed, self._is_listed = not self._is_listed, True
        return must_be_listed

    def claim(self, from_list: bool = False) -> bool:
        """Become the only worker in the cell; `from_list` where its entry was taken from the list."""
        with self._lock:
            if from_list:
                self._is_listed = False
            if self._status is not _QUEUED:
                return False
            self._status = _RUNNING
            return True

    def claim_idle(self) -> bool:
        """Become the only worker in a cell that was not notified."""
        with self._lock:
            if self._status is not _IDLE:
                return False
            self._status = _RUNNING
            return True

    def release(self, has_more: bool) -> None:
        """Let go; queue the cell again if it has more to do, or was notified meanwhile."""
        with self._lock:
            if self._status is _COMPLETE:
                return
            is_queued = has_more or self._status is _DIRTY
            must_be_listed = is_queued and self._queue()
            if not is_queued:
                self._status = _IDLE
        if must_be_listed:
            self._make_ready()
        elif is_queued:
            self._tell_news()
        if self._has_more is not None:
            self._look_again(self._has_more)

    def _look_again(self, has_more: Callable[[], bool]) -> None:
        """For work that is announced to one idle cell of several, if there is one: it may have been missed."""
        self._tell_news()
        if self.is_idle and has_more():
            self.notify()

    def end(self) -> None:
        """The cell is never run again."""
        with self._lock:
            self._status = _COMPLETE
