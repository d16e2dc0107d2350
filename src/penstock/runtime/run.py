"""One run of a graph: its cells, what they share, and what happens when nothing can go on."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.errors import ConservationError, FlowError, PenstockError
from penstock.flow.nodes import Graph, Node
from penstock.observe.arrivals import Arrivals, Sight
from penstock.observe.journal import Decision
from penstock.observe.report import Latency, LeftBehind, OperatorReport, Report
from penstock.ordering.reorder import Downstream, ReorderBuffer, Ring
from penstock.ordering.splits import Splitter
from penstock.ordering.worklists import HybridQueue, Worklist
from penstock.runtime.cells import Cell, Failed
from penstock.runtime.companions import Companions, Interrupted
from penstock.runtime.conservation import check_run
from penstock.runtime.event_loop import EventLoop, ThreadedEventLoop
from penstock.runtime.failures import told
from penstock.runtime.flight import Flight
from penstock.runtime.policies import SchedulingPolicy
from penstock.runtime.ports import Port
from penstock.runtime.scheduler import Scheduler
from penstock.runtime.standing import Abandoned
from penstock.runtime.timers import Timers
from penstock.runtime.views import Shares

PATIENT_SECONDS = 0.002
"""Under a GIL: four times the interval at which threads take it from each other."""
PROMPT_SECONDS = 0.0002
"""Where nobody fights for one: a few times what it takes to wake somebody."""


@dataclass(frozen=True)
class Settings:
    """What an engine decides about a run."""

    queue_size: int = 16_384
    queue_limit: int = 1 << 20
    quantum_seconds: float = 0.05
    chunk_seconds: float = 0.001
    """How much work a cell takes at once when it has time; when much is waiting, up to four times as much."""
    record_arrivals: bool = False
    closes_at_end: bool = True
    knows_changes: bool = False
    """Whether operators note which of their states have changed."""
    fuses: bool = True
    port: Callable[[str, int], Port] = Port
    """What makes the queues; tests give it hostile ones."""
    replicas: int = 1
    """Of operators that can have some and don't say how many."""
    stateless_replicas: int = 0
    """The same for functions without state, where that is another number."""
    has_companions: bool = False
    """Whether functions without state run in companion processes."""
    help_share: float = 0.0
    has_gil: bool = True
    has_replicas: bool = True
    """Whether operators may have replicas at all: on one thread they would bring nothing."""
    reorder: Callable[[int, Downstream], ReorderBuffer] = Ring
    reorder_size: int = 256
    """How many units of an operator with replicas may wait for an earlier one, or be under way."""
    split: Callable[[], Splitter] | None = None
    """Which replica of an operator without state gets which unit; `None` where each takes the next when it is free."""
    has_event_loop: bool = True
    """Whether sources that await are read on an event loop; otherwise they are waited for."""
    on_loop: Callable[[Node, Sequence[Any]], None] | None = None
    """Told what a driver loop is about to work on, where that is to cost something."""
    worklist: Callable[[], Worklist[Any]] = HybridQueue
    """How the replicas of a keyed operator share out its keys."""
    buckets: int = 64
    """Into how many buckets keys fall, each of which one replica holds at a time: far more than there are workers, so
    that a hot key shares its bucket with few others; few enough for parts of many tuples."""
    partitioner: Callable[[Any], int] | None = None
    """Which bucket a key falls into, modulo their number; by its hash, if there is none."""


class Quiet(Protocol):
    """What happens when sources pause and nothing is under way."""

    def opened(self, run: Run) -> None:
        """All cells are open, and nobody works yet."""

    def is_due(self) -> bool:
        """Whether sources should pause."""

    def take(self, run: Run) -> None:
        """They do, and nothing is under way; or nothing more comes, and the flow is to be kept as it is."""


