"""The only interface between engines and where data goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Delivery(Enum):
    """What a sink promises when the same output is written again after a failure."""

    AT_LEAST_ONCE = "at least once"
    """The outside world may see a tuple twice."""
    IDEMPOTENT = "idempotent"
    """Writing again changes nothing."""
    TRANSACTIONAL = "transactional"
    """Nothing is visible before it is published, whole."""


@dataclass(frozen=True)
class Rejected:
    """A value that this sink can't take, by its place among those written."""

    position: int
    error: BaseException


class SinkWriter(ABC):
    """Takes values in order; what was written becomes visible at the latest when it is closed."""

    @abstractmethod
    def write(self, values: Sequence[Any]) -> Rejected | None:
        """Take the values up to the first that can't be written, and return that; `SinkError` if nothing can be.

        An engine whose operator skips what is rejected calls again with the values behind it.
        """

    def flush(self) -> None:
        """Make what was written survive this process: with a checkpoint, it will not be written again after this."""

    def close(self) -> None:
        """Make everything written visible."""

    def abandon(self) -> None:
        """The run has failed: what was written came before the failure, so it becomes visible all the same."""
        self.close()

    def discard(self) -> None:
        """What was written can't be trusted: what is not visible by now stays so, where that can be helped."""


class Sink(ABC):
    """Where a stream ends.

    In each run a sink is opened once, and its `open`, and its writer's `write`, `flush` and `close` (or `abandon`), are
    called one after another on one and the same thread, unless it says that `any_thread` will do.
    """

    name: str = "sink"
    """What an operator that writes to it is called when the user gives no name."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    any_thread: bool = False
    """Whether it may be called from any thread, one call at a time: that saves two changes of thread for each chunk."""

    @property
    def place(self) -> object:
        """What two sinks of a flow can't both write to; `None` where that does not matter."""
        return None

    @abstractmethod
    def open(self) -> SinkWriter:
        """Get ready for one run; `SinkError` where that can't work, before anything is read."""

    def describe(self) -> str:
        """What is written, in a few words for `explain`."""
        return self.name
