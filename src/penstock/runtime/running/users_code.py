"""The only place that knows which thread is in users' code that no worker runs: opening, closing, a checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.runtime.failures import told

if TYPE_CHECKING:
    from penstock.runtime.cells import Cell


class UsersCode:
    """Of one run: whose code its threads are in, by name.

    >>> users_code = UsersCode("clicks")
    >>> with users_code.called("the checkpoint"):
    ...     users_code.called_in(threading.get_ident())
    'the checkpoint'
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._names: dict[int, str] = {}

    @contextmanager
    def called(self, name: str) -> Iterator[None]:
        """While this thread is in users' code: whose that is."""
        thread = threading.get_ident()
        self._names[thread] = name
        try:
            yield
        finally:
            self._names.pop(thread, None)

    def called_in(self, thread: int) -> str | None:
        """Whose code a thread is in, if any."""
        return self._names.get(thread)

    def call(self, cell: Cell, call: Callable[[], None], when: str) -> None:
        """Let a cell do something in this thread; what users' code raises there names its operator."""
        try:
            with self.called(cell.name):
                call()
        except BaseException as error:
            found = told(self._flow, cell.nodes, error, when)
            raise found from found.__cause__
