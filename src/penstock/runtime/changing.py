"""Cells that become others while the run goes on: one that gets replicas, one that is cut off a chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.flow.nodes import Node
from penstock.runtime.cells import Cell
from penstock.runtime.ports import Port

if TYPE_CHECKING:
    from penstock.runtime.run import Run


class Changing(Cell):
    """A cell that somebody else may take the place of, between two chunks."""

    def __init__(self, run: Run, place: float, nodes: Sequence[Node], inputs: Sequence[Port]) -> None:
        super().__init__(run, place, nodes, inputs)
        self._successors: dict[str, tuple[Sequence[Node], Callable[[Changing], Cell]]] = {}

    def has_changed(self) -> bool:
        """Called before it takes something: carry out what is wanted; whether this cell is no more."""
        if not self.is_to_change:
            return False
        with self.run.changing:
            return self.change()

    def succeed(self, nodes: Sequence[Node], make: Callable[[Changing], Cell]) -> None:
        """From its next chunk on, let some nodes be a cell of another kind; `make` is given the old one.

        Called under the run's lock for changes, like `stay` and `change`.
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
        """Everything taken is out, and nobody else is in this cell: swap; whether this cell is no more."""
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
        successor.depth, successor.outputs = self.depth, self.outputs
        for targets in successor.outputs:
            for target in targets:
                target.writer = successor
        successor.open()
        self.run.replace(self, successor)
        # Last: as long as somebody is in this cell, the run is not at rest.
        self.leave_to_successor()

    def isolate(self, nodes: Sequence[Node]) -> bool:
        """Cut off everything but these nodes; whether they are here."""
        return True
