"""The simulated engine: the local runtime on virtual cores and a virtual clock."""

from penstock.engines.simulated.engine import Simulated
from penstock.engines.simulated.machine import Machine

__all__ = ["Machine", "Simulated"]
