"""What every engine is: something that starts a graph and hands back a job."""

from __future__ import annotations

import atexit
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal
from weakref import WeakSet

from penstock.errors import FlowError, PenstockError, describe_exception
from penstock.flow.draw import explain
from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport, Report
from penstock.runtime.background import Background
from penstock.runtime.running.patience import Patience

AtEnd = Literal["close", "keep"]

_running: WeakSet[Job] = WeakSet()


class Job(ABC):
    """A flow that is running."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Report:
        """Wait for the end and return the report; raises what made the flow fail, or `TimeoutError`."""

    @abstractmethod
    def stop(self, drain: bool = True, grace_seconds: float | None = None) -> None:
        """End the flow and return when it has ended; `drain` lets out everything that has been read.

        After `grace_seconds`, or without `drain`, it ends at once: within two seconds, whatever its operators do. One
        that does not come back is left behind, and the report says where it stands. Called by an operator it only
        says that the flow is to end.
        """

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
    _patience = Patience()
    """How long a run that is to end at once may take, before it is left behind."""

    def wait(self, timeout: float | None = None) -> Report:
        if self._is_inside():
            raise FlowError("job.wait() waits for the end of the flow, so no operator of that flow can call it")
        if not self._background.join(timeout):
            raise TimeoutError(f"the flow is still running after {timeout} seconds")
        try:
            return self._background.result()
        except PenstockError:
            raise
        except BaseException as error:
            flow = self._background.name.removeprefix("penstock-")
            raise PenstockError(f"flow {flow!r} failed: {describe_exception(error)}") from error

    def stop(self, drain: bool = True, grace_seconds: float | None = None) -> None:
        self._ask_to_stop(drain)
        if self._is_inside() or (drain and self._background.join(grace_seconds)):
            return
        self._ask_to_stop(drain=False)
        if not self._background.join(self._patience.end):
            self._background.give_up(self._abandoned)

    @abstractmethod
    def _ask_to_stop(self, drain: bool) -> None:
        """Tell the run, and return."""

    def _is_inside(self) -> bool:
        """Whether the run itself is calling, which would wait for itself."""
        return self._background.is_mine

    def _abandoned(self) -> Report:
        """The run was to end at once, and does not: close what can be closed, and say what was left behind."""
        raise PenstockError(
            f"{self._background.name}: the flow was to end at once and did not; it was left behind at "
            f"{self._background.standing}"
        )

    @property
    def is_running(self) -> bool:
        return not self._background.join(0)


class Engine(ABC):
    """A way to run flows."""

    name: str
    patience = Patience()
    """With what does not come back when a flow is to end."""

    @abstractmethod
    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        """Begin to run a graph."""

    def explain(self, graph: Graph) -> str:
        """How this engine runs a graph, in words."""
        return explain(graph)


def stopped_at_exit(job: Job) -> Job:
    """The job; if no caller waits for it, it ends at once when Python does, leaving no process and no lock."""
    if not _running:
        atexit.unregister(_stop_all)  # so that it is called before what was registered since: Spark's, for one
        atexit.register(_stop_all)
    _running.add(job)
    return job


def _stop_all() -> None:
    for job in list(_running):
        if job.is_running:
            job.stop(drain=False)
