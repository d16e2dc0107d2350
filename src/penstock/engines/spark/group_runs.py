"""One group's share of a batch in one task: working in order or by key, putting lines in order, passing slices on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.clock import SystemClock
from penstock.connectors.source import Chunk
from penstock.engines.batch_shares import usual_owners
from penstock.engines.durable.keyed_states import KeyedStates, identity_in
from penstock.engines.durable.staging import FileStage, Staged, ValueStage, stage_file
from penstock.engines.spark import wire
from penstock.engines.spark.conservation import check_positions, check_task, not_published
from penstock.engines.spark.doors import Door
from penstock.engines.spark.keyed import KeyedChain
from penstock.engines.spark.line_writer import LineWriter, joined
from penstock.engines.spark.loops import LoopStep
from penstock.engines.spark.pickling import dumps, refuse_unpicklable
from penstock.engines.spark.stages import Exit, GroupTask, Level, LevelBatch, Sums, TaskReport
from penstock.engines.spark.timed import TimedStep
from penstock.flow.nodes import Loops, Node, Waits, Writes
from penstock.operators.kept import Changed
from penstock.plan.groups import Spread
from penstock.runtime.inlets import Outlet
from penstock.runtime.portable import portable
from penstock.runtime.quiescence import Part
from penstock.state.buckets import TaskStates


class About(NamedTuple):
    """What a task is: its level, batch, group and partition."""

    level: Level
    batch: LevelBatch
    group: GroupTask
    partition: int


class GroupRun:
    """One group's share: slices in, slices out."""

    def __init__(self, about: About) -> None:
        self.level, self.batch, self.group, self.partition = about
        level, group = self.level, self.group
        self.files = level.files
        self.states = TaskStates(self.files, level.query, self.batch.chains, dumps=dumps)
        self.staged: list[Staged] = []
        self.failed_at = (b"", 0)
        """The slice and the position at which it fails, if it fails."""
        self.read: Counter[str] = Counter()
        self.parts_read: Counter[str] = Counter()
        self.sent_on: Counter[int] = Counter()
        self.received_on: Counter[int] = Counter()
        unseen = [*group.straight.values(), *group.relays.values()]
        exits = [*group.exits, *(exit for exits in unseen for exit in exits)]
        self._doors = {exit.edge: Door(exit, level, self.batch.owners) for exit in exits}

    def rows(self) -> Iterator[wire.ShuffleRow]:
        raise NotImplementedError

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """What its operators received, emitted, failed on, and found late."""
        return {}

    def busy_seconds(self) -> dict[str, float]:
        return {}

    def completed(self) -> frozenset[str]:
        """Operators that are through for good: only what runs in one task can be."""
        return frozenset()

    def leave(self) -> None:
        """Whatever has happened: end."""

    def waiting(self) -> Mapping[str, tuple[int, ...]]:
        """Tuples that wait for those on other inputs: only what runs in one task has any."""
        return {}

    def counted(self, slices: Iterator[tuple[int, wire.Slice]]) -> Iterator[tuple[int, wire.Slice]]:
        """The slices that come here, counted as they come off the wire."""
        for edge, part in slices:
            self.received_on[edge] += len(part.values)
            yield edge, part

    def sums(self) -> Sums:
        read = {source: (parts, self.read[source]) for source, parts in self.parts_read.items()}
        return Sums(read, dict(self.received_on), dict(self.sent_on))

    def check(self) -> None:
        """`ConservationError` where what came to this task is not what it worked on, kept and sent on."""
        check_task(self.level.flow, self.batch.number, self.group, self.sums(), self.worked_on(), self.staged)

    def worked_on(self) -> dict[str, tuple[int, int, int, int]]:
        """The counts that must be those of what came here and went on from here."""
        return self.counts()

    def report(self) -> TaskReport:
        waiting = self.waiting()
        self.check()
        chains = self.states.commit()
        return TaskReport(
            self.level.number,
            self.partition,
            self.counts(),
            chains,
            tuple(self.staged),
            self.completed(),
            waiting,
            self.sums(),
            self._loads(),
        )

    def _loads(self) -> dict[int, tuple[int, ...]]:
        """By keyed group, how many tuples went to each of its buckets, whatever edge they went on."""
        found: dict[int, Any] = {}
        for target, door in ((door.target, door) for door in self._doors.values()):
            if door.loads.any():
                found[target] = found.get(target, 0) + door.loads
        return {target: tuple(loads.tolist()) for target, loads in found.items()}

    def failed(self, error: BaseException) -> TaskReport:
        self.states.abandon()
        return TaskReport(
            self.level.number, self.partition, {}, {}, (), error=portable(error), failed_at=self.failed_at
        )

    def sent(self, exit: Exit, part: wire.Slice) -> Iterator[wire.ShuffleRow]:
        if len(part.values):
            check_positions(self.level.flow, self.batch.number, exit.edge, part)
            self.sent_on[exit.edge] += len(part.values)
            try:
                yield from self._doors[exit.edge].rows(part)
            except Exception as error:
                refuse_unpicklable(self.level.flow, self._sender(exit), part.values, error)

    def _sender(self, exit: Exit) -> Node | None:
        """The operator whose output leaves here."""
        nodes = {node.name: node for node in (*self.group.graph.nodes, *self.group.keyed)}
        if self.group.keyed:
            return nodes.get(exit.outlet, self.group.keyed[-1])
        outlet = nodes.get(exit.outlet)
        return outlet and nodes.get(outlet.upstream[0].node)

    def relayed(self, edge: int, part: wire.Slice) -> Iterator[wire.ShuffleRow]:
        """To the groups that get a slice as it is, only in order."""
        for exit in self.group.relays[edge]:
            yield from self.sent(exit, wire.Slice(part.sort_key, part.values))

    def stage(self, sink: str, sort_key: bytes, data: bytes, rows: int) -> None:
        """Write some output of a sink to a file that only the manifest makes part of the result."""
        self.staged.append(Staged(sink, sort_key, stage_file(self.files, self.batch.number, data, rows)))


