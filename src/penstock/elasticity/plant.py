"""What the loop asks of an engine, and all that it asks."""

from __future__ import annotations

from typing import Protocol

from penstock.elasticity.changes import Change
from penstock.elasticity.signals import Signals


class Plant(Protocol):
    """A running flow whose numbers can change."""

    def signals(self) -> Signals:
        """What has happened since the last time; asked once a period, or after each batch."""
        ...

    def apply(self, change: Change) -> bool:
        """Do what a controller wants; `False` if that can't be done here."""
        ...
