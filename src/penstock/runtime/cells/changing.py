"""Cells that become others while the run goes on: one that gets replicas, one that is cut off a chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.flow.nodes import Node
from penstock.runtime.cells.cell import Cell


class Changing(Cell):
    """A cell whose place another one may take, between two chunks."""

    successors: Mapping[str, tuple[Sequence[Node], Callable[[Changing], Cell] | None]] = {}
    """Which of its operators are to be a cell of another kind, and what makes that; or only one of their own. Never
    changed, but replaced: a worker looks at it before each chunk."""

    def has_changed(self) -> bool:
        """Called before it takes something, if there are successors: whether this cell is no more."""
        if self.is_over:
            return False
        with self.run.changing:
            return self.change()

    def succeed(self, nodes: Sequence[Node], make: Callable[[Changing], Cell] | None) -> None:
        """From its next chunk on, let some nodes be a cell of another kind; `make` is given the old one.

        The caller must hold the run's lock for changes, as for `stand_alone`, `stay` and `change`.
        """
        self.successors = {**self.successors, nodes[0].name: (nodes, make)}
        self.notify()

    def stand_alone(self, nodes: Sequence[Node]) -> None:
        """From its next chunk on, let some nodes be a cell of their own."""
        if nodes[0].name not in self.successors:
            self.succeed(nodes, None)

    def stay(self, node: Node) -> None:
        """Let it be after all."""
        self.successors = {name: wanted for name, wanted in self.successors.items() if name != node.name}

    def change(self) -> bool:
        """Everything taken is out, and no other worker is in this cell: swap; whether this cell is no more."""
        wanted, self.successors = self.successors, {}
        own: Callable[[Changing], Cell] | None = None
        for nodes, make in wanted.values():
            if self.isolate(nodes):
                own = make or own
            else:
                other = self.run.registry.cell_of(nodes[0].name)
                assert isinstance(other, Changing)
                other.succeed(nodes, make)
        if own is not None:
            self._leave_to(own(self))
        return own is not None

    def _leave_to(self, successor: Cell) -> None:
        successor.take_place_of(self)
        successor.open()
        self.run.registry.replace(self, successor)
        # Last: as long as a worker is in this cell, the run is not at rest.
        self.turn.end()

    def isolate(self, nodes: Sequence[Node]) -> bool:
        """Cut off everything but these nodes; whether they are here."""
        return True