class PartRun(GroupRun):
    """A group that runs on the runtime, between inlets and outlets."""

    def __init__(self, about: About) -> None:
        super().__init__(about)
        graph = self.group.graph
        self.part = Part(graph, on_loop=self.group.on_loop)
        sinks = {node.name: node.kind.sink for node in graph.nodes if isinstance(node.kind, Writes)}
        self._outlets = {name: sink for name, sink in sinks.items() if isinstance(sink, Outlet)}
        self._stages = {name: sink for name, sink in sinks.items() if isinstance(sink, FileStage | ValueStage)}

    def feed(self, inlet: str, sort_key: bytes, values: Sequence[Any], all_readable: bool = True) -> None:
        """Let in what belongs to the slice with that sort key."""
        self.failed_at = (sort_key, 0)
        self.part.feed(inlet, Chunk(values, 0, all_readable=all_readable))

    def fed(self, inlet: str, sort_key: bytes, values: Sequence[Any]) -> Iterator[wire.ShuffleRow]:
        """Let a slice in, and send what comes out as a slice with the same sort key."""
        self.feed(inlet, sort_key, values)
        yield from self.out(sort_key)

    def out(self, sort_key: bytes) -> Iterator[wire.ShuffleRow]:
        if self.part.failure is not None:
            raise self.part.failure
        for exit in self.group.exits:
            yield from self.sent(exit, wire.Slice(sort_key, self._outlets[exit.outlet].take()))
        for name, stage in self._stages.items():
            try:
                data, rows = stage.take()
            except Exception as error:
                node = next(node for node in self.group.graph.nodes if node.name == name)
                refuse_unpicklable(self.level.flow, node, stage.values(), error)
            if rows:
                self.stage(name, sort_key, data, rows)

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {
            name: (counts.received, counts.emitted, counts.failed, counts.late)
            for name, counts in self.part.counts().items()
        }

    def busy_seconds(self) -> dict[str, float]:
        return {name: counts.busy_seconds for name, counts in self.part.counts().items()}

    def check(self) -> None:
        self.part.check(not_published(self.batch.number))
        super().check()

    def worked_on(self) -> dict[str, tuple[int, int, int, int]]:
        """Without the operators whose output is no longer read: they may leave what comes."""
        over = self.part.cut_short()
        return {name: counts for name, counts in self.counts().items() if name not in over}

    def leave(self) -> None:
        with suppress(BaseException):  # it has been reported
            self.part.leave()


