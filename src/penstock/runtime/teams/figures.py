"""What others may know of a team: the sums of what its members have done, and of what it did as another cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.observe.report import OperatorReport
from penstock.runtime.cells.figures import Figures
from penstock.runtime.cells.tally import Counters
from penstock.runtime.teams.members import Roster
from penstock.runtime.teams.work import Work


class TeamTally:
    """The counts of all members, each once, and of the cell whose place the team has taken."""

    def __init__(self, own: Mapping[str, Counters], roster: Roster) -> None:
        self._earlier = dict(own)
        self._roster = roster

    def follow(self, earlier: Mapping[str, Counters]) -> None:
        """The team takes the place of a cell that has counted these."""
        self._earlier = dict(earlier)

    def counts(self) -> dict[str, Counters]:
        done = [member.tally.counts() for member in self._roster.all]
        return {name: Counters.sum([one, *(of[name] for of in done)]) for name, one in self._earlier.items()}

    def passed(self) -> tuple[int, int]:
        names = list(self._earlier)
        passed = [member.tally.passed() for member in self._roster.all]
        received, emitted = self._earlier[names[0]].received, self._earlier[names[-1]].emitted
        return received + sum(one for one, _ in passed), emitted + sum(one for _, one in passed)


@dataclass(frozen=True)
class TeamFigures(Figures):
    """Of all members together."""

    work: Work
    roster: Roster

    @property
    def workers(self) -> int:
        return self.roster.busy

    @property
    def most_workers(self) -> int:
        return self.roster.wanted

    @property
    def busy_seconds(self) -> float:
        return sum(member.budget.total_seconds for member in self.roster.all)

    @property
    def cpu_seconds(self) -> float:
        return sum(member.budget.cpu_seconds for member in self.roster.all)

    def pace(self, threads: int) -> float | None:
        known = [member.budget.seconds_per_tuple for member in self.roster.all if member.tally.passed()[0]]
        return sum(known) / len(known) / min(self.most_workers, threads) if known else None

    @property
    def queue_length(self) -> int:
        return super().queue_length + self.work.waiting

    def hottest_share(self) -> float:
        return self.work.hottest_share()

    def reports(self) -> dict[str, OperatorReport]:
        intake = self.work.shop.intake
        held, inside = intake.held(), intake.inside
        return {
            name: replace(report, replicas=self.most_workers, held=held, inside=inside)
            for name, report in super().reports().items()
        }
