"""One operator (or a fused chain of them) at run time: the base of all cells, and the counters they keep."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.flow.nodes import Node
from penstock.observe.report import OperatorReport
from penstock.operators.kept import Changed, Kept
from penstock.runtime.failures import dead_letter, is_fatal, reported, told
from penstock.runtime.ports import Helped, Port
from penstock.runtime.views import OperatorView

if TYPE_CHECKING:
    from penstock.runtime.run import Run


_FIRST_BUDGET = 16


class Status(Enum):
    """Where a cell is in its life; changed only under its lock."""

    IDLE = auto()
    QUEUED = auto()
    RUNNING = auto()
    DIRTY = auto()
    """Running, and notified since it began: it must look again."""
    COMPLETE = auto()


class Failed(Exception):
    """Unwinds a cell's run after a failure that ends the flow."""

    def __init__(self, place: float, error: PenstockError) -> None:
        super().__init__(str(error))
        self.place = place
        self.error = error


class Counters:
    """What one operator has done; written only by the holder of its cell."""

    __slots__ = ("busy_seconds", "emitted", "failed", "late", "received")

    def __init__(self) -> None:
        self.received = self.emitted = self.failed = self.late = 0
        self.busy_seconds = 0.0


class Cell(ABC):
    """Takes from its ports, runs on private memory, gives to the ports of others.

    Only the worker that has claimed a cell may call `step`. `notify` queues it or marks it dirty.
    """

    help_seconds = math.inf
    """How long it must be busy before a worker asks for help with what else is ready, where the run does not know
    better."""
    chunks_when_busy = 4
    """How many chunks to take in one where many tuples are waiting."""

    def __init__(self, run: Run, place: float, nodes: Sequence[Node], inputs: Sequence[Port]) -> None:
        self.run = run
        self.place = place
        """Its rank in the flow: everything that it reads has a lower one."""
        self.depth = 0.0
        """Its distance from the sources, by the longest way."""
        self.nodes = nodes
        self.inputs = list(inputs)
        self.outputs: list[list[Port]] = []
        self.counters = {node.name: Counters() for node in nodes}
        self.last_run = 0.0
        self.seconds_per_tuple = 0.0
        self.processed = 0
        """How many tuples the last `process` took."""
        self.usual_seconds = 1.0
        """How long it keeps a worker, on a running average; at first, who knows."""
        self.total_seconds = 0.0
        self.cpu_seconds = 0.0
        self._budget = self._busy_budget = min(_FIRST_BUDGET, run.largest_chunk)
        self._least_cost = run.settings.chunk_seconds / run.largest_chunk
        self.blocked_on: Port | None = None
        self.blocked_seconds = 0.0
        self._blocked_since = 0.0
        self.is_failed = False
        """It has failed on a tuple, and takes no more."""
        self.is_over = False
        """It will never have anything more to do; the worker that sees it completes it. Never taken back."""
        self.view = OperatorView(self)
        """What policies see of it."""
        self.is_complete = False
        self.is_cut_short = False
        self.is_known = False
        """Somebody keeps what it remembers, and wants to hear of changes only."""
        self._status = Status.IDLE
        self._is_listed = False
        self._lock = threading.Lock()
        self._outbox: list[tuple[Port, list[Any], float]] = []
        self.is_waiting = False
        """For a source: a timer or the outside world will notify it."""
        self._attach(inputs)

    def _attach(self, inputs: Sequence[Port]) -> None:
        for port in inputs:
            port.reader = self

    @property
    def name(self) -> str:
        return self.nodes[0].name

    @property
    def is_source(self) -> bool:
        return not self.inputs

    @property
    def is_idle(self) -> bool:
        return self._status is Status.IDLE

    @property
    def is_queued(self) -> bool:
        return self._status is Status.QUEUED

    @property
    def is_at_rest(self) -> bool:
        return self._status in (Status.IDLE, Status.COMPLETE)

    @property
    def has_given_all(self) -> bool:
        return not self._outbox

    @property
    def members(self) -> Sequence[Cell]:
        """What else workers run for this operator."""
        return ()

    # What a kind of cell does, in this order; only `take` and `flush` touch what others see

    @abstractmethod
    def take(self) -> bool:
        """Take something to do from the ports; whether there was any. Sets `is_over` when there never will be."""

    @abstractmethod
    def process(self) -> None:
        """Do it, on private memory; what comes out goes to `give`."""

    def has_more(self) -> bool:
        """Whether `take` would find something now; what comes later is notified."""
        return any(len(port) or port.closed for port in self.inputs) or self.is_source

    def open(self) -> None:
        """Get ready, before any worker runs."""

    def leave(self, has_failed: bool) -> None:
        """The run is over, well or not."""

    def waiting(self) -> list[int]:
        """How many tuples wait on each input."""
        return [len(port) for port in self.inputs]

    def snapshots(self) -> dict[str, Kept]:
        """What each operator must have to go on in another life, at quiescence; nothing for those without state."""
        return {}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        """Go on with the snapshots of an earlier life."""

    def changes(self) -> dict[str, Changed]:
        """What each operator would have to change in its last snapshot, at quiescence; at first, all of it."""
        changed = self._changed()
        if self.is_known:
            return changed
        self.is_known = True
        return {name: Changed(kept.by_key, (), kept.rest, is_all=True) for name, kept in self.snapshots().items()}

    def _changed(self) -> dict[str, Changed]:
        """What has changed since this was last called."""
        return {}

    def offsets(self) -> dict[str, Any]:
        """How far sources have been read, as `Reached` in JSON."""
        return {}

    def restore_offsets(self, offsets: Mapping[str, Any]) -> None:
        """Go on reading from there; before it is opened."""

    def close_controls(self) -> None:
        """Nobody will send anything to the control inputs any more."""

    # Scheduling

    def notify(self) -> None:
        """Something has changed: make sure that a worker looks at this cell after now."""
        with self._lock:
            if self._status is Status.RUNNING:
                self._status = Status.DIRTY
            must_be_listed = self._status is Status.IDLE and self._queue()
        if must_be_listed:
            self.run.scheduler.add(self)
        elif self._is_listed:
            self.run.scheduler.look_again(self)

    def _queue(self) -> bool:
        """Under the lock: become queued; whether that needs an entry in the list of ready cells."""
        self._status = Status.QUEUED
        must_be_listed, self._is_listed = not self._is_listed, True
        return must_be_listed

    def claim(self, from_list: bool = False) -> bool:
        """Become the only worker in this cell."""
        with self._lock:
            if from_list:
                self._is_listed = False
            if self._status is not Status.QUEUED:
                return False
            self._status = Status.RUNNING
            return True

    def claim_idle(self) -> bool:
        """Become the only worker in a cell that nobody has notified."""
        with self._lock:
            if self._status is not Status.IDLE:
                return False
            self._status = Status.RUNNING
            return True

    def release(self, has_more: bool) -> None:
        """Let go; queue the cell again if it has more to do, or was notified meanwhile."""
        with self._lock:
            if self._status is Status.COMPLETE:
                return
            if not (has_more or self._status is Status.DIRTY):
                self._status = Status.IDLE
                return
            must_be_listed = self._queue()
        if must_be_listed:
            self.run.scheduler.add(self)
        else:
            self.run.scheduler.look_again(self)

    def complete(self) -> None:
        """Nothing more comes from here: readers see the end, and writers write for nobody."""
        self.is_cut_short = self.may_be_cut_short()
        for target, values, _ in self._outbox:
            target.drop(values)
        self._outbox.clear()
        for port in self.inputs:
            port.discard()
        for targets in self.outputs:
            for port in targets:
                port.close()
        self.is_complete = True
        self.run.completed(self)
        # Last, because a run in which nobody runs is at rest: everyone must have been told by then.
        with self._lock:
            self._status = Status.COMPLETE

    def may_be_cut_short(self) -> bool:
        """Whether it ends with something undone, as it may where everybody whom it writes for has ended before it."""
        readers = [port.reader for targets in self.outputs for port in targets]
        return bool(readers) and all(reader.is_complete for reader in readers)

    def leave_to_successor(self) -> None:
        """Called by the worker in this cell: it is nothing any more, and its ports are another cell's."""
        with self._lock:
            self._status = Status.COMPLETE

    def budget(self, waiting: int) -> int:
        """How many tuples to take at once: about a millisecond of work, or up to four where many are waiting.

        So a flow is prompt when it is idle, and fast when it is busy. Equal shares of what is waiting: a chunk
        that is taken whole is not copied.
        """
        if waiting <= 2 * self._budget or not self.seconds_per_tuple:
            return self._budget
        shares = round(waiting / self._busy_budget) or 1
        return min(-(-waiting // shares), self.run.largest_chunk)

    def learn(self, seconds_per_tuple: float) -> None:
        """So long a tuple takes, as far as is known."""
        self.seconds_per_tuple = seconds_per_tuple
        fits = self.run.settings.chunk_seconds / max(seconds_per_tuple, self._least_cost)
        self._budget = int(fits) or 1
        self._busy_budget = round(fits * self.chunks_when_busy) or 1

    def account(self, seconds: float, cpu_seconds: float) -> None:
        """A worker has spent so long in `process`: learn what a tuple costs, and charge it to the operator."""
        self.usual_seconds += 0.25 * (seconds - self.usual_seconds)
        self.total_seconds += seconds
        self.cpu_seconds += cpu_seconds
        if self.processed:
            cost = seconds / self.processed
            if self.seconds_per_tuple:
                cost = 0.7 * self.seconds_per_tuple + 0.3 * cost
            self.learn(cost)
        self.charge(seconds)

    def pace(self, threads: int) -> float | None:
        """How many seconds one tuple more takes on so many threads; `None` as long as nobody knows."""
        return self.seconds_per_tuple if self.passed()[0] else None

    def charge(self, seconds: float) -> None:
        self.counters[self.name].busy_seconds += seconds

    @property
    def waits_for_outside(self) -> bool:
        """Whether something that is no operator will notify it."""
        return self.is_waiting

    # Giving

    def help_readers(self) -> None:
        """Process the last part of what is in the outbox for readers that are busy, with their own functions.

        What is helped with keeps its place behind the rest; whoever reads it passes on what came of it.
        """
        outbox, self._outbox = self._outbox, []
        for target, values, born in outbox:
            self._outbox += [(target, part, born) for part in self.parts_with_help(target, values, born)]

    def parts_with_help(self, target: Port, values: list[Any], born: float) -> list[list[Any]]:
        """What is left for a reader, and what was done for it; or all of it."""
        share = self.run.help_share(self, target.reader)
        kept = values if isinstance(values, Helped) else values[: len(values) - int(len(values) * share)]
        helped = target.reader.helped(values[len(kept) :], born) if len(kept) < len(values) else None
        return [values] if helped is None else [part for part in (kept, helped) if part]

    def helped(self, values: list[Any], born: float) -> Helped | None:
        """Process tuples before they are here, if that can be done and somebody is at work here already."""
        return None

    def give(self, port: int, values: list[Any], born: float) -> None:
        """Put values into the outbox, for every reader of an output port."""
        if values:
            for target in self.outputs[port]:
                target.total_given += len(values)
                self._outbox.append((target, values, born))

    def flush(self) -> bool:
        """Hand over what is in the outbox; `False` if a port is full, in which case it will notify this cell."""
        if len(self._outbox) == 1 and self.blocked_on is None:  # the common case, in few steps
            target, values, born = self._outbox.pop()
            rest = target.offer(values, born)
            if not rest:
                return True
            self._outbox.append((target, rest, born))
        while full := self._offered():
            if all(target.await_room(self) for target in full):
                self._begin_to_wait(full)
                return False
        self._end_waiting()
        return True

    def _offered(self) -> list[Port]:
        """Hand over what there is room for; the ports that are full keep the rest in the outbox."""
        waiting, self._outbox = self._outbox, []
        full: list[Port] = []
        for target, values, born in waiting:
            rest = values if target in full else target.offer(values, born)
            if rest:
                full.append(target)
                self._outbox.append((target, rest, born))
        return full

    def _begin_to_wait(self, full: list[Port]) -> None:
        now = self.run.clock.now()
        if self.blocked_on is None:
            self._blocked_since = now
        self.blocked_on = full[0]
        self._note_full(full, now)
        if self.run.flight is not None:
            self.run.flight.look()  # by now more may be known about what a tuple costs there

    def _end_waiting(self) -> None:
        if self.blocked_on is not None:
            now = self.run.clock.now()
            self.blocked_seconds += now - self._blocked_since
            self._note_full([], now)
            self.blocked_on = None

    def _note_full(self, full: list[Port], now: float) -> None:
        for targets in self.outputs:
            for target in targets:
                target.note_full(target in full, now)

    def full_ports(self) -> list[Port]:
        """All those whose room it waits for."""
        return [target for targets in self.outputs for target in targets if target.full_since is not None]

    def hand_over(self) -> Cell | None:
        """Give the only chunk in the outbox to a reader further on that nobody runs, and claim that reader.

        The way of a chunk through a quiet flow: no list of ready cells, nobody to be told.
        """
        if len(self._outbox) != 1 or self.blocked_on is not None:
            return None
        target, values, born = self._outbox[0]
        reader = target.reader
        if reader.depth <= self.depth or not reader.claim_idle():
            return None
        rest = target.offer(values, born, notifies=False)
        self._outbox = [(target, rest, born)] if rest else []
        return reader

    # Failing

    def failed(self, node: Node, value: Any, error: BaseException, born: float) -> None:
        """Skip or dead-letter a tuple, or end the flow by raising."""
        if is_fatal(node, error):
            report = reported(self.run.flow, node, value, error)
            report.__cause__ = error if report is not error else error.__cause__
            raise Failed(self.place, report)
        self.counters[node.name].failed += 1
        if node.on_error == "dead-letter":
            self.give_dead_letter(node, value, error, born)

    def crashed(self, error: BaseException) -> Failed:
        """What to unwind with when something has failed that is no single tuple."""
        return Failed(self.place, told(self.run.flow, self.nodes, error))

    def give_dead_letter(self, node: Node, value: Any, error: BaseException, born: float) -> None:
        self.give(self.dead_letter_port(node), [dead_letter(node, value, error)], born)

    def dead_letter_port(self, node: Node) -> int:
        """Where the dead letters of a node leave the cell: behind the ports of its last node, in their order."""
        return self.nodes[-1].outputs + self.nodes.index(node)

    # Watching

    @property
    def workers(self) -> int:
        """How many workers are in this operator; whoever asks about a cell that is ready asks about an empty one."""
        return 0

    @property
    def most_workers(self) -> int:
        return 1

    def busy_seconds(self) -> float:
        """How long workers have been in this operator."""
        return self.total_seconds

    def used_cpu_seconds(self) -> float:
        """How long they have used a core there."""
        return self.cpu_seconds

    def hottest_share(self) -> float:
        """The share of the tuples since this was last asked that had to be worked on one after another."""
        return 0.0

    def passed(self) -> tuple[int, int]:
        """How many tuples its first operator has received, and its last one emitted."""
        return self.counters[self.name].received, self.counters[self.nodes[-1].name].emitted

    def selectivity(self) -> float:
        received, emitted = self.passed()
        return emitted / received if received else 1.0

    def reports(self) -> dict[str, OperatorReport]:
        return {
            name: OperatorReport(
                counts.received,
                counts.emitted,
                counts.busy_seconds,
                failed=counts.failed,
                late=counts.late,
                cpu_seconds=self.cpu_seconds,
                queue_length=sum(map(len, self.inputs)) if name == self.name else 0,
                write_blocked_ratio=self.run.share_of_time(self.blocked_seconds)
                if name == self.nodes[-1].name
                else 0.0,
            )
            for name, counts in self.counters.items()
        }
