"""Decisions that an engine has taken by itself, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
