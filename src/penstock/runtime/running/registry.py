"""Which cells a run has: the only place where they join it, and where one takes another's place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import FlowError
from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell


class Registry:
    """The cells of one run, each after what it reads."""

    def __init__(self, graph: Graph, cells: Sequence[Cell], on_new_cells: Callable[[], None]) -> None:
        self.flow = graph.flow
        self.cells = list(cells)
        """Never changed, but replaced by a new list: other threads look at it meanwhile."""
        self._graph = graph
        self.on_new_cells = on_new_cells
        self._lock = threading.Lock()
        self._remaining = len(self.cells)

    def add(self, cell: Cell) -> None:
        """A cell that was cut off another one joins the run."""
        with self._lock:
            self._remaining += 1
            self.cells = sorted([*self.cells, cell], key=lambda cell: cell.place)
        self.on_new_cells()
        cell.notify()

    def replace(self, cell: Cell, other: Cell) -> None:
        """Another cell takes the place of one that no worker runs."""
        with self._lock:
            self.cells = [other if one is cell else one for one in self.cells]
        self.on_new_cells()
        other.notify()

    def completed(self, cell: Cell) -> bool:
        """A cell is complete: so are, in time, those that wrote for no other; whether it was the last."""
        with self._lock:
            self._remaining -= 1
            is_last = self._remaining == 0
        if is_last:
            return True
        for writer in {port.writer for port in cell.inputs}:
            if all(port.reader.is_complete for targets in writer.outputs for port in targets):
                writer.finish()
        return False

    def cell_of(self, operator: str) -> Cell:
        """The cell that runs an operator now."""
        for cell in self.cells:
            if operator in cell.tally.of:
                return cell
        raise FlowError(f"flow {self.flow!r} has no operator {operator!r}")

    def runnable(self) -> list[Cell]:
        """Everything that workers run: cells, and the replicas of teams."""
        return [one for cell in self.cells for one in (cell, *cell.members)]

    def place_after(self, cell: Cell) -> float:
        """A rank between a cell's and the next one's."""
        later = [other.place for other in self.cells if other.place > cell.place]
        return (cell.place + min(later, default=cell.place + 1)) / 2

    def counts(self) -> dict[str, OperatorReport]:
        """What operators have done, in the order of the graph."""
        counted = {name: counts for cell in self.cells for name, counts in cell.figures.reports().items()}
        return {node.name: counted[node.name] for node in self._graph.nodes}

    def tell_sources(self) -> None:
        """Let them look whether something has changed, such as that the run is to stop."""
        for cell in self.cells:
            if cell.is_source:
                cell.notify()

    # What they wait for

    @property
    def are_at_rest(self) -> bool:
        """Whether no cell is ready, and no worker in one."""
        return all(cell.turn.is_at_rest for cell in self.runnable())

    @property
    def are_complete(self) -> bool:
        return all(cell.is_complete for cell in self.cells)

    @property
    def wait_for_outside(self) -> bool:
        """Whether something that is no operator will notify a cell."""
        return any(cell.waits_for_outside for cell in self.cells if not cell.is_complete)

    @property
    def are_awaiting(self) -> bool:
        """Whether an operator will go on by itself: one that waits for room behind it waits for nothing else."""
        return any(cell.waits_for_outside for cell in self.cells if not cell.is_complete and not cell.is_source)

    def awaiting(self) -> str:
        """The operators that await something on the event loop."""
        return ", ".join(cell.name for cell in self.cells if cell.waits_for_outside)

    def blocked(self) -> list[Cell]:
        """Those that have something for a full queue."""
        return [cell for cell in self.cells if cell.ports.blocked_on is not None and not cell.is_complete]
