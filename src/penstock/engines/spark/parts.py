"""From a plan to what tasks are told: each group's operators between inlets and outlets, and where its edges lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.connectors.files.encoders import LineEncoder
from penstock.connectors.files.writers import FileSink
from penstock.connectors.source import Source
from penstock.engines.durable.staging import stage_of
from penstock.engines.spark.marks import Marker, key_of, marker_of
from penstock.engines.spark.pickling import dumps
from penstock.engines.spark.stages import Exit, GroupTask, outlet_of
from penstock.flow.nodes import Graph, Key, Kind, Node, PortRef, Reads, Writes
from penstock.plan.groups import Edge, Group, Plan, Spread, needs_marks
from penstock.runtime.inlets import Inlet, Outlet


def first_partitions(plan: Plan, tasks: Mapping[int, int]) -> dict[int, int]:
    """Where each group's partitions begin in its level."""
    first: dict[int, int] = {}
    for level in plan.levels:
        reached = 0
        for group in level:
            first[group.number] = reached
            reached += tasks[group.number]
    return first


def group_task(plan: Plan, group: Group, tasks: Mapping[int, int], first: Mapping[int, int]) -> GroupTask:
    """What the tasks of one group are told."""
    is_keyed = group.spread is Spread.KEYS
    exits = {edge: _exit(plan, edge, is_keyed, tasks, first) for edge in plan.out_of(group)}
    straight = [edge for edge in exits if _is_straight(plan, edge)]
    relayed = [edge for edge in exits if edge.source.node not in {node.name for node in group.nodes}]
    gathers = _written_before(plan, group)
    return GroupTask(
        group.number,
        group.spread,
        first[group.number],
        tasks[group.number],
        Graph(plan.graph.flow, () if is_keyed or gathers else _nodes(plan, group, [*straight, *relayed])),
        {edge.number: _inlet(edge) for edge in plan.into(group)},
        tuple(exit for edge, exit in exits.items() if edge not in straight and edge not in relayed),
        {node.name: _source(node) for node in group.nodes if not node.inputs},
        {
            node.name: tuple(exits[edge] for edge in straight if edge.source.node == node.name)
            for node in group.nodes
            if not node.inputs
        },
        {edge.number: tuple(exits[one] for one in relayed if one.source == edge.source) for edge in plan.into(group)},
        group.nodes if is_keyed else (),
        {edge.number: edge.readers[0].port for edge in plan.into(group)} if is_keyed else {},
        gathers,
    )


def _is_straight(plan: Plan, edge: Edge) -> bool:
    """Whether a stream is what a source reads, in columns."""
    kind = plan.node(edge.source.node).kind
    return isinstance(kind, Reads) and kind.source.has_columns and edge.source.port == 0


def _written_before(plan: Plan, group: Group) -> Node | None:
    """The sink that is all of a group, if its lines can be written by the tasks that send them."""
    edges = plan.into(group)
    if len(group.nodes) != 1 or plan.out_of(group):
        return None
    (node,) = group.nodes
    if not isinstance(node.kind, Writes) or node.on_error == "dead-letter":
        return None
    sink = node.kind.sink
    has_lines = isinstance(sink, FileSink) and isinstance(sink.encoder(), LineEncoder)
    come_by_key = bool(edges) and all(plan.groups[edge.start].spread is Spread.KEYS for edge in edges)
    return node if has_lines and come_by_key else None


def _exit(plan: Plan, edge: Edge, is_keyed: bool, tasks: Mapping[int, int], first: Mapping[int, int]) -> Exit:
    target = plan.groups[edge.target]
    key, marker = _by_key(target.nodes[0], edge.readers[0].port) if target.spread is Spread.KEYS else (None, None)
    if is_keyed:
        outlet = outlet_of(plan.node(edge.source.node), edge.source.port)
    else:
        outlet = "" if _is_straight(plan, edge) else _outlet(edge)
    ranks = [other.number for other in sorted(plan.into(target), key=_input_order)]
    return Exit(
        edge.number,
        outlet,
        target.level,
        edge.target,
        first[edge.target],
        tasks[edge.target],
        target.spread,
        ranks.index(edge.number),
        key,
        marker,
        _written_before(plan, target),
    )


def _by_key(node: Node, side: int) -> tuple[Key, Marker | None]:
    return key_of(node, side), marker_of(node, side) if needs_marks(node) else None


def _input_order(edge: Edge) -> tuple[int, int]:
    return min((reader.port for reader in edge.readers), default=0), edge.number


def _nodes(plan: Plan, group: Group, unseen: Sequence[Edge]) -> tuple[Node, ...]:
    """A group as a graph of its own; what leaves it unseen needs no outlet."""
    if not group.nodes:
        return ()
    where = group.nodes[0].where
    elsewhere = {edge.source: PortRef(_inlet(edge)) for edge in plan.into(group)}
    inlets = [Node(ref.node, Reads(Inlet()), (), (), 1, "fail", where) for ref in elsewhere.values()]
    outlets = [
        Node(_outlet(edge), Writes(Outlet()), (edge.source,), (), 0, "fail", where)
        for edge in plan.out_of(group)
        if edge not in unseen
    ]
    members = [
        replace(
            node,
            kind=_kind(node),
            inputs=tuple(elsewhere.get(ref, ref) if ref is not None else None for ref in node.inputs),
            controls=tuple(elsewhere.get(ref, ref) if ref is not None else None for ref in node.controls),
        )
        for node in group.nodes
    ]
    return (*inlets, *members, *outlets)


def _kind(node: Node) -> Kind:
    if not node.inputs:
        return Reads(Inlet())
    if isinstance(node.kind, Writes):
        return Writes(stage_of(node.kind.sink, dumps))
    return node.kind


def _source(node: Node) -> Source:
    """What a task needs to read this source by itself: nothing, where the driver spools it."""
    if isinstance(node.kind, Reads) and node.kind.source.reads_anywhere:
        return node.kind.source
    return Inlet()


def _inlet(edge: Edge) -> str:
    return f"« {edge.number}"


def _outlet(edge: Edge) -> str:
    return f"» {edge.number}"
