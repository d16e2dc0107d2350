"""What every engine is: something that starts a graph and hands back a job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

from penstock.errors import FlowError
from penstock.flow.draw import explain
from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport, Report
from penstock.runtime.background import Background

AtEnd = Literal["close", "keep"]


class Job(ABC):
    """A flow that is running."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Report:
        """Wait for the end and return the report; raises what made the flow fail, or `TimeoutError`."""

    @abstractmethod
    def stop(self, drain: bool = True) -> None:
        """End the flow and return when it has ended; `drain` lets out everything that has been read."""

    @abstractmethod
    def metrics(self) -> Mapping[str, OperatorReport]:
        """The counts of every operator, as they are now."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the flow has not ended yet."""

    @property
    def threads(self) -> int:
        """How many threads run operators."""
        return 1

    def rescale(self, name: str, replicas: int) -> None:
        """Change how many workers may be in an operator at once."""
        raise FlowError(
            f"this engine has no replicas, so {name!r} can't have {replicas}; run the flow on another engine"
        )

    def set_policy(self, policy: object) -> None:
        """Change how the next operator to run is picked."""
        raise FlowError("this engine has no scheduling policy; run the flow on another engine")


class BackgroundJob(Job):
    """A job whose run goes on in a thread of its own."""

    _background: Background[Report]

    def wait(self, timeout: float | None = None) -> Report:
        if not self._background.join(timeout):
            raise TimeoutError(f"the flow is still running after {timeout} seconds")
        return self._background.result()

    @property
    def is_running(self) -> bool:
        return not self._background.join(0)


class Engine(ABC):
    """A way to run flows."""

    name: str

    @abstractmethod
    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        """Begin to run a graph."""

    def explain(self, graph: Graph) -> str:
        """How this engine runs a graph, in words."""
        return explain(graph)
