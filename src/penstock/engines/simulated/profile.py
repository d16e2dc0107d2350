"""What operators cost, as a real run has shown it: `penstock run --profile FILE` writes it, `costs=FILE` reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from penstock.costs import Cost
from penstock.errors import FlowError
from penstock.observe.report import Report


def costs_of(report: Report) -> dict[str, Cost]:
    """What a tuple has cost each operator in a run, on average, and how many came out for one that went in.

    A run can't tell how much of it was outside the GIL: say so in the file, as `released`, a share from 0 to 1.
    """
    return {
        name: Cost(operator.busy_seconds / operator.received, outputs=operator.emitted / operator.received)
        for name, operator in report.operators.items()
        if operator.received
    }


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
