"""The meaning of a flow: one tuple at a time, in one thread; every other engine is compared with this one.

A tuple of a source goes all the way through before the next one is read; sources take turns. An operator runs only when
everything after it is at rest.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from penstock.clock import Clock, SystemClock
from penstock.engines.base import AtEnd, BackgroundJob, Engine, Job
from penstock.engines.sequential_actors import Actor, actor_of
from penstock.errors import FlowError, PenstockError
from penstock.flow.nodes import Graph, PortRef
from penstock.observe.arrivals import Arrivals, Sight
from penstock.observe.report import Latency, LeftBehind, OperatorReport, Report
from penstock.runtime.background import Background, StopSignal
from penstock.runtime.event_loop import Raised, enveloped
from penstock.runtime.failures import told

T = TypeVar("T")

_TUPLES_PER_SAMPLE = 16
_LONGEST_SLEEP_SECONDS = 0.05


class Sequential(Engine):
    """One tuple at a time, in one thread.

    `restart="every-wait"` restarts driver loops whenever they wait, to show that they keep what they need in
    `ctx.state`; `arrivals` repeats the order of arrival of another run; `record_arrivals` puts that of this one into
    the report.
    """

    name = "sequential"

    def __init__(
        self,
        *,
        restart: Literal["never", "every-wait"] = "never",
        arrivals: Arrivals | None = None,
        record_arrivals: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if restart not in ("never", "every-wait"):
            raise FlowError(f"engine 'sequential': restart= is 'never' or 'every-wait', not {restart!r}")
        if arrivals is not None and restart != "never":
            raise FlowError(
                "engine 'sequential': restarted loops wait more often, so arrivals= can't be repeated to them"
            )
        self.restart = restart
        self.arrivals = arrivals or Arrivals({})
        self.record_arrivals = record_arrivals
        self.clock = clock or SystemClock()

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        return _SequentialJob(self, graph, at_end or "close")


class _SequentialJob(BackgroundJob):
    def __init__(self, engine: Sequential, graph: Graph, at_end: AtEnd) -> None:
        self._patience = engine.patience
        self._stop = StopSignal()
        self._run = SequentialRun(engine, graph, at_end, self._stop)
        self._background = Background(self._run.to_the_end, name=f"penstock-{graph.flow}")

    def _ask_to_stop(self, drain: bool) -> None:
        self._stop.request(drain)

    def _abandoned(self) -> Report:
        return self._run.abandoned(self._background.standing)

    def metrics(self) -> Mapping[str, OperatorReport]:
        return self._run.counts()


class SequentialRun:
    """Everything that one run needs; owned by its thread."""

    def __init__(self, engine: Sequential, graph: Graph, at_end: AtEnd, stop: StopSignal) -> None:
        self.engine = engine
        self.graph = graph
        self.clock = engine.clock
        self.stop = stop
        self.recorded: dict[str, list[Sight]] = {}
        self.closes = at_end == "close"
        self._started = self.clock.now()
        self._opened: deque[Actor] = deque()
        """Those that are to be left, in this order."""
        self._current: Actor | None = None
        """The one whose code is running."""
        self._ready: list[int] = []
        self._latencies: deque[float] = deque(maxlen=100_000)
        self._tuples_read = 0
        self._async_runner: asyncio.Runner | None = None
        self.actors = [actor_of(self, number, node) for number, node in enumerate(graph.nodes)]
        by_name = {actor.node.name: actor for actor in self.actors}
        for actor in self.actors:
            for port, targets in enumerate(actor.targets):
                for reader in graph.readers.get(PortRef(actor.node.name, port), ()):
                    targets.append((by_name[reader.node], reader.port))
                    by_name[reader.node].writers.append(actor)

    def to_the_end(self) -> Report:
        has_failed = True
        try:
            for actor in reversed(self.actors):  # sinks first: what can't be written need not be read
                if self.stop.at_once:
                    break
                self._opened.append(actor)
                self._in(actor, actor.open, " when it was opened")
            else:
                self._read_everything()
                if not self.stop.at_once:
                    self._let_everything_out()
            has_failed = False
        finally:
            self._leave(has_failed)
            if self._async_runner is not None:
                self._async_runner.close()
        return self._report()

    def abandoned(self, where: str) -> Report:
        """Called by another thread: an operator does not come back. Close the others, and tell."""
        stuck = self._current
        self._opened = deque(actor for actor in self._opened if actor is not stuck)
        self._leave(has_failed=False)
        return self._report([LeftBehind("the engine" if stuck is None else stuck.node.name, where)])

    def _in(self, actor: Actor, call: Callable[[], T], when: str = "") -> T:
        """Let an actor do something; what users' code raises names its operator."""
        self._current = actor
        try:
            return call()
        except BaseException as error:
            found = told(self.graph.flow, [actor.node], error, when)
            raise found from found.__cause__
        finally:
            self._current = None

    def _leave(self, has_failed: bool) -> None:
        """Each once; the first error is raised, unless the run has failed already."""
        first: PenstockError | None = None
        while self._opened:
            actor = self._opened.popleft()
            try:
                self._in(actor, partial(actor.leave, has_failed), " when it was closed")
            except PenstockError as error:
                first = first or error
        if first is not None and not has_failed:
            raise first

    def _report(self, left_behind: Sequence[LeftBehind] = ()) -> Report:
        return Report(
            self.graph.flow,
            self.engine.name,
            self.clock.now() - self._started,
            self.counts(),
            Latency.of(tuple(self._latencies), tuple(self._latencies)),  # nothing waits before it is worked on
            arrivals=Arrivals({loop: tuple(sights) for loop, sights in self.recorded.items()})
            if self.engine.record_arrivals
            else None,
            left_behind=left_behind,
        )

    def counts(self) -> dict[str, OperatorReport]:
        return {actor.node.name: actor.counts() for actor in self.actors}

    def wake(self, actor: Actor) -> None:
        heapq.heappush(self._ready, -actor.number)

    def wait_for(self, awaitable: Callable[[], Any], timeout_seconds: float | None) -> Any:
        """Run a coroutine to its end on this run's event loop."""
        if self._async_runner is None:
            self._async_runner = asyncio.Runner()
        try:
            return self._async_runner.run(enveloped(awaitable, timeout_seconds))
        except Raised as raised:
            raise raised.error from None

    def _read_everything(self) -> None:
        self._settle()
        sources = [actor for actor in self.actors if not actor.node.inputs]
        while sources and not self.stop.requested:
            idle_seconds = min([self._read_one(source) for source in sources])
            sources = [source for source in sources if not (source.is_done or source.has_ended)]
            if idle_seconds == math.inf:
                return  # all that is left waits for control inputs, and nothing will be sent there
            if sources and idle_seconds > 0:
                self.clock.sleep(min(idle_seconds, _LONGEST_SLEEP_SECONDS))
        for source in sources:  # a driver loop sees that it is to stop, and gets its last say
            self._read_one(source)

    def _read_one(self, source: Actor) -> float:
        """Read a tuple and let it through; returns how long to wait if there was none."""
        started = self.clock.now()
        idle_seconds = self._in(source, source.turn)
        self._settle()
        self._tuples_read += 1
        if self._tuples_read % _TUPLES_PER_SAMPLE == 0:
            self._latencies.append(self.clock.now() - started)
        return idle_seconds

    def _settle(self) -> None:
        """Run the actors that have something to do, the last in the flow first, until none has."""
        while self._ready and not self.stop.at_once:
            actor = self.actors[-heapq.heappop(self._ready)]
            if not actor.is_done:
                self._in(actor, actor.step)

    def _let_everything_out(self) -> None:
        """The sources have ended: close their streams; what rests then waits for control inputs only."""
        if not self.closes:
            return
        for actor in self.actors:
            if not actor.node.inputs and not actor.is_done:
                actor.complete()
        self._settle()
        for actor in self.actors:
            if not actor.is_done:
                actor.close_controls()
                self._settle()
        if stuck := [actor.node.name for actor in self.actors if not actor.is_done]:
            if self.stop.at_once:
                return
            raise FlowError(
                f"flow {self.graph.flow!r}: {', '.join(stuck)} waits for what never came; do the arrivals= to be "
                "repeated belong to this flow?"
            )
