"""How results are printed, and decisions picked out of reports."""

from __future__ import annotations

from penstock.observe.journal import Decision
from penstock.observe.report import Report


def shown(what: str, *figures: str) -> None:
    print(f"  {what:<44} " + "  ".join(f"{figure:>16}" for figure in figures), flush=True)


def changes(report: Report, what: str, operator: str | None = None) -> list[Decision]:
    return [
        one
        for one in report.decisions
        if one.signals.get("what") == what and (operator is None or one.operator == operator)
    ]
