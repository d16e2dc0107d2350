"""Checkpoints of the local engine: the same store, manifests and publication as on Spark, taken when a flow is quiet.

The sources pause, what they have read goes all the way through, and then everything that the flow remembers is in its
operators. A checkpoint is a batch: all that has come out since the last one becomes visible with its manifest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from penstock.clock import Clock
from penstock.engines.durable.admitted import refuse_unprocessed
from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.durable.conservation import SinkSums
from penstock.engines.durable.keyed_states import KeyedStates
from penstock.engines.durable.moving import move
from penstock.engines.durable.staging import FileStage, ValueStage, stage_file, stage_of
from penstock.engines.durable.steps import reached
from penstock.errors import FlowError
from penstock.flow.nodes import Graph, Loops, Writes
from penstock.observe.report import BatchReport
from penstock.operators.kept import Changed
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.sources import SourceCell
from penstock.runtime.running.registry import Registry
from penstock.state.buckets import Cache, TaskStates
from penstock.state.manifests import Output

_BUCKETS = 1
"""One process has all keys: to hash each of them would take longer than to pickle it."""
_NO_LIMIT = 1 << 62
_PAUSES_PER_INTERVAL = 20
_MOST_INTERVALS = 2
_LEAST_LONGEST_SECONDS = 1.0
_MOST_STAGED_BYTES = 64 << 20
_KEPT_REPORTS = 1000


class LocalCheckpoint:
    """The checkpoint of one run."""

    def __init__(self, root: str, graph: Graph, clock: Clock, seconds: float) -> None:
        _check(graph)
        self._clock = clock
        self.seconds = seconds
        self._sums = SinkSums()
        self._checkpoint = Checkpoint(root, graph, "local", _BUCKETS)
        with ExitStack() as undoing:
            undoing.callback(self._checkpoint.leave)
            refuse_unprocessed(self._checkpoint)
            self._commits = Commits(self._checkpoint, graph)
            undoing.callback(self._commits.close, has_failed=True)
            self._commits.open()
            self._commits.finish()
            move(self._checkpoint, self._commits, graph, _BUCKETS)
            undoing.pop_all()
        self._cache = Cache(_NO_LIMIT)  # the states themselves are the operators' own
        self._stages: dict[str, FileStage | ValueStage] = {}
        self.graph = replace(graph, nodes=tuple(map(self._staged, graph.nodes)))
        self.reports: deque[BatchReport] = deque(maxlen=_KEPT_REPORTS)
        self._next_at = clock.now() + seconds
        self._known: set[Cell] = set()
        """Those whose state is kept here, so that changes are enough."""

    def _staged(self, node: Any) -> Any:
        if not isinstance(node.kind, Writes):
            return node
        stage = self._stages[node.name] = stage_of(node.kind.sink)
        return replace(node, kind=Writes(stage))

    def attach(self, registry: Registry) -> None:
        """Let a run that is built read on where the last checkpoint was taken."""
        for cell in registry.cells:
            if isinstance(cell, SourceCell):
                cell.restore_offsets(self._checkpoint.offsets)

    def opened(self, registry: Registry) -> None:
        """No worker works yet: let operators remember what they knew."""
        states = self._states()
        known = {place.operator for place in self._checkpoint.manifests.chains()}
        for cell in registry.cells:
            cell.restore({name: self._keyed(states, name).kept() for name in cell.tally.of if name in known})
            self._known.add(cell)
        states.commit()  # nothing new; but the store need not read again what it has read

    # When a run is quiet

    def is_due(self) -> bool:
        """Asked by sources, whenever they have read something."""
        if self._clock.now() >= self._next_at:
            return True
        return sum(stage.size_bytes for stage in self._stages.values()) > _MOST_STAGED_BYTES

    def take(self, registry: Registry, closed: bool = False) -> None:
        """Called when nothing is under way: write down where everything stands, and let the output be seen."""
        began = self._clock.now()
        batch = self._checkpoint.next_batch
        outputs: dict[str, Sequence[Output]] = {}
        for name, stage in self._stages.items():
            data, rows = stage.take()
            if rows:
                outputs[name] = [stage_file(self._checkpoint.files, batch, data, rows)]
        outputs = self._commits.publisher.agreed(batch, outputs)
        reached("staged")
        self._sums.check(registry, outputs)
        states = self._states()
        if not closed:  # what has said its last words never goes on
            for cell in registry.cells:
                for name, changed in self._changes(cell).items():
                    self._keyed(states, name).keep(changed)
        chains = states.commit()
        reached("processed")
        offsets = {
            name: offset
            for cell in registry.cells
            if isinstance(cell, SourceCell)
            for name, offset in cell.offsets().items()
        }
        self._commits.commit(batch, offsets, chains, outputs, closed)
        paused = self._clock.now() - began
        rows = sum(output.rows for staged in outputs.values() for output in staged)
        self.reports.append(BatchReport(batch, paused, rows, {}))
        self._next_at = self._clock.now() + interval_seconds(self.seconds, paused)

    def _changes(self, cell: Cell) -> dict[str, Changed]:
        """What each operator would have to change in its last snapshot; of a cell that is new, all of it."""
        changed = cell.changed()
        if cell in self._known:
            return changed
        self._known.add(cell)
        return {name: Changed(kept.by_key, (), kept.rest, is_all=True) for name, kept in cell.snapshots().items()}

    def _states(self) -> TaskStates:
        manifests = self._checkpoint.manifests
        return TaskStates(self._checkpoint.files, self._checkpoint.query, manifests.chains(), self._cache)

    def _keyed(self, states: TaskStates, operator: str) -> KeyedStates:
        return KeyedStates(states, operator, _BUCKETS)

    def leave(self, has_failed: bool) -> None:
        try:
            self._commits.close(has_failed)
        finally:
            self._checkpoint.leave()


def interval_seconds(wanted: float, paused: float) -> float:
    """How long to work until the next checkpoint, after one that took so long to write.

    Twenty times as long, so that the flow works most of the time; but what is written grows with what is read between
    two checkpoints, so an interval that could grow with it without end would.

    >>> interval_seconds(10, 0.1), interval_seconds(10, 0.7), interval_seconds(10, 60), interval_seconds(0, 0.01)
    (10, 14.0, 20, 0.2)
    """
    longest = max(_MOST_INTERVALS * wanted, _LEAST_LONGEST_SECONDS)
    return max(wanted, min(_PAUSES_PER_INTERVAL * paused, longest))


def _check(graph: Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.kind, Loops) and not node.inputs:
            raise FlowError(
                f"flow {graph.flow!r}: {node.name!r} ({node.where}) is a driver loop without inputs, which can't be "
                "read again from where it was; give the local engine a source, or run without a checkpoint"
            )
