"""The names of the steps of a batch, in this order: `admitted` and `planned` on Spark, or `staged` on the local engine;
then `processed`, `manifest` and `published` on both."""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[str], None] = lambda step: None  # noqa: E731
"""Told of each step; tests that kill the driver put something here that does it."""


def reached(step: str) -> None:
    """A step of a batch is done."""
    observer(step)
