"""All that a run is given by its engine and its driver, in one value: nothing is assigned to a run later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.clock import Clock
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.policies import SchedulingPolicy
from penstock.runtime.running.logbook import LastLatencies, Latencies
from penstock.runtime.running.rest import Quiet

if TYPE_CHECKING:
    from penstock.runtime.cells import Cell


class Workers(Protocol):
    """What a run tells its driver, and asks it."""

    @property
    def threads(self) -> int:
        """How many threads may work."""
        ...

    @property
    def picks(self) -> bool:
        """Whether workers pick from the list of ready cells; `False` where each cell has a worker of its own."""
        ...

    def event_loop(self, name: str) -> EventLoop:
        """Where the coroutines of a new run are to run."""
        ...

    def on_ready(self, cell: Cell | None = None) -> None:
        """A cell has become ready; or (`None`) the run is over."""
        ...

    def on_new_cells(self) -> None:
        """There are cells that no worker has run before."""
        ...

    def look_soon(self) -> None:
        """The run is to stop: let the sources know, in a thread that may take its time."""
        ...


@dataclass(frozen=True)
class Host:
    """What a run lives on."""

    clock: Clock
    workers: Workers
    policy: SchedulingPolicy
    quiet: Quiet | None = None
    """What to do when sources have paused and nothing is under way."""
    flight_seconds: float | None = None
    """How much work may be under way, where that is bounded."""
    latencies: Latencies = field(default_factory=LastLatencies)
