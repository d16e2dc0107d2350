"""The named steps of a batch on the driver: admitted, planned, staged, processed, manifest, published."""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[str], None] = lambda step: None  # noqa: E731
"""Told of each step; tests that kill the driver put something here that does it."""


def reached(step: str) -> None:
    """A step of a batch is done."""
    observer(step)
