"""The only driver that is called: part of a graph in the caller's thread, fed and run until nothing can go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.connectors.source import Chunk
from penstock.errors import PenstockError
from penstock.flow.nodes import Graph, Node
from penstock.observe.report import OperatorReport
from penstock.runtime.build import build_run
from penstock.runtime.cells import Cell
from penstock.runtime.conservation import check_cells
from penstock.runtime.event_loop import EventLoop, ThreadedEventLoop
from penstock.runtime.inlets import InletCell
from penstock.runtime.policies import LastInPipeline
from penstock.runtime.running.host import Host
from penstock.runtime.running.settings import Settings
from penstock.runtime.worker import Point, Worker

_QUEUE_SIZE = 1 << 17
_NO_LIMIT = 1 << 50
_CHUNK_SECONDS = 0.004  # no reader waits for the first of them
_POLL_SECONDS = 0.0005

OnLoop = Callable[[Node, Sequence[Any]], None]


class _Alone:
    """The one worker of a part: it sleeps in no thread, so there is none to wake."""

    threads = 1
    picks = True

    def event_loop(self, name: str) -> EventLoop:
        return ThreadedEventLoop(name)

    def on_ready(self, cell: Cell | None = None) -> None:
        pass

    def on_new_cells(self) -> None:
        pass

    def look_soon(self) -> None:
        pass


class Part:
    """A graph whose sources are inlets.

    What an operator keeps between two lives of a part is its snapshot; `restore` comes before the first `feed`.
    """

    def __init__(self, graph: Graph, clock: Clock | None = None, on_loop: OnLoop | None = None) -> None:
        settings = Settings(
            queue_size=_QUEUE_SIZE,
            queue_limit=_NO_LIMIT,
            chunk_seconds=_CHUNK_SECONDS,
            has_replicas=False,
            on_loop=on_loop,
        )
        self._run = build_run(graph, settings, Host(clock or SystemClock(), _Alone(), LastInPipeline()))
        self._inlets = {cell.name: cell for cell in self._run.cells if isinstance(cell, InletCell)}
        self._points: Iterator[Point] = Worker(self._run, 0).points()
        self._run.open()

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on with the snapshots of an earlier life, by operator."""
        for cell in self._run.cells:
            cell.restore({name: kept[name] for name in cell.counters if name in kept})

    def feed(self, inlet: str, chunk: Chunk) -> None:
        """Let values in, and work until nothing can go on."""
        self._inlets[inlet].feed(chunk)
        self.settle()

    def close(self) -> None:
        """The streams end: everything gets its last say."""
        for inlet in self._inlets.values():
            inlet.finish()
        run = self._run
        while not run.ending.is_over and self.failure is None:
            self.settle()
            if not run.ending.is_over and self.failure is None and (step := run.rest.found()) is not None:
                run.rest.carry_out(step)

    def waiting(self) -> dict[str, list[int]]:
        """How many tuples wait on each input of each operator."""
        return {cell.name: cell.waiting() for cell in self._run.cells}

    def snapshots(self) -> dict[str, Any]:
        """What each operator must have to go on in another life."""
        return {name: kept for cell in self._run.cells for name, kept in cell.snapshots().items()}

    def completed(self) -> set[str]:
        """The operators that will never do anything more, no matter what comes."""
        return {node.name for cell in self._run.cells if cell.is_complete for node in cell.nodes}

    def cut_short(self) -> set[str]:
        """Those of them that had something left to do, because nothing reads what they write any more."""
        return {node.name for cell in self._run.cells if cell.is_cut_short for node in cell.nodes}

    def counts(self) -> dict[str, OperatorReport]:
        return self._run.counts()

    def check(self, consequence: str) -> None:
        """`ConservationError` where something was lost or came twice; to be called when it has settled."""
        check_cells(self._run.registry, consequence)

    @property
    def failure(self) -> PenstockError | None:
        """What made it fail; nothing more happens then."""
        return self._run.ending.failure

    def leave(self) -> None:
        """End it, well or not."""
        self._run.ending.end()
        self._run.leave()

    def settle(self) -> None:
        """Work until nothing can go on, without anything new."""
        run = self._run
        for point in self._points:
            if point is not Point.PARK or not run.scheduler.is_empty or run.timers.fire(run.clock.now()):
                continue
            if (step := run.rest.relief()) is not None:
                run.rest.carry_out(step)
                continue
            if run.is_failing or not run.registry.wait_for_outside:
                return
            run.clock.sleep(_POLL_SECONDS)
