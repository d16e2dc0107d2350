"""Generated loops as a kernel, and what they have counted: totals of whole loops, shared out among their operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from penstock.clock import Clock
from penstock.flow.nodes import Node, Remembers
from penstock.operators.kept import Changed, Kept
from penstock.runtime.cells.kernel import Kernel
from penstock.runtime.cells.tally import Counters, Give, Tally
from penstock.runtime.chain import Chain, Part, changed_in, compile_chain, kept_of, restore_part
from penstock.runtime.failures import Failure

_CHUNKS_PER_STAGED = 64
_MOST_STAGED = 512


class ChainTally(Tally):
    """Counts whole loops; what that means for each operator is worked out when it is asked for."""

    def __init__(self, nodes: Sequence[Node], chain: Chain, earlier: Mapping[str, Counters] | None = None) -> None:
        super().__init__(nodes)
        self._begin(nodes, chain, earlier or self.of)

    def _begin(self, nodes: Sequence[Node], chain: Chain, earlier: Mapping[str, Counters]) -> None:
        self.nodes = nodes
        self.of = {node.name: earlier[node.name] for node in nodes}
        self.first = self.of[nodes[0].name]
        self._chain = chain
        self.shares = [1 / len(nodes)] * len(nodes)
        """Of the time of a whole loop, by operator."""
        self.waits = [0.0] * len(nodes)
        """How long each has run without a core where they were measured one by one."""
        self.busy_seconds = sum(counters.busy_seconds for counters in self.of.values())
        self.cpu_seconds = sum(counters.cpu_seconds for counters in self.of.values())
        self.received = self.emitted = 0
        self.passed_on = [0] * len(nodes)
        self.failures = [0] * len(nodes)

    def cut(self, first: Chain, second: Chain) -> ChainTally:
        """Count for a first part of the loop from now on; the tally of the other part."""
        counts = self.counts()
        rest = ChainTally(second.nodes, second, counts)
        self._begin(first.nodes, first, counts)
        return rest

    def count(self, received: int, emitted: int) -> None:
        """So many tuples have come into the loop, and so many out of it."""
        self.received += received
        self.emitted += emitted

    def learn_shares(self, seconds: Sequence[float], news: float) -> None:
        """So long each operator took of late; how much that counts."""
        if total := sum(seconds):
            self.shares = [
                (1 - news) * share + news * part / total for share, part in zip(self.shares, seconds, strict=True)
            ]

    def charge(self, seconds: float, cpu_seconds: float) -> None:
        self.busy_seconds += seconds
        self.cpu_seconds += cpu_seconds

    def passed(self) -> tuple[int, int]:
        received, emitted = super().passed()
        return received + self.received, emitted + self.emitted

    def counts(self) -> dict[str, Counters]:
        counted = self._chain.counts(self.received, self.emitted, self.passed_on, self.failures)
        found = {}
        for node, share, waited, (received, emitted) in zip(
            self.nodes, self.shares, self._waited(), counted, strict=True
        ):
            known, busy_seconds = self.of[node.name], self.busy_seconds * share
            found[node.name] = Counters(
                known.received + received,
                known.emitted + emitted,
                known.failed,
                known.late,
                busy_seconds,
                max(0.0, busy_seconds - waited),
            )
        return found

    def _waited(self) -> list[float]:
        """What each operator has waited: its share of what the whole loop has, as it was where they were measured."""
        waited = max(0.0, self.busy_seconds - self.cpu_seconds)
        weights = [max(0.0, wait) for wait in self.waits]
        if not any(weights):
            weights = self.shares
        whole = sum(weights) or 1.0
        return [waited * weight / whole for weight in weights]


class ChainKernel(Kernel):
    """One or more function operators as one generated loop."""

    tally: ChainTally

    def __init__(self, flow: str, place: float, chain: Chain, clock: Clock, tally: ChainTally | None = None) -> None:
        super().__init__(flow, place, chain.nodes, tally or ChainTally(chain.nodes, chain))
        self._flow = flow
        self._chain = chain
        self._clock = clock
        self._chunks = 0

    def cut(self, at: int, place: float) -> ChainKernel:
        """Be the loop of the first operators only; the loop of the others, which has a rank of its own."""
        nodes, parts = self.nodes, self._chain.parts
        first, second = compile_chain(nodes[:at], parts[:at]), compile_chain(nodes[at:], parts[at:])
        rest = ChainKernel(self._flow, place, second, self._clock, self.tally.cut(first, second))
        self.nodes, self._chain = first.nodes, first
        return rest

    def run(self, values: list[Any], born: float, give: Give) -> None:
        self._chunks += 1
        if len(self.nodes) > 1 and self._chunks % _CHUNKS_PER_STAGED == 2:
            self._run_staged(values[:_MOST_STAGED], born, give)
            values = values[_MOST_STAGED:]
        self._run_whole(values, born, give)

    def _run_whole(self, values: list[Any], born: float, give: Give) -> None:
        tally = self.tally
        outputs: list[list[Any]] = [[] for _ in range(self.nodes[-1].outputs)]

        def fail(place: int, value: Any, error: BaseException) -> None:
            tally.failures[place] += 1
            self.failing.failed(self.nodes[place], value, error, born, give)

        try:
            self._chain.whole(values, outputs, fail, tally.passed_on)
        finally:
            tally.count(len(values), sum(map(len, outputs)))
            for port, output in enumerate(outputs):
                give(port, output, born)

    def _run_staged(self, values: list[Any], born: float, give: Give) -> None:
        """Operator by operator, to learn how the time is shared out among them."""
        seconds = [0.0] * len(self.nodes)
        failure: Failure | None = None
        outputs: list[list[Any]] = [values]
        for place, (node, step) in enumerate(zip(self.nodes, self._chain.steps, strict=True)):
            (values,) = outputs
            outputs = [[] for _ in range(node.outputs)]
            started, cpu_before = self._clock.now(), self._clock.thread_cpu()
            try:
                step(values, outputs, partial(self._fail_alone, node, born, give), [])
            except Failure as failed:
                # What it let through came before: a later operator may fail on that, and is then the first to fail.
                failure = failed
            seconds[place] = self._clock.now() - started
            self.tally.waits[place] += seconds[place] - (self._clock.thread_cpu() - cpu_before)
            self.tally.of[node.name].count(len(values), sum(map(len, outputs)))
        for port, output in enumerate(outputs):
            give(port, output, born)
        self.tally.learn_shares(seconds, news=1.0 if self._chunks == 2 else 0.3)
        if failure is not None:
            raise failure

    def _fail_alone(self, node: Node, born: float, give: Give, _step: int, value: Any, error: BaseException) -> None:
        self.failing.failed(node, value, error, born, give)

    def snapshots(self) -> dict[str, Kept]:
        return {name: kept_of(part) for name, part in self._remembering()}

    def changed(self) -> dict[str, Changed]:
        return {name: changed_in(part) for name, part in self._remembering()}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        for node, part in zip(self.nodes, self._chain.parts, strict=True):
            if node.name in kept:
                restore_part(part, kept[node.name])

    def _remembering(self) -> list[tuple[str, Part]]:
        parts = zip(self.nodes, self._chain.parts, strict=True)
        return [(node.name, part) for node, part in parts if isinstance(node.kind, Remembers)]
