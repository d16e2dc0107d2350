"""How long a run that is to end waits for what does not come back; the only place for these figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Seconds; what is slower is left behind and named."""

    operator: float = 0.6
    """For a worker that is in an operator."""
    worker: float = 5.0
    """For one that is elsewhere: in a policy, or about to look at the end."""
    awaited: float = 0.5
    """For coroutines that were cancelled."""
    end: float = 1.5
    """For the whole run, when it is to end at once."""
    closing: float = 0.5
    """For what can still be closed of a run that was left behind."""
