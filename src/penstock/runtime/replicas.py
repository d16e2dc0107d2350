"""The workers' places in an operator that has several, and the units that they work on.

A replica takes a chunk together with its serial number, works on it in private, and gives all that came of it to its
team, which restores the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.runtime.cells import Cell, Failed
from penstock.runtime.function_cells import BatchCell, ChainCell
from penstock.runtime.loop_cell import LoopCell
from penstock.runtime.ports import Port

if TYPE_CHECKING:
    from penstock.runtime.team import Team


class Unit:
    """A chunk of tuples with its serial number, and what has come of it."""

    __slots__ = ("born", "error", "given", "is_done", "is_last", "replica", "serial", "since", "values")

    def __init__(self, serial: int, values: list[Any], born: float, replica: int, since: float) -> None:
        self.serial = serial
        self.values = values
        self.born = born
        self.replica = replica
        """Who has taken it, and when."""
        self.since = since
        self.given: list[tuple[int, list[Any], float]] = []
        """What is to be sent, by output port; what has been sent is taken off the front."""
        self.error: Failed | None = None
        """It ends here: what was given before is let out, and nothing after it."""
        self.is_done = False
        """Somebody has done the work before it came here."""
        self.is_last = False
        """The operator has ended with it, whatever else there is."""


class Replica(Cell):
    """One of the workers' places in a team; a mixin before the kind of cell that does the work."""

    team: Team
    number = 0
    is_retired = False
    _unit: Unit | None = None
    _values: list[Any]
    _born: float
    help_seconds = 0.0001  # it is there to be helped

    def _attach(self, inputs: Sequence[Port]) -> None:
        """The team is who reads them."""

    @property
    def has_given_all(self) -> bool:
        return self._unit is None

    @property
    def is_source(self) -> bool:
        return False

    def take(self) -> bool:
        unit = None if self.is_retired else self.team.next_unit(self)
        if unit is None:
            return False
        self._unit = unit
        return True

    def process(self) -> None:
        unit = self._unit
        assert unit is not None
        self.processed = 0
        if not unit.is_done:
            self.work_on(unit)

    def work_on(self, unit: Unit) -> None:
        """Do it: all that comes of a unit is then in it."""
        kept, self._unit, self._values, self._born = self._unit, unit, unit.values, unit.born
        try:
            super().process()  # type: ignore[safe-super]
        except Failed as failed:
            unit.error = failed
        except BaseException as error:
            unit.error = self.crashed(error)
        finally:
            self._unit = kept

    def give(self, port: int, values: list[Any], born: float) -> None:
        if values:
            assert self._unit is not None
            self._unit.given.append((port, values, born))

    def budget(self, waiting: int) -> int:
        # What one has learnt, the others need not find out.
        return super().budget(waiting) if self.seconds_per_tuple else self.team.known_budget(self, waiting)

    def help_readers(self) -> None:
        unit, outputs = self._unit, self.team.outputs
        if unit is None:
            return
        given, unit.given = unit.given, []
        for port, values, born in given:
            parts = self.parts_with_help(outputs[port][0], values, born) if len(outputs[port]) == 1 else [values]
            unit.given += [(port, part, born) for part in parts]

    def flush(self) -> bool:
        unit, self._unit = self._unit, None
        if unit is not None:
            self.team.finished(unit)
        return True

    @property
    def workers(self) -> int:
        return self.team.workers

    @property
    def most_workers(self) -> int:
        return self.team.wanted

    def selectivity(self) -> float:
        return self.team.selectivity()

    def busy_seconds(self) -> float:
        return self.team.busy_seconds()

    def hand_over(self) -> Cell | None:
        return None

    def has_more(self) -> bool:
        return not self.is_retired and self.team.has_work(self)

    def release(self, has_more: bool) -> None:
        super().release(has_more)
        self.run.scheduler.look_again(self)  # its operator has a worker less
        # Who brings work wakes one that is idle, if there is one; so who has just become idle looks again.
        if self.has_more():
            self.notify()


class ChainReplica(Replica, ChainCell):
    """Runs a function."""


class BatchReplica(Replica, BatchCell):
    """Runs a function of lists or record batches."""


class LoopReplica(Replica, LoopCell):
    """Runs a stateless driver loop: what it emits between two waits belongs to the tuple that it has taken."""

    def process(self) -> None:
        (node,) = self.nodes
        unit = self._unit
        assert unit is not None
        (loop,) = self._loops.values()
        self.processed = len(unit.values)
        self.counters[node.name].received += self.processed
        if self.run.settings.on_loop is not None:
            self.run.settings.on_loop(node, unit.values)
        try:
            self._begin(loop)
            loop.ports[0].arrive_many(unit.values)
            self._resume(loop, None)
        except Failed as failed:
            unit.error = failed
        finally:
            self._hand_over()
        unit.is_last = loop.is_done

    def end(self, unit: Unit) -> None:
        """The stream has ended, and one of the replicas says what there is to say."""
        self._unit = unit
        (loop,) = self._loops.values()
        loop.ports[0].ended = True
        self.process()
        self._unit = None
