"""A replica whose work is done by another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import OperatorError, PenstockError
from penstock.flow.nodes import Node
from penstock.runtime.cells import Failed
from penstock.runtime.companions import Program
from penstock.runtime.failures import reported
from penstock.runtime.function_cells import FunctionCell
from penstock.runtime.portable import revived
from penstock.runtime.ports import Port
from penstock.runtime.replicas import Replica

if TYPE_CHECKING:
    from penstock.runtime.run import Run


class CompanionReplica(Replica, FunctionCell):
    """Has its chunks processed by the companion of whichever worker is here."""

    chunks_when_busy = 8  # the way there and back costs a third of a millisecond

    def __init__(self, run: Run, place: float, nodes: Sequence[Node], port: Port, program: Program) -> None:
        super().__init__(run, place, nodes, port)
        self._program = program

    def run_chunk(self, values: list[Any]) -> None:
        try:
            answer = self.run.companions.run(self._program, values)
        except OperatorError as died:
            raise Failed(self.place, died) from None
        except Exception as error:  # a tuple that can't be pickled
            raise Failed(self.place, self._told(error, values)) from None
        for port, found in answer.given:
            self.give(port, found, self._born)
        for name, (received, emitted, failed, busy_seconds) in answer.counts.items():
            if name in self.counters:
                counters = self.counters[name]
                counters.received += received
                counters.emitted += emitted
                counters.failed += failed
                counters.busy_seconds += busy_seconds
        if answer.error is not None:
            raise Failed(self.place, self._told(revived(answer.error), values))

    def _told(self, error: Exception, values: list[Any]) -> PenstockError:
        """What the operator has said of a tuple; or that something went wrong between the processes."""
        told = reported(self.run.flow, self.nodes[0], values, error)
        if told is not error:
            told.__cause__ = error
        return told

    def charge(self, seconds: float) -> None:
        """The companion says how long its operators were busy."""
