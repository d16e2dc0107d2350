"""Cells that become others while the run goes on: one that gets replicas, one that is cut off a chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.flow.nodes import Node
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.tally import Tally
from penstock.runtime.ports import Port
from penstock.runtime.surroundings import Surroundings


class Changing(Cell):
    """A cell whose place another one may take, between two chunks."""

    def __init__(
        self,
        run: Surroundings,
        place: float,
        nodes: Sequence[Node],
        inputs: Sequence[Port],
        tally: Tally | None = None,
    ) -> None:
        super().__init__(run, place, nodes, inputs, tally)
        self._successors: dict[str, tuple[Sequence[Node], Callable[[Changing], Cell]]] = {}

    def has_changed(self) -> bool:
        """Called before it takes something: carry out what is wanted; whether this cell is no more."""
        if self.is_over or not self.is_to_change:
            return False
        with self.run.changing:
            return self.change()

    def succeed(self, nodes: Sequence[Node], make: Callable[[Changing], Cell]) -> None:
        """From its next chunk on, let some nodes be a cell of another kind; `make` is given the old one.

        The caller must hold the run's lock for changes, as for `stay` and `change`.
        """
        self._successors[nodes[0].name] = nodes, make
        self.notify()

    def stay(self, node: Node) -> None:
        """Let it be after all."""
        self._successors.pop(node.name, None)

    @property
    def is_to_change(self) -> bool:
        return bool(self._successors)

    def change(self) -> bool:
        """Everything taken is out, and no other worker is in this cell: swap; whether this cell is no more."""
        wanted, self._successors = self._successors, {}
        own: Callable[[Changing], Cell] | None = None
        for nodes, make in wanted.values():
            if self.isolate(nodes):
                own = make
            else:
                other = self.run.cell_of(nodes[0].name)
                assert isinstance(other, Changing)
                other.succeed(nodes, make)
        if own is not None:
            self._leave_to(own(self))
        return own is not None

    def _leave_to(self, successor: Cell) -> None:
        successor.depth = self.depth
        successor.ports.connect(self.outputs)
        # Connected first, then looked at: readers that have ended may have told this cell instead of that one.
        successor.is_over = successor.is_over or successor.may_be_cut_short()
        successor.open()
        self.run.replace(self, successor)
        # Last: as long as a worker is in this cell, the run is not at rest.
        self.turn.end()

    def isolate(self, nodes: Sequence[Node]) -> bool:
        """Cut off everything but these nodes; whether they are here."""
        return True