class Run:
    """Everything that the workers of one run share."""

    def __init__(
        self,
        graph: Graph,
        clock: Clock,
        policy: SchedulingPolicy,
        settings: Settings,
        on_ready: Callable[[Cell | None], None],
    ) -> None:
        self.flow = graph.flow
        self.clock = clock
        self.settings = settings
        self.scheduler = Scheduler(policy, on_ready)
        self.shares = Shares(self)
        self.timers = Timers()
        self.help_shares: dict[tuple[str, str], float] = {}
        """By helper and helped: how much of its output a worker processes itself while its reader is busy."""
        self.is_helping = settings.help_share > 0
        self.help_seconds = PATIENT_SECONDS if settings.has_gil else PROMPT_SECONDS
        """How long an operator must be busy before a worker asks for help with what else is ready."""
        self.companions = Companions()
        self.event_loop: EventLoop = ThreadedEventLoop(f"penstock-{graph.flow}-asyncio")
        self.largest_chunk = max(1, settings.queue_size // 2)
        self.cells: list[Cell] = []
        self.on_new_cells: Callable[[], None] = lambda: None
        """Told when there are cells that nobody has run before: where each has a worker of its own, it needs one."""
        self.on_stop: Callable[[], None] = lambda: None
        """Told when it is to stop, by whoever wants that: the driver tells the sources, for that may take a while."""
        self.is_over = False
        self.is_stopping = False
        self.is_pausing = False
        """Sources read no more until everything that they have read is out."""
        self.quiet: Quiet | None = None
        self.flight: Flight | None = None
        """Where the time that it takes to be quiet is bounded."""
        self.recorded: dict[str, list[Sight]] = {}
        self.decisions: list[Decision] = []
        self._graph = graph
        self._on_ready = on_ready
        self._started = clock.now()
        self._lock = threading.Lock()
        self.changing = threading.RLock()
        """Held while cells become others: when they are cut, and when one gets replicas."""
        self._remaining = 0
        self._failure: Failed | None = None
        self._crash: BaseException | None = None
        self.left_behind: list[LeftBehind] = []
        """What held a worker when the run ended, and holds it still."""
        self.stuck: set[Cell] = set()
        """Where that is: nobody may touch these any more."""
        self.doing: dict[int, str] = {}
        """By thread: whose code it is in, where that is no operator's at work."""
        self._to_leave: deque[Cell] | None = None
        self._has_opened = False
        self.adds_up = True
        """Nothing was lost, as far as is known."""
        self._leaving_failed: PenstockError | None = None
        self._latencies: deque[float] = deque(maxlen=10_000)
        self.on_latency: Callable[[float], None] = self._latencies.append
        """Told how long a tuple was under way; who lets them out together later may take its place."""
        self._processing: deque[float] = deque(maxlen=10_000)
        self.on_processing: Callable[[float], None] = self._processing.append
        """The same without the time that it has waited in its source's queue."""
        self._controls_closed: set[Cell] = set()

    # The run's life

    def open(self) -> None:
        """Sinks first: what can't be written need not be read."""
        self._remaining = len(self.cells)
        for cell in reversed(self.cells):
            if self.is_over:
                return
            self._told(cell, cell.open, " when it was opened")
        self._has_opened = True
        if self.quiet is not None:
            self.quiet.opened(self)
        for cell in self.cells:
            cell.notify()

    def stop(self, drain: bool) -> None:
        """End it: sources stop reading, and (unless everything is to be let out) workers stop working."""
        self.is_stopping = True
        if not drain:
            self.end()
        self.on_stop()

    def tell_sources(self) -> None:
        """Let them look whether something has changed, such as that the run is to stop."""
        for cell in self.cells:
            if cell.is_source:
                cell.notify()

    def end(self) -> None:
        self.is_over = True
        self._on_ready(None)

    def _told(self, cell: Cell, call: Callable[[], None], when: str) -> None:
        """Let a cell do something in the driver's thread; what users' code raises there names its operator."""
        try:
            with self.called(cell.name):
                call()
        except BaseException as error:
            found = told(self.flow, cell.nodes, error, when)
            raise found from found.__cause__

    @contextmanager
    def called(self, name: str) -> Iterator[None]:
        """While this thread is in users' code: whose that is."""
        thread = threading.get_ident()
        self.doing[thread] = name
        try:
            yield
        finally:
            self.doing.pop(thread, None)

    def leave(self) -> None:
        """Close everything, and raise what made the run fail."""
        self._add_up_at_the_end()
        try:
            self.close_cells()
        except PenstockError as error:
            self._leaving_failed = error
        self.left_behind += self.event_loop.close(self.awaiting())
        self.companions.leave()
        self.raise_failure()

    def close_cells(self) -> None:
        """Each once, whoever closes them; those that somebody is stuck in are left alone."""
        with self._lock:
            if self._to_leave is None:
                self._to_leave = deque(self.cells)
        has_failed = not self._has_opened or self._crash is not None or self._failure is not None
        first: PenstockError | None = None
        while self._to_leave:
            cell = self._to_leave.popleft()
            if self.stuck.intersection((cell, *cell.members)):
                continue
            try:
                self._told(cell, partial(cell.leave, has_failed), " when it was closed")
            except PenstockError as error:
                first = first or error
        if first is not None:
            raise first

    def awaiting(self) -> str:
        """The operators that await something on the event loop."""
        return ", ".join(cell.name for cell in self.cells if cell.waits_for_outside)

    def raise_failure(self) -> None:
        """Raise what made the run fail."""
        if self._crash is not None:
            raise self._crash
        if self._failure is not None:
            raise self._failure.error
        if self._leaving_failed is not None:
            raise self._leaving_failed

    def _add_up_at_the_end(self) -> None:
        """Nothing of a run whose tuples don't add up is let out as if all were well."""
        is_whole = self._has_opened and all(cell.is_complete for cell in self.cells)
        if not is_whole or self._crash is not None or self._failure is not None:
            return  # it ended before its time, and nobody knows what was under way
        try:
            check_run(self, "Its output was not published, but for what sinks had let out already: don't rely on that")
        except ConservationError as error:
            self.adds_up = False
            self._failure = Failed(len(self.cells), error)

    def report(self, engine: str) -> Report:
        arrivals = None
        if self.settings.record_arrivals:
            arrivals = Arrivals({loop: tuple(sights) for loop, sights in self.recorded.items()})
        return Report(
            self.flow,
            engine,
            self.clock.now() - self._started,
            self.counts(),
            Latency.of(tuple(self._latencies), tuple(self._processing)),
            tuple(self.decisions),
            arrivals,
            left_behind=tuple(self.left_behind),
        )

    def counts(self) -> dict[str, OperatorReport]:
        """In the order of the graph."""
        counted = {name: counts for cell in self.cells for name, counts in cell.reports().items()}
        return {node.name: counted[node.name] for node in self._graph.nodes}

    def add(self, cell: Cell) -> None:
        """A cell that was cut off another one joins the run."""
        with self._lock:
            self._remaining += 1
            self.cells = sorted([*self.cells, cell], key=lambda cell: cell.place)
        self.on_new_cells()
        cell.notify()

    def replace(self, cell: Cell, other: Cell) -> None:
        """Another cell takes the place of one that nobody runs."""
        with self._lock:
            self.cells = [other if one is cell else one for one in self.cells]
        self.on_new_cells()
        other.notify()

    def runnable(self) -> list[Cell]:
        """Everything that workers run: cells, and the replicas of teams."""
        return [one for cell in self.cells for one in (cell, *cell.members)]

    def place_after(self, cell: Cell) -> float:
        """A rank between a cell's and the next one's."""
        later = [other.place for other in self.cells if other.place > cell.place]
        return (cell.place + min(later, default=cell.place + 1)) / 2

    def cell_of(self, operator: str) -> Cell:
        """The cell that runs an operator now."""
        for cell in self.cells:
            if operator in cell.counters:
                return cell
        raise FlowError(f"flow {self.flow!r} has no operator {operator!r}")

    # What cells tell it

    def completed(self, cell: Cell) -> None:
        """A cell is complete: so are, in time, those that wrote for nobody else."""
        with self._lock:
            self._remaining -= 1
            is_last = self._remaining == 0
        if is_last:
            self.end()
            return
        for writer in {port.writer for port in cell.inputs}:
            if all(port.reader.is_complete for targets in writer.outputs for port in targets):
                writer.is_over = True
                writer.notify()

    def fail(self, cell: Cell, failure: Failed) -> None:
        """A tuple can't be processed: let out what came before it, then end.

        A failure further down the flow is about an earlier tuple, so it takes the place of one further up.
        """
        cell.is_failed = True
        for port in cell.inputs:
            port.discard()
        with self._lock:
            is_first = self._failure is None or failure.place > self._failure.place
            if is_first and not _is_nobodys(failure.error):
                self._failure = failure

    def abort(self, error: PenstockError) -> None:
        """Something that no operator has to do with: end at once."""
        with self._lock:
            self._failure = self._failure or Failed(math.inf, error)
        self.end()

    def crash(self, error: BaseException) -> None:
        """An error of ours: end at once."""
        self._crash = error
        self.end()

    @property
    def is_failing(self) -> bool:
        return self._failure is not None

    @property
    def failure(self) -> PenstockError | None:
        """What made the run fail, as its user will see it."""
        if self._crash is not None:
            raise self._crash
        return None if self._failure is None else self._failure.error

    def help_share(self, helper: Cell, helped: Cell) -> float:
        """How much of its output a worker processes itself while its reader is busy."""
        return self.help_shares.get((helper.name, helped.name), self.settings.help_share)

    def share_of_time(self, seconds: float) -> float:
        elapsed = self.clock.now() - self._started
        return min(1.0, seconds / elapsed) if elapsed > 0 else 0.0

    def pause_if_due(self) -> None:
        """Called by a source that has read something, or found that nothing has come."""
        if self.quiet is not None and self.quiet.is_due():
            self.is_pausing = True
        if self.flight is not None:
            self.flight.look()

    # When nothing can go on

    def at_rest(self) -> bool:
        """Called when no cell is ready and no worker works; whether that made something ready.

        Blocked writers with nobody to read: the flow forks and rejoins, so the smallest full queue doubles (Parks).
        Otherwise, once the sources have ended, the only thing anybody can wait for is a control input.
        """
        if self.is_over:
            return False
        if (self.is_failing or not self._is_awaiting) and self.relieve():
            return True
        if self.is_pausing and not self.is_failing:
            return self._be_quiet()
        if self.waits_for_outside and not self.is_failing:
            return False
        if self.is_failing or not self.settings.closes_at_end:
            if not self.is_failing:
                self._take_quietly()
            self.end()
            return True
        for cell in self.cells:
            if not cell.is_complete and cell not in self._controls_closed:
                self._controls_closed.add(cell)
                cell.close_controls()
                cell.notify()
                return True
        stuck = ", ".join(cell.name for cell in self.cells if not cell.is_complete)
        self._crash = FlowError(f"flow {self.flow!r}: {stuck} waits for what never comes")
        self.end()
        return True

    def _be_quiet(self) -> bool:
        """The sources pause, and nothing else is under way; unless something is awaited."""
        if self._is_awaiting:
            return False
        self.is_pausing = False
        self._take_quietly()
        self.tell_sources()
        return True

    def _take_quietly(self) -> None:
        try:
            check_run(self, "Nothing that came out since the last checkpoint was published")
            if self.quiet is not None:
                with self.called("the checkpoint"):
                    self.quiet.take(self)
        except PenstockError as error:
            self._failure = Failed(len(self.cells), error)
            self.end()
        except BaseException as error:
            self._crash = error
            self.end()

    def relieve(self) -> bool:
        """Make room for writers that wait for a reader which waits for somebody else; whether there were any."""
        blocked = [cell for cell in self.cells if cell.blocked_on is not None and not cell.is_complete]
        if blocked:
            self._make_room(blocked)
        return bool(blocked)

    @property
    def waits_for_outside(self) -> bool:
        """Whether something that is no operator will notify a cell."""
        return any(cell.waits_for_outside for cell in self.cells if not cell.is_complete)

    @property
    def _is_awaiting(self) -> bool:
        """Whether an operator will go on by itself: who waits for room behind it waits for nobody else."""
        return any(cell.waits_for_outside for cell in self.cells if not cell.is_complete and not cell.is_source)

    def _make_room(self, blocked: list[Cell]) -> None:
        ports = [port for cell in blocked for port in cell.full_ports()]
        port = min(ports, key=lambda port: (port.capacity, port.name))
        capacity = port.capacity * 2
        if capacity > self.settings.queue_limit:
            self._failure = Failed(len(self.cells), FlowError(self._deadlock(blocked)))
            for cell in blocked:
                cell.is_failed = True
            self.end()
            return
        reason = "everything waits for everything: a fork rejoins after more tuples than the queue holds"
        self.decisions.append(
            Decision(self.clock.now() - self._started, "queues", port.name, port.capacity, capacity, reason)
        )
        port.grow(capacity)

    def _deadlock(self, blocked: list[Cell]) -> str:
        waits = "; ".join(
            f"{cell.name!r} waits for room in {port.name} ({len(port):,} tuples)"
            for cell in blocked
            for port in cell.full_ports()
        )
        readers = "; ".join(
            f"{port.reader.name!r} waits for tuples on {_empty(port.reader)}"
            for cell in blocked
            for port in cell.full_ports()
        )
        return (
            f"flow {self.flow!r} can't go on within queue_limit={self.settings.queue_limit:,}: {waits}; {readers}. "
            "Raise queue_limit, or let both ways of the fork carry as many tuples"
        )


def _is_nobodys(error: PenstockError) -> bool:
    """Whether an operator failed because the run was over, and it was in the way."""
    return isinstance(error, Interrupted) or isinstance(error.__cause__, Abandoned)


def _empty(cell: Cell) -> str:
    empty: list[Port] = [port for port in cell.inputs if not len(port)]
    return ", ".join(port.name for port in empty) or "nothing"
