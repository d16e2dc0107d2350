"""What every virtual worker did, when: as a file that trace viewers (Perfetto, chrome://tracing) show as a timeline."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from penstock.runtime.cells.cell import Cell
from penstock.runtime.worker import Point, Worker


class Timeline:
    """Events in the order in which they were simulated; the same run gives the same bytes."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, worker: Worker, cell: Cell | None, point: Point, began: float, ended: float) -> None:
        is_work = point is Point.PROCESS
        name = cell.name if cell is not None and is_work else point.name.lower().replace("_", " ")
        event: dict[str, Any] = {
            "name": name,
            "cat": "work" if is_work else "overhead",
            "ph": "X",
            "ts": round(began * 1e6, 3),
            "dur": round((ended - began) * 1e6, 3),
            "pid": 1,
            "tid": worker.number,
        }
        if is_work and cell is not None:
            event["args"] = {"tuples": cell.budget.processed}
        self._lines.append(json.dumps(event))

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text("[\n" + ",\n".join(self._lines) + "\n]\n")
