"""What a figure of a paper is made of: points that are measured, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Measure = Callable[[], Any]
"""One point of a figure. It is called in a process of its own, and gives what JSON can hold."""


@dataclass(frozen=True)
class Panel:
    """One plot, with the axes of the paper."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    style: Literal["line", "step", "bar"] = "line"
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, and what was found here."""

    told: str
    paper: str
    """The paper's figure, in its own units."""
    ours: str
    holds: bool
    reason: str = ""
    """Where it doesn't hold: what shows why."""
    is_beyond: bool = False
    """Whether it is not the paper's: Penstock's defaults against the figure's best contestant."""


@dataclass(frozen=True)
class Found:
    """What the points of a figure show."""

    panels: Sequence[Panel]
    claims: Sequence[Claim]


@dataclass(frozen=True)
class Figure:
    """A figure or a table of a paper: `measures` by the names of its points, and `read`, which gets their results."""

    name: str
    title: str
    setting: str
    """What was run, in a sentence or two: cores, costs, queue sizes, and what the paper leaves open."""
    measures: Mapping[str, Measure]
    read: Callable[[Mapping[str, Any]], Found]
    is_real: bool = False
    """Whether its points need the machine for themselves; the others are simulated."""
    points_of: str = ""
    """The figure whose points these are, where it shows another side of them."""


@dataclass(frozen=True)
class Paper:
    name: str
    title: str
    figures: Sequence[Figure]