class OrderedRun(PartRun):
    """Works on whole slices, in their order; the only task of its group keeps the operators' state."""

    def __init__(self, about: About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        self._slices = self.counted(slices)
        self._is_one = self.group.spread is Spread.ONE
        self._waiting: dict[str, tuple[int, ...]] = {}
        self._kept = {
            node.name: KeyedStates(self.states, node.name, self.level.buckets, identity=identity_in(node))
            for node in self.group.graph.nodes
        }

    def completed(self) -> frozenset[str]:
        return frozenset(self.part.completed()) if self._is_one else frozenset()

    def waiting(self) -> Mapping[str, tuple[int, ...]]:
        return self._waiting

    def rows(self) -> Iterator[wire.ShuffleRow]:
        if self._is_one:
            known = {bucket_id.operator for bucket_id in self.batch.chains}
            self.part.restore({name: states.kept() for name, states in self._kept.items() if name in known})
        count = 0
        for edge, part in self._slices:
            sort_key = wire.sort_key_of(0, count) if self._is_one else part.sort_key
            yield from self.relayed(edge, part)
            yield from self.fed(self.group.inlets[edge], sort_key, part.values)
            count += 1
        if self.batch.closes:
            self.part.close()
            yield from self.out(wire.CLOSING)
        elif self._is_one:
            self.part.settle()
            yield from self.out(wire.sort_key_of(0, count))
            self._waiting = {name: tuple(counts) for name, counts in self.part.waiting().items() if len(counts) > 1}
            for name, snapshot in self.part.snapshots().items():
                self._kept[name].keep(Changed(snapshot.by_key, rest=snapshot.rest, is_all=True))


class KeyedRun(GroupRun):
    """Works on the tuples of its keys, slice by slice; the tuples keep their positions."""

    def __init__(self, about: About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        level, group = self.level, self.group
        self._owners = self.batch.owners.get(group.number) or usual_owners(level.buckets, group.tasks)
        self._step = self._made_step()
        self._clock = SystemClock()
        self._busy_seconds = 0.0
        self._writers = {exit.edge: LineWriter(level.flow, exit.writes) for exit in group.exits if exit.writes}
        self._slices = self.counted(slices)

    def _made_step(self) -> KeyedChain | TimedStep | LoopStep:
        flow, (node, *_) = self.level.flow, self.group.keyed
        states = KeyedStates(self.states, node.name, self.level.buckets, self._is_mine, identity_in(node))
        match node.kind:
            case Waits():
                return TimedStep(flow, node, states)
            case Loops():
                return LoopStep(flow, node, states)
        return KeyedChain(flow, self.group.keyed, states, self.batch.number)

    def _is_mine(self, bucket: int) -> bool:
        return self._owners[bucket] == self.partition - self.group.first

    def rows(self) -> Iterator[wire.ShuffleRow]:
        for edge, part in self._slices:
            side = self.group.sides[edge]
            began = self._clock.now()
            try:
                outputs = self._step.run(part, side)
            except Exception:
                self.failed_at = (part.sort_key, self._step.failed_at)
                raise
            self._busy_seconds += self._clock.now() - began
            yield from self._out(outputs)
        if self.batch.closes:
            yield from self._out(self._step.close())
        else:
            self._step.keep()

    def _out(self, outputs: Mapping[str, wire.Slice]) -> Iterator[wire.ShuffleRow]:
        for exit in self.group.exits:
            if exit.outlet in outputs:
                out = outputs[exit.outlet]
                if exit.writes is not None:
                    out = self._written(self._writers[exit.edge], out)
                yield from self.sent(exit, out)

    def _written(self, writer: LineWriter, part: wire.Slice) -> wire.Slice:
        try:
            return writer.written(part)
        except Exception:
            self.failed_at = (part.sort_key, writer.failed_at)
            raise

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        rejected = {writer.operator: (writer.failed, 0, writer.failed, 0) for writer in self._writers.values()}
        return {**self._step.counts(), **rejected}

    def busy_seconds(self) -> dict[str, float]:
        shares = self._step.shares()
        return {
            **{name: self._busy_seconds * share for name, share in shares.items()},
            **{writer.operator: writer.busy_seconds for writer in self._writers.values()},
        }


class LinesRun(GroupRun):
    """Puts written lines in order."""

    def __init__(self, about: About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        assert self.group.gathers is not None
        self._operator = self.group.gathers.name
        self._slices = self.counted(slices)
        self._rows = 0

    def rows(self) -> Iterator[wire.ShuffleRow]:
        for _, part in self._slices:
            self._rows += len(part.values)
            self.stage(self._operator, part.sort_key, joined(part.values), len(part.values))
        yield from ()

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {self._operator: (self._rows, 0, 0, 0)}


class RelayRun(GroupRun):
    """Puts slices in order for keyed groups, which take them apart by keys of their own."""

    def __init__(self, about: About, slices: Iterator[tuple[int, wire.Slice]]) -> None:
        super().__init__(about)
        self._slices = self.counted(slices)

    def rows(self) -> Iterator[wire.ShuffleRow]:
        for edge, part in self._slices:
            yield from self.relayed(edge, part)
