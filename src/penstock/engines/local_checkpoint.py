"""Checkpoints of the local engine: the same store, manifests and publication as on Spark, taken when a flow is quiet.

The sources pause, what they have read goes all the way through, and then everything that the flow remembers is in its
operators. A checkpoint is a batch: all that has come out since the last one becomes visible with its manifest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from penstock.clock import Clock
from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.keyed_states import KeyedStates
from penstock.engines.durable.publish import Outputs, Publisher
from penstock.engines.durable.staging import FileStage, ValueStage, stage_file, stage_of
from penstock.engines.durable.steps import reached
from penstock.errors import FlowError
from penstock.flow.nodes import Graph, Loops, Writes
from penstock.observe.report import BatchReport
from penstock.operators.kept import Changed, Kept
from penstock.ordering.keys import key_bytes
from penstock.runtime.run import Run
from penstock.state.buckets import Cache, TaskStates
from penstock.state.manifests import Manifest

_PUBLISHED = "published"
_BUCKETS = 1
"""One process has all keys: to hash each of them would take longer than to pickle it."""
_NO_LIMIT = 1 << 62
_PAUSES_PER_INTERVAL = 20
_MOST_STAGED_BYTES = 64 << 20
_KEPT_REPORTS = 1000


class LocalCheckpoint:
    """The checkpoint of one run."""

    def __init__(self, root: str, graph: Graph, clock: Clock, seconds: float) -> None:
        _check(graph)
        self._clock = clock
        self._seconds = seconds
        self._checkpoint = Checkpoint(root, graph, _BUCKETS)
        self._outputs_before: Outputs = {}
        try:
            self._publisher = Publisher(graph, self._checkpoint.files, self._checkpoint.sinks, self._checkpoint.query)
            self._checkpoint.remember_sinks(self._publisher.open())
            self._latest = self._checkpoint.manifests.latest()
            if self._latest is not None and self._latest.closed:
                self._checkpoint.refuse_to_go_on()
            self._go_on_with(self._latest)
        except BaseException:
            self._checkpoint.leave()
            raise
        self._cache = Cache(_NO_LIMIT)  # the states themselves are the operators' own
        self._stages: dict[str, FileStage | ValueStage] = {}
        self.graph = replace(graph, nodes=tuple(map(self._staged, graph.nodes)))
        self.reports: deque[BatchReport] = deque(maxlen=_KEPT_REPORTS)
        self._next_at = clock.now() + seconds

    def _go_on_with(self, latest: Manifest | None) -> None:
        """What an earlier run has committed is to be seen, even if it died before that."""
        manifests, files = self._checkpoint.manifests, self._checkpoint.files
        for batch, outputs in manifests.outputs():
            self._publisher.recollect(batch, outputs)
        try:
            published = int(files.read(_PUBLISHED))
        except FileNotFoundError:
            published = -1
        if latest is not None and published < latest.batch:
            self._publish(latest.batch, latest.outputs)

    def _staged(self, node: Any) -> Any:
        if not isinstance(node.kind, Writes):
            return node
        stage = self._stages[node.name] = stage_of(node.kind.sink)
        return replace(node, kind=Writes(stage))

    def attach(self, run: Run) -> None:
        """Let a run that is built read on where the last checkpoint was taken."""
        run.quiet = self
        if self._latest is not None:
            for cell in run.cells:
                cell.restore_offsets(self._latest.offsets)

    def opened(self, run: Run) -> None:
        """Nobody works yet: let operators remember what they knew."""
        states = self._states()
        known = {place.operator for place in self._checkpoint.manifests.chains()}
        for cell in run.cells:
            cell.restore({name: _kept(self._keyed(states, name)) for name in cell.counters if name in known})
            cell.is_known = True
        states.commit()  # nothing new; but the store need not read again what it has read

    # When a run is quiet

    def is_due(self) -> bool:
        """Asked by sources, whenever they have read something."""
        if self._clock.now() >= self._next_at:
            return True
        return sum(stage.size_bytes for stage in self._stages.values()) > _MOST_STAGED_BYTES

    def take(self, run: Run, closed: bool = False) -> None:
        """Called when nothing is under way: write down where everything stands, and let the output be seen."""
        began = self._clock.now()
        batch = 0 if self._latest is None else self._latest.batch + 1
        outputs: dict[str, list[list[Any]]] = {}
        for name, stage in self._stages.items():
            data, rows = stage.take()
            if rows:
                outputs[name] = [[stage_file(self._checkpoint.files, batch, data), rows]]
        reached("staged")
        states = self._states()
        if not closed:  # nobody goes on with what has said its last words
            for cell in run.cells:
                for name, changed in cell.changes().items():
                    _keep(changed, self._keyed(states, name))
        chains = states.commit()
        reached("processed")
        offsets = {name: offset for cell in run.cells for name, offset in cell.offsets().items()}
        about = self._checkpoint.about
        manifest = Manifest(batch, about["operators"], about["buckets"], offsets, chains, outputs, closed)
        self._checkpoint.commit(manifest)
        reached("manifest")
        self._latest = manifest
        self._publish(batch, outputs)
        reached("published")
        paused = self._clock.now() - began
        rows = sum(rows for staged in outputs.values() for _, rows in staged)
        self.reports.append(BatchReport(batch, paused, rows, {}))
        self._next_at = self._clock.now() + max(self._seconds, _PAUSES_PER_INTERVAL * paused)

    def _publish(self, batch: int, outputs: Outputs) -> None:
        self._publisher.publish(batch, outputs, None)
        self._checkpoint.files.write(_PUBLISHED, str(batch).encode())
        self._publisher.forget(self._outputs_before)
        self._outputs_before = outputs

    def _states(self) -> TaskStates:
        manifests = self._checkpoint.manifests
        return TaskStates(self._checkpoint.files, self._checkpoint.query, manifests.chains(), self._cache)

    def _keyed(self, states: TaskStates, operator: str) -> KeyedStates:
        return KeyedStates(states, operator, self._checkpoint.buckets, identity=key_bytes)

    def leave(self, has_failed: bool) -> None:
        try:
            self._publisher.close(has_failed)
        finally:
            self._checkpoint.leave()


def _kept(states: KeyedStates) -> Kept:
    return Kept(dict(states.mine()), states.shared())


def _keep(changed: Changed, states: KeyedStates) -> None:
    deleted = changed.deleted
    if changed.is_all:
        deleted = [key for key, _ in states.mine() if key not in changed.by_key]
    states.change(changed.by_key, deleted)
    if changed.rest is not None:
        states.keep_shared(changed.rest)


def _check(graph: Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.kind, Loops) and not node.inputs:
            raise FlowError(
                f"flow {graph.flow!r}: {node.name!r} ({node.where}) is a driver loop without inputs, which can't be "
                "read again from where it was; give the local engine a source, or run without a checkpoint"
            )
