"""What others may know of a cell: counts, seconds and shares, for policies, signals and reports. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.observe.report import OperatorReport
from penstock.runtime.cells.budget import Budget
from penstock.runtime.cells.outbox import PortOutbox
from penstock.runtime.cells.tally import Counters
from penstock.runtime.ports import Port


class Passed(Protocol):
    """What has gone through some operators."""

    def passed(self) -> tuple[int, int]: ...

    def counts(self) -> dict[str, Counters]: ...


@dataclass(frozen=True)
class Figures:
    """Of the operators of a cell that does the work itself."""

    tally: Passed
    inputs: Sequence[Port]
    outbox: PortOutbox
    share_of_time: Callable[[float], float]
    budget: Budget

    @property
    def workers(self) -> int:
        """How many workers are in it; policies ask about cells that are ready, so a plain one is empty then."""
        return 0

    @property
    def most_workers(self) -> int:
        """How many may be in it at once."""
        return 1

    @property
    def busy_seconds(self) -> float:
        """How long workers have been in it."""
        return self.budget.total_seconds

    @property
    def cpu_seconds(self) -> float:
        """How long they have used a core there."""
        return self.budget.cpu_seconds

    def pace(self, threads: int) -> float | None:
        """How many seconds one tuple more takes on so many threads; `None` before anything is known."""
        return self.budget.seconds_per_tuple if self.passed()[0] else None

    @property
    def queue_length(self) -> int:
        """Tuples that are here and not worked on yet."""
        return sum(map(len, self.inputs))

    def hottest_share(self) -> float:
        """The share of the tuples since this was last asked that had to be worked on one after another."""
        return 0.0

    def passed(self) -> tuple[int, int]:
        """How many tuples its first operator has received, and its last one emitted."""
        return self.tally.passed()

    def selectivity(self) -> float:
        received, emitted = self.passed()
        return emitted / received if received else 1.0

    def reports(self) -> dict[str, OperatorReport]:
        """By operator, in the order of the chain."""
        counts = self.tally.counts()
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
            write_blocked_ratio=self.share_of_time(self.outbox.blocked_seconds) if is_last else 0.0,
        )
