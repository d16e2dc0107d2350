"""Decisions that an engine has taken by itself, each with its reason: in reports, and in files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Decision:
    """One change: when, by whom, of what, from and to, on which signals, and why."""

    time: float
    controller: str
    operator: str
    before: Any
    after: Any
    reason: str
    signals: Mapping[str, Any] = field(default_factory=dict)
    is_applied: bool = True
    """Whether it was carried out; not where it was only to be told."""


class Journal:
    """A file of decisions, a JSON object on a line; or none."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else Path(path)
        if self._path is not None:
            self._path.write_text("")

    def add(self, decision: Decision) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(decision), ensure_ascii=False) + "\n")


def read_journal(path: str | os.PathLike[str]) -> Iterator[Decision]:
    """What a run has written there."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield Decision(**json.loads(line))
