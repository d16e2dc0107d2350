"""What a long run has done, as a table: the only place that counts trials."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tests.reliability.trials import FINE, Verdict


class Figures:
    """Outcomes by what was done to which engine."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}

    def add(self, what: str, engine: str, outcome: str, count: int = 1) -> None:
        self._counts.setdefault((what, engine), Counter())[outcome] += count

    def table(self) -> list[str]:
        """Rows of Markdown: trials, those that ended as they may, and the others by class."""
        if not self._counts:
            return []
        others = sorted({outcome for counts in self._counts.values() for outcome in counts} - set(FINE))
        columns = ["what", "engine", "trials", *FINE, *others]
        rows = [
            [what, engine, str(counts.total()), *(str(counts[one]) for one in (*FINE, *others))]
            for (what, engine), counts in sorted(self._counts.items())
        ]
        lines = [columns, ["---"] * len(columns), *rows]
        return [f"| {' | '.join(line)} |" for line in lines]


FIGURES = Figures()


class Trials:
    """The cases of one test: counts each, and in the end tells those that went wrong, grouped by how."""

    def __init__(self, what: str, engine: str) -> None:
        self._what = what
        self._engine = engine
        self._wrong: dict[tuple[str, str], list[str]] = {}

    def add(self, case: str, verdict: Verdict) -> None:
        FIGURES.add(self._what, self._engine, verdict.outcome)
        if verdict.outcome not in FINE:
            print(f"{verdict.outcome}: {case}: {verdict.told}")  # with `pytest -s`, long before the end
            self._wrong.setdefault((verdict.outcome, _general(verdict.told)), []).append(case)

    def report(self) -> str:
        return "\n".join(_lines(self._wrong.items()))


def _general(told: str) -> str:
    """Without what differs from trial to trial, so that one defect is told once."""
    told = re.sub(r"/\S*?/work/", "", told)
    return re.sub(r"\d{4,}", "<n>", re.sub(r"[0-9a-f]{32,}", "<hash>", told))


def _lines(wrong: Iterable[tuple[tuple[str, str], list[str]]]) -> Iterable[str]:
    for (outcome, told), cases in sorted(wrong):
        yield f"{outcome}, {len(cases)} times: {told}"
        yield from (f"    {case}" for case in cases[:5])
