"""What happens to a chunk: functions on private memory, wherever the chunk comes from and wherever its output goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from penstock.flow.nodes import Applies, Node
from penstock.operators.functions import Form, batch_of_rows, listed, rows_of_batch
from penstock.operators.kept import Keeper
from penstock.runtime.cells.tally import Counters, Failing, Give, Tally
from penstock.runtime.companions import Companions, Interrupted, Program
from penstock.runtime.failures import Failure
from penstock.runtime.portable import revived


class Kernel(Keeper, ABC):
    """Used by one worker at a time."""

    def __init__(self, flow: str, place: float, nodes: Sequence[Node], tally: Tally | None = None) -> None:
        self.nodes = nodes
        self.place = place
        self.tally = tally or Tally(nodes)
        self.failing = Failing(flow, place, self.tally)

    @abstractmethod
    def run(self, values: list[Any], born: float, give: Give) -> None:
        """Work on a chunk; what came out before a failure has been given when `Failure` is raised."""

    def end(self, born: float, give: Give) -> None:
        """The input has ended: what there is to say."""

    @property
    def is_done(self) -> bool:
        """Whether it takes no more, whatever comes."""
        return False

    def leave(self, has_failed: bool) -> None:
        """The run is over."""


class BatchKernel(Kernel):
    """A function of a list or of a record batch; one that fails gets its tuples one by one, to find the bad one."""

    def run(self, values: list[Any], born: float, give: Give) -> None:
        (node,) = self.nodes
        outputs: list[Any] = []
        try:
            outputs = self._apply(node, values)
        except BaseException as error:
            if len(values) == 1:
                self.failing.failed(node, values[0], error, born, give)
            else:
                self._one_by_one(node, values, outputs, born, give)
        finally:
            self.tally.first.count(len(values), len(outputs))
        give(0, outputs, born)

    def _one_by_one(self, node: Node, values: list[Any], outputs: list[Any], born: float, give: Give) -> None:
        for value in values:
            try:
                outputs += self._apply(node, [value])
            except BaseException as error:
                try:
                    self.failing.failed(node, value, error, born, give)
                except Failure:
                    give(0, outputs, born)
                    raise

    @staticmethod
    def _apply(node: Node, values: list[Any]) -> list[Any]:
        kind = node.kind
        assert isinstance(kind, Applies)
        if kind.form is Form.ARROW:
            return rows_of_batch(kind.fn(batch_of_rows(values, kind.input_schema)), kind.schema)
        # A copy: other readers of the stream have the same list, and the function may change what it is given.
        return listed(kind.form, kind.fn, kind.fn(list(values)))


class CompanionKernel(Kernel):
    """Has its chunks processed by the companion process of the worker that is here."""

    def __init__(
        self, flow: str, place: float, nodes: Sequence[Node], companions: Companions, program: Program
    ) -> None:
        super().__init__(flow, place, nodes, RemoteTally(nodes))
        self._companions = companions
        self._program = program

    def run(self, values: list[Any], born: float, give: Give) -> None:
        try:
            answer = self._companions.run(self._program, values)
        except Interrupted as interrupted:
            raise Failure(self.place, interrupted) from None
        for port, found in answer.given:
            give(port, found, born)
        for name, (received, emitted, failed, busy_seconds) in answer.counts.items():
            if name in self.tally.of:
                self.tally.of[name].add(Counters(received, emitted, failed, busy_seconds=busy_seconds))
        if answer.error is not None:
            raise self.failing.crashed(revived(answer.error))


class RemoteTally(Tally):
    """Of operators in another process, which says itself how long they were busy."""

    def charge(self, seconds: float, cpu_seconds: float) -> None:
        super().charge(0.0, cpu_seconds)
