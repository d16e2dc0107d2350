"""The named steps of a batch on the driver, in their order: admitted, planned, processed, manifest, published."""

from __future__ import annotations


def reached(step: str) -> None:
    """A step of a batch is done; tests that kill the driver do it here."""
