"""One operator (or a fused chain of them) at run time: what all cells are composed of, and what each kind has to do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from penstock.flow.nodes import Node
from penstock.operators.kept import Keeper
from penstock.runtime.cells.budget import Budget
from penstock.runtime.cells.figures import Figures
from penstock.runtime.cells.outbox import Outbox, PortOutbox
from penstock.runtime.cells.tally import Failing, Tally
from penstock.runtime.cells.turn import Turn
from penstock.runtime.ports import Helped, Port
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.views import OperatorView


class Cell(Keeper, ABC):
    """Takes from its ports, runs on private memory, gives to the ports of others.

    Only the worker that has claimed its turn may call `take` and `process`, and flush its outbox. What it remembers is
    asked for at quiescence.
    """

    help_seconds = math.inf
    """How long it must be busy before a worker asks for help with what else is ready, where the run does not know
    better."""

    def __init__(
        self,
        run: Surroundings,
        place: float,
        nodes: Sequence[Node],
        inputs: Sequence[Port],
        tally: Tally | None = None,
        chunks_when_busy: int = 4,
    ) -> None:
        self.run = run
        self.place = place
        """Its rank in the flow: everything that it reads has a lower one."""
        self.depth = 0.0
        """Its distance from the sources, by the longest way; known when it is connected."""
        self.nodes = nodes
        self.inputs = list(inputs)
        self.turn = Turn(partial(run.scheduler.add, self), partial(run.scheduler.look_again, self))
        self.budget = Budget(run.settings.chunk_seconds, run.settings.largest_chunk, chunks_when_busy)
        self.tally = tally or Tally(nodes)
        self.ports = PortOutbox(self, run.clock.now, run.look_at_flight, run.help_shares.count)
        """The way to its readers."""
        self.outbox: Outbox = self.ports
        """What a worker in this cell has to send."""
        self.last_run = 0.0
        self.is_failed = False
        """It takes no more: see `give_up`."""
        self.is_over = False
        """It will never have anything more to do; the worker that sees it completes it. Never taken back."""
        self.is_complete = False
        self.is_cut_short = False

    @property
    def name(self) -> str:
        return self.nodes[0].name

    @property
    def outputs(self) -> list[list[Port]]:
        return self.ports.outputs

    @cached_property
    def failing(self) -> Failing:
        """What becomes of tuples on which it fails."""
        return Failing(self.run.flow, self.place, self.tally)

    @cached_property
    def figures(self) -> Figures:
        """What others may know of it."""
        return Figures(self.tally, self.inputs, self.ports, self.run.logbook.share_of_time, self.budget)

    @cached_property
    def view(self) -> OperatorView:
        """What policies see of it."""
        return OperatorView(self)

    @property
    def is_source(self) -> bool:
        return not self.inputs

    @property
    def members(self) -> Sequence[Cell]:
        """What else workers run for this operator."""
        return ()

    @property
    def waits_for_outside(self) -> bool:
        """Whether something that is no operator will notify it."""
        return False

    # What a kind of cell does, in this order; only `take` and flushing touch what others see

    @abstractmethod
    def take(self) -> bool:
        """Take something to do from the ports; whether there was any. Sets `is_over` when there never will be."""

    @abstractmethod
    def process(self) -> int:
        """Do it, on private memory; what comes out goes into the outbox. How many tuples were worked on."""

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

    def helped(self, values: list[Any], born: float) -> Helped | None:
        """Process tuples before they are in its queue, if that can be done and a worker is busy in it already."""
        return None

    # What all have in common

    def connect(self, outputs: Iterable[Iterable[Port]], depth: float) -> None:
        """Be the reader of its inputs, and the writer of these; so far from the sources."""
        self.depth = depth
        self.ports.connect(outputs)
        for port in self.inputs:
            port.read_by(self)

    def take_place_of(self, other: Cell) -> None:
        """Write to its readers, as far from the sources."""
        self.depth = other.depth
        self.ports.connect(other.outputs)
        # Connected first, then looked at: readers that have ended may have told that cell instead of this one.
        self.is_over = self.is_over or self.may_be_cut_short()

    def give_up(self) -> None:
        """It has failed on a tuple, or can never go on: it takes no more."""
        self.is_failed = True

    def notify(self) -> None:
        """Something has changed: make sure that a worker looks at this cell after now."""
        self.turn.notify()

    def finish(self) -> None:
        """It has nothing more to do: let a worker complete it."""
        self.is_over = True
        self.notify()

    def account(self, seconds: float, cpu_seconds: float, processed: int) -> None:
        """A worker has spent so long in `process`: learn what a tuple costs, and charge it to the operators."""
        self.budget.account(seconds, cpu_seconds, processed)
        self.tally.charge(seconds, cpu_seconds)

    def complete(self) -> None:
        """Nothing more comes from here: readers see the end, and writers write for no reader."""
        self.is_cut_short = self.may_be_cut_short()
        for port in self.inputs:
            port.discard()
        self.ports.end()
        self.is_complete = True
        self.run.completed(self)
        # Last, because a run without running cells is at rest: everything must have been told by then.
        self.turn.end()

    def may_be_cut_short(self) -> bool:
        """Whether it ends with something undone, as it may where all that it writes for have ended before it."""
        readers = [port.reader for targets in self.outputs for port in targets]
        return bool(readers) and all(reader.is_complete for reader in readers)
