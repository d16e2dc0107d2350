"""What others may know of a cell: counts, seconds and shares, for policies, signals and reports. Reads only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.observe.report import OperatorReport
from penstock.runtime.cells.budget import Budget
from penstock.runtime.cells.outbox import PortOutbox
from penstock.runtime.cells.tally import Counters, Tally
from penstock.runtime.ports import Port


class Passed(Protocol):
    """What has gone through some operators."""

    def passed(self) -> tuple[int, int]: ...

    def counts(self) -> dict[str, Counters]: ...


class Figures(ABC):
    """Of the operators of a cell, whatever works in them."""

    def __init__(
        self,
        tally: Passed,
        inputs: Sequence[Port],
        outbox: PortOutbox,
        share_of_time: Callable[[float], float],
    ) -> None:
        self._tally = tally
        self._inputs = inputs
        self._outbox = outbox
        self._share_of_time = share_of_time

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many workers are in it; policies ask about cells that are ready, so a plain one is empty then."""

    @property
    def most_workers(self) -> int:
        """How many may be in it at once."""
        return 1

    @property
    @abstractmethod
    def busy_seconds(self) -> float:
        """How long workers have been in it."""

    @property
    @abstractmethod
    def cpu_seconds(self) -> float:
        """How long they have used a core there."""

    @abstractmethod
    def pace(self, threads: int) -> float | None:
        """How many seconds one tuple more takes on so many threads; `None` before anything is known."""

    @property
    def queue_length(self) -> int:
        """Tuples that are here and not worked on yet."""
        return sum(map(len, self._inputs))

    def hottest_share(self) -> float:
        """The share of the tuples since this was last asked that had to be worked on one after another."""
        return 0.0

    def passed(self) -> tuple[int, int]:
        """How many tuples its first operator has received, and its last one emitted."""
        return self._tally.passed()

    def selectivity(self) -> float:
        received, emitted = self.passed()
        return emitted / received if received else 1.0

    def reports(self) -> dict[str, OperatorReport]:
        """By operator, in the order of the chain."""
        counts = self._tally.counts()
        names = list(counts)
        return {name: self._report(one, name == names[0], name == names[-1]) for name, one in counts.items()}

    def _report(self, counts: Counters, is_first: bool, is_last: bool) -> OperatorReport:
        return OperatorReport(
            counts.received,
            counts.emitted,
            counts.busy_seconds,
            failed=counts.failed,
            late=counts.late,
            cpu_seconds=counts.cpu_seconds,
            queue_length=self.queue_length if is_first else 0,
            write_blocked_ratio=self._share_of_time(self._outbox.blocked_seconds) if is_last else 0.0,
        )


class OwnFigures(Figures):
    """Of a cell that does the work itself."""

    def __init__(
        self,
        tally: Tally,
        inputs: Sequence[Port],
        outbox: PortOutbox,
        share_of_time: Callable[[float], float],
        budget: Budget,
    ) -> None:
        super().__init__(tally, inputs, outbox, share_of_time)
        self._budget = budget

    @property
    def workers(self) -> int:
        return 0

    @property
    def busy_seconds(self) -> float:
        return self._budget.total_seconds

    @property
    def cpu_seconds(self) -> float:
        return self._budget.cpu_seconds

    def pace(self, threads: int) -> float | None:
        return self._budget.seconds_per_tuple if self.passed()[0] else None
