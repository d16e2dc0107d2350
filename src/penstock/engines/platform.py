"""What a run needs from outside of it: the only difference between running on threads and on virtual cores."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.clock import Clock
from penstock.engines.live_meter import Gauge
from penstock.flow.nodes import Graph
from penstock.observe.report import Report
from penstock.runtime.policies import SchedulingPolicy
from penstock.runtime.pool import Pool
from penstock.runtime.run import Run
from penstock.runtime.running.host import Host
from penstock.runtime.running.settings import Settings


class Platform(ABC):
    """Time, workers, queues and what work costs, for one run; here, work costs what it costs."""

    clock: Clock
    driver: Pool

    def settings(self, settings: Settings) -> Settings:
        """The same, with this platform's queues, its event loop, and what is told about driver loops."""
        return settings

    def charged(self, graph: Graph) -> Graph:
        """The same graph, in which work takes the time that it takes here."""
        return graph

    @abstractmethod
    def gauge(self) -> Gauge:
        """Where the cores are, and how busy."""

    def host(self, policy: SchedulingPolicy) -> Host:
        """What the run lives on."""
        return Host(self.clock, self.driver, policy)

    def begin(self, run: Run) -> None:
        """The cells of the run are made, and no worker works yet."""

    def report(self, run: Run, engine: str) -> Report:
        """What the run has done, with what only this platform can see; it is over."""
        return run.report(engine)
