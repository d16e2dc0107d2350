"""A replica whose work is done by another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.flow.nodes import Node
from penstock.runtime.cells import Failed
from penstock.runtime.companions import Interrupted, Program
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
        except Interrupted as interrupted:
            raise Failed(self.place, interrupted) from None
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
            raise self.crashed(revived(answer.error))

    def charge(self, seconds: float) -> None:
        """The companion says how long its operators were busy."""
