"""The only code that decides which operators run in the same task, and where tuples must change tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from penstock.flow.nodes import Applies, Graph, Loops, Node, PortRef, Reader, Reads, Remembers, Waits, Writes
from penstock.operators.functions import Form

_MOST_IN_LINE = 8  # each may be a loop in a loop, and Python nests no more than twenty blocks


class Spread(Enum):
    """How the tuples of a group are spread over its tasks."""

    SPLITS = "a task for each part of the input"
    KEYS = "by key"
    SLICES = "by slice, in order again"
    ONE = "one task"


@dataclass(frozen=True)
class Edge:
    """A stream that crosses from one group to another; a row of an exchange carries its number."""

    number: int
    source: PortRef
    readers: tuple[Reader, ...]
    """The inputs of the target group that read it; none where it is only put in order."""
    start: int
    """The group that it leaves."""
    target: int
    """The group that it enters."""


@dataclass(frozen=True)
class Group:
    """Operators that run in the same tasks, with nothing between them but the runtime's ports."""

    number: int
    level: int
    """How many exchanges a tuple has passed before it comes here, by the longest way."""
    spread: Spread
    nodes: tuple[Node, ...]
    """None where a stream is only put in order, for others."""


@dataclass(frozen=True)
class Plan:
    """The groups of a graph and the edges between them."""

    graph: Graph
    groups: tuple[Group, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def levels(self) -> list[list[Group]]:
        """The groups by level: each level is one stage of a job."""
        count = 1 + max(group.level for group in self.groups)
        return [[group for group in self.groups if group.level == level] for level in range(count)]

    def into(self, group: Group) -> list[Edge]:
        return [edge for edge in self.edges if edge.target == group.number]

    def out_of(self, group: Group) -> list[Edge]:
        return [edge for edge in self.edges if edge.start == group.number]

    def node(self, name: str) -> Node:
        return next(node for node in self.graph.nodes if node.name == name)

    def group_of(self, operator: str) -> Group:
        return next(group for group in self.groups if any(node.name == operator for node in group.nodes))

    def explain(self) -> str:
        """The stages, in words.

        >>> import penstock as ps
        >>> flow = ps.Flow("clicks")
        >>> clicks = flow.read(ps.sources.items([])).filter(bool, name="real")
        >>> clicks.key_by(len).count().write(ps.sinks.null())
        >>> print(make_plan(flow.validate()).explain())
        stage 1: items + real (a task for each part of the input)
        stage 2: count (by key)
        stage 3: null (by slice, in order again)
        """
        lines = [
            f"stage {group.level + 1}: {' + '.join(node.name for node in group.nodes) or '-'} ({group.spread.value})"
            for level in self.levels
            for group in level
        ]
        return "\n".join(lines)


def make_plan(graph: Graph) -> Plan:
    """Fuse everything between exchanges.

    Stateless operators run where their input is; behind a keyed operator, those that need more than one tuple at a
    time run where order has been restored. What sees all tuples in one sequence runs in one task.
    """
    return _Planner(graph).plan()


def runs_anywhere(node: Node) -> bool:
    """Whether any part of the stream can be processed by itself, in order."""
    match node.kind:
        case Applies() | Writes():
            return True
        case Loops(operator=operator):
            return operator.kind == "stateless" and len(node.inputs) == 1 and not operator.has_a_say_at_the_ends()
    return False


def runs_by_key(node: Node) -> bool:
    """Whether each key can be processed by itself, if it is told how far the watermark is."""
    match node.kind:
        case Remembers(key=key):
            return key is not None
        case Waits():
            return True
        case Loops(operator=operator):
            return operator.kind == "keyed" and not node.controls and bool(node.inputs)
    return False


def needs_marks(node: Node) -> bool:
    """Whether a key must be told how far the watermark is, or the latest time of all keys."""
    match node.kind:
        case Remembers(ttl=ttl, time=time):
            return ttl is not None and time is not None
        case Waits(lateness=lateness):
            return lateness is not None
    return False


def interleaves(node: Node) -> bool:
    """Whether what timers give has its place among what tuples give, so that a key must know where they fire."""
    match node.kind:
        case Waits(logic=logic):
            return logic.fires_outputs and (logic.sides > 1 or node.on_error == "dead-letter")
    return False


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._members: list[list[Node]] = []
        self._spreads: list[Spread] = []
        self._levels: list[int] = []
        self._group_of: dict[str, int] = {}
        self._gathers: dict[PortRef, int] = {}
        """The group in which the output of a keyed operator is in order again."""
        self._relayed: set[PortRef] = set()
        """What goes to another keyed operator by way of that group."""
        self._cycle = _between_controls(graph)

    def plan(self) -> Plan:
        cycle_group: int | None = None
        for node in self._graph.nodes:
            if node.name in self._cycle:
                if cycle_group is None:
                    cycle_group = self._new(Spread.ONE, self._inputs_of_cycle())
                self._join(node, cycle_group)
            else:
                self._assign(node)
        groups = tuple(
            Group(number, level, spread, tuple(members))
            for number, (level, spread, members) in enumerate(
                zip(self._levels, self._spreads, self._members, strict=True)
            )
        )
        return Plan(self._graph, groups, tuple(self._edges()))

    def _assign(self, node: Node) -> None:
        if isinstance(node.kind, Reads) or not node.inputs:
            self._join(node, self._new(Spread.SPLITS, []))
        elif runs_by_key(node):
            self._join(node, self._new(Spread.KEYS, [self._before_keys(node, ref) for ref in node.upstream]))
        elif runs_anywhere(node):
            (ref,) = node.upstream
            self._join(node, self._origin(ref) if self._goes_on_by_key(node, ref) else self._in_order(ref))
        else:
            self._join(node, self._one(node))

    def _one(self, node: Node) -> int:
        """The group of a narrow operator: that of what it reads, if that is narrow as well."""
        before = {self._origin(ref) for ref in node.upstream}
        if len(before) == 1 and self._spreads[min(before)] is Spread.ONE:
            return min(before)
        return self._new(Spread.ONE, sorted(before))

    def _before_keys(self, node: Node, ref: PortRef) -> int:
        """The group that sends a keyed operator its tuples: a watermark can be told only where slices are whole."""
        if not needs_marks(node) or self._spreads[self._origin(ref)] is not Spread.KEYS:
            return self._origin(ref)
        self._relayed.add(ref)
        return self._in_order(ref)

    def _goes_on_by_key(self, node: Node, ref: PortRef) -> bool:
        """Whether a function may run where its input is, though that is not in order there: it is the next in line."""
        members = self._members[self._origin(ref)]
        return (
            self._spreads[self._origin(ref)] is Spread.KEYS
            and isinstance(members[0].kind, Remembers)
            and ref == PortRef(members[-1].name)
            and len(self._graph.readers[ref]) == 1
            and len(members) < _MOST_IN_LINE
            and isinstance(node.kind, Applies)
            and node.kind.form in (Form.MAP, Form.FILTER, Form.FLAT_MAP, Form.INSPECT)
        )

    def _in_order(self, ref: PortRef) -> int:
        group = self._group_of[ref.node]
        if self._spreads[group] is not Spread.KEYS:
            return group
        if ref not in self._gathers:
            self._gathers[ref] = self._new(Spread.SLICES, [group])
        return self._gathers[ref]

    def _origin(self, ref: PortRef) -> int:
        return self._group_of[ref.node]

    def _new(self, spread: Spread, before: Sequence[int]) -> int:
        self._members.append([])
        self._spreads.append(spread)
        self._levels.append(1 + max((self._levels[group] for group in before), default=-1))
        return len(self._members) - 1

    def _join(self, node: Node, group: int) -> None:
        self._members[group].append(node)
        self._group_of[node.name] = group

    def _inputs_of_cycle(self) -> list[int]:
        return [
            self._group_of[ref.node]
            for node in self._graph.nodes
            if node.name in self._cycle
            for ref in node.upstream
            if ref.node in self._group_of
        ]

    def _edges(self) -> list[Edge]:
        found: list[Edge] = []
        for ref, readers in self._graph.readers.items():
            start = self._group_of[ref.node]
            targets = {self._group_of[reader.node] for reader in readers}
            if ref in self._relayed:
                targets.add(self._gathers[ref])
            for target in sorted(targets - {start}):
                there = tuple(reader for reader in readers if self._group_of[reader.node] == target)
                if self._spreads[target] is Spread.KEYS:
                    sender = self._before_keys(self._members[target][0], ref)
                    # One stream on two inputs is two edges: they are told apart by what came on which.
                    found += [Edge(len(found) + i, ref, (reader,), sender, target) for i, reader in enumerate(there)]
                else:
                    found.append(Edge(len(found), ref, there, start, target))
        return found


def _between_controls(graph: Graph) -> set[str]:
    """The operators of a flow with control inputs that are on a way between two of them: they run in one task."""
    controlled = {node.name for node in graph.nodes if any(node.controls)}
    if not controlled:
        return set()
    below = _reached(
        controlled,
        {
            node.name: [
                reader.node for ref, readers in graph.readers.items() if ref.node == node.name for reader in readers
            ]
            for node in graph.nodes
        },
    )
    above = _reached(controlled, {node.name: [ref.node for ref in node.upstream] for node in graph.nodes})
    sources = {node.name for node in graph.nodes if isinstance(node.kind, Reads)}
    return ((below & above) | controlled) - sources


def _reached(start: set[str], steps: dict[str, list[str]]) -> set[str]:
    found, left = set(start), list(start)
    while left:
        for name in steps[left.pop()]:
            if name not in found:
                found.add(name)
                left.append(name)
    return found
