"""What policies may know about operators and their queues: live and read-only, worked out when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.runtime.ports import Neighbour, Port

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell

RATE_SECONDS = 0.1
"""How much later a rate must be asked for again to be another one."""


class Growth:
    """How much something grows in a second: between the last two looks that were a tenth of a second apart or more."""

    __slots__ = ("_before", "_now", "_total")

    def __init__(self, total: Callable[[], int], now: Callable[[], float], since: float) -> None:
        self._total = total
        self._now = now
        self._before = (since, 0, 0.0)
        """When this was asked for last, what there was, and the rate up to then."""

    def __call__(self) -> float:
        since, before, rate = self._before
        now = self._now()
        if now - since >= RATE_SECONDS:
            total = self._total()
            rate = (total - before) / (now - since)
            self._before = (now, total, rate)
        return rate


class PortView:
    """What a policy may know about a queue before an operator."""

    __slots__ = ("_now", "_port", "_read", "_written")

    def __init__(self, port: Port, now: Callable[[], float], since: float) -> None:
        self._port = port
        self._now = now
        self._read = Growth(lambda: port.total_taken, now, since)
        self._written = Growth(lambda: port.total, now, since)

    def __len__(self) -> int:
        """Tuples waiting."""
        return len(self._port)

    @property
    def capacity(self) -> int:
        """How many may wait."""
        return self._port.capacity

    @property
    def is_full(self) -> bool:
        """Whether a writer would have to wait for room."""
        return self._port.is_full

    @property
    def full_since(self) -> float | None:
        """Since when its writer waits for room; `None` if it does not."""
        return self._port.full_since

    @property
    def oldest_time(self) -> float | None:
        """When the front tuple entered the flow, in seconds of the engine's clock."""
        return self._port.front_time

    @property
    def enqueued_time(self) -> float | None:
        """When the front tuple was put into this queue; for one that was here before the first question, when that was.

        Nothing is noted, and nothing spent, in queues that no policy asks about.
        """
        return self._port.enqueued_time(self._now)

    @property
    def read_rate(self) -> float:
        """How many tuples a second are taken, of late."""
        return self._read()

    @property
    def write_rate(self) -> float:
        """How many tuples a second come, of late."""
        return self._written()


class OperatorView:
    """What a policy may know about a ready operator (or a fused chain of them), all its replicas together."""

    __slots__ = ("_cell", "_now", "_ports", "_read", "_since", "_written")

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._now = cell.run.clock.now
        self._since = self._now()
        self._ports: dict[Port, PortView] = {}
        self._read = Growth(lambda: cell.figures.passed()[0], self._now, self._since)
        self._written = Growth(lambda: cell.figures.passed()[1], self._now, self._since)

    @property
    def name(self) -> str:
        return self._cell.name

    @property
    def place(self) -> float:
        """Its rank in the flow: sources are low, sinks high."""
        return self._cell.place

    @property
    def depth(self) -> float:
        """How far it is from the sources, which have 0, by the longest way."""
        return self._cell.depth

    @property
    def is_source(self) -> bool:
        return self._cell.is_source

    @property
    def inputs(self) -> tuple[PortView, ...]:
        """The queues before it, one for each input."""
        return tuple(map(self._port, self._cell.inputs))

    @property
    def outputs(self) -> tuple[tuple[PortView, ...], ...]:
        """For each of its outputs, the queues before those that read it."""
        return tuple(tuple(map(self._port, targets)) for targets in self._cell.outputs)

    def _port(self, port: Port) -> PortView:
        found = self._ports.get(port)
        if found is None:
            found = self._ports[port] = PortView(port, self._now, self._since)
        return found

    @property
    def queue_length(self) -> int:
        """Tuples waiting on its inputs."""
        return sum(len(port) for port in self._cell.inputs)

    @property
    def oldest_time(self) -> float | None:
        """When the oldest of them entered the flow, in seconds of the engine's clock."""
        inputs = self._cell.inputs
        if len(inputs) == 1:
            return inputs[0].front_time
        return min((time for port in inputs if (time := port.front_time) is not None), default=None)

    @property
    def last_run(self) -> float:
        """When it was last picked."""
        cell = self._cell
        members = cell.members
        return max(member.last_run for member in members) if members else cell.last_run

    @property
    def seconds_per_tuple(self) -> float:
        """What a tuple costs, as measured so far."""
        cell = self._cell
        members = cell.members
        known = [seconds for member in members if (seconds := member.budget.seconds_per_tuple)] if members else ()
        return sum(known) / len(known) if known else cell.budget.seconds_per_tuple

    @property
    def selectivity(self) -> float:
        """How many tuples it emits for one that it receives, as measured so far."""
        return self._cell.figures.selectivity()

    @property
    def share(self) -> float:
        """How many tuples it receives, on all its inputs, for one that has entered the flow, as measured so far."""
        return self._cell.run.visits.of(self._cell)

    @property
    def read_rate(self) -> float:
        """How many tuples a second it has received of late."""
        return self._read()

    @property
    def write_rate(self) -> float:
        """How many tuples a second it has emitted of late."""
        return self._written()

    @property
    def busy_seconds(self) -> float:
        """How long workers have been in it."""
        return self._cell.figures.busy_seconds

    @property
    def workers(self) -> int:
        """How many workers are in it."""
        return self._cell.figures.workers

    @property
    def most_workers(self) -> int:
        """How many may be in it at once."""
        return self._cell.figures.most_workers

    @property
    def output_length(self) -> int:
        """Tuples waiting before the fullest of its readers."""
        return max((len(port) for targets in self._cell.outputs for port in targets), default=0)

    @property
    def output_capacity(self) -> int:
        """How many tuples may wait before that one of its readers before which the fewest may."""
        return min((port.capacity for targets in self._cell.outputs for port in targets), default=1 << 30)

    @property
    def room(self) -> int:
        """How many tuples its fullest reader can still take."""
        return min((port.capacity - len(port) for targets in self._cell.outputs for port in targets), default=1 << 30)


class VisitRatios:
    """How many tuples each operator receives for one that has entered the flow, by way of all its inputs.

    All are worked out together, once for as many questions as there are operators: so a question costs the same in a
    flow of ten and of a thousand, and however often the flow forks and rejoins.
    """

    def __init__(self, cells: Callable[[], Sequence[Neighbour]]) -> None:
        self._cells = cells
        self._shares: dict[Neighbour, float] = {}
        self._questions = 0
        """How many more are answered before all are worked out again."""

    def of(self, cell: Neighbour) -> float:
        self._questions -= 1
        if self._questions < 0 or cell not in self._shares:
            self._work_out()
        return self._shares.get(cell, 1.0)

    def _work_out(self) -> None:
        cells = self._cells()
        shares: dict[Neighbour, float] = {}
        for cell in cells:  # each after those that write to it
            ports = cell.inputs[: len(cell.nodes[0].inputs)]  # what comes by way of a control input has been counted
            shares[cell] = sum(shares.get(port.writer, 1.0) * _part(port) for port in ports) if ports else 1.0
        self._shares, self._questions = shares, len(cells)


def _part(port: Port) -> float:
    """How many tuples its writer has for this queue for one that it receives.

    Not by what the reader has received: what waits before it counts as well.
    """
    writer = port.writer
    outputs = writer.outputs[: writer.nodes[-1].outputs]
    received, emitted = writer.figures.passed()
    if writer.is_source:
        received = emitted
    if len(outputs) == 1 and port in outputs[0]:
        return emitted / received if received else 1.0
    return port.total_given / received if received else 1.0
