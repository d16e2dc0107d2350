"""What operators cost, as a real run has shown it: `penstock run --profile FILE` writes it, `costs=FILE` reads it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from penstock.costs import Cost
from penstock.errors import FlowError
from penstock.observe.report import OperatorReport, Report

_TICK_SECONDS = 0.004
"""Systems count in such steps how long a thread has used a core."""


def costs_of(report: Report) -> dict[str, Cost]:
    """What a tuple has cost each operator in a run, on average, and how many came out for one that went in.

    Time in which an operator used no core was outside the GIL. What it computed there, as numpy and zlib do, a run
    can't tell from the rest: say so in the file, as `released`, a share from 0 to 1.
    """
    return {
        name: Cost(
            operator.busy_seconds / operator.received,
            released=_waiting_share(operator),
            outputs=operator.emitted / operator.received,
        )
        for name, operator in report.operators.items()
        if operator.received
    }


def _waiting_share(operator: OperatorReport) -> float:
    """How much of its time an operator used no core, if that is more than ticks make up by chance.

    >>> _waiting_share(OperatorReport(busy_seconds=2.0, cpu_seconds=0.5))
    0.75
    >>> _waiting_share(OperatorReport(busy_seconds=2.0, cpu_seconds=1.9))
    0.0
    """
    busy, cpu = operator.busy_seconds, operator.cpu_seconds
    if cpu is None or busy - cpu <= 2 * math.sqrt(_TICK_SECONDS * busy):
        return 0.0
    return (busy - cpu) / busy


def save_costs(costs: Mapping[str, Cost], path: str | os.PathLike[str]) -> None:
    """As JSON that can be read and changed by hand."""
    kept = {
        name: {"seconds": cost.seconds, "released": cost.released, "outputs": cost.outputs}
        for name, cost in costs.items()
    }
    try:
        Path(path).write_text(json.dumps(kept, indent=2) + "\n")
    except OSError as error:
        raise FlowError(f"costs {os.fspath(path)!r} can't be written: {error.strerror}") from error


def load_costs(path: str | os.PathLike[str]) -> dict[str, Cost]:
    """What `save_costs` has written."""
    name = os.fspath(path)
    try:
        found = json.loads(Path(path).read_text())
        return {
            operator: Cost(float(cost["seconds"]), float(cost.get("released", 0.0)), cost.get("outputs"))
            for operator, cost in found.items()
        }
    except OSError as error:
        raise FlowError(f"costs {name!r}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FlowError(
            f"costs {name!r}: a JSON object of operators, each with its seconds, is expected ({error!r})"
        ) from None
