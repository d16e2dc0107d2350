"""Checks on whole graphs, made before anything runs; each error says how to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import FlowError
from penstock.flow.nodes import Graph, Loops, Node, PortRef, Reads, Waits, Writes, connected


def sound_graph(flow: str, nodes: Mapping[str, Node]) -> Graph:
    """The nodes in an order in which each comes after what it reads, or a `FlowError`."""
    if not nodes:
        raise FlowError(f"flow {flow!r} is empty: begin with flow.read(…) and end with .write(…)")
    _check_connected(nodes.values())
    ordered = _in_order(flow, nodes)
    _check_sinks(flow, nodes.values())
    _check_dead_letters(nodes.values())
    _check_endless_joins(nodes)
    return Graph(flow, ordered)


def _check_connected(nodes: Iterable[Node]) -> None:
    for node in nodes:
        for what, refs in (("input", node.inputs), ("control", node.controls)):
            if None in refs:
                port = refs.index(None)
                raise FlowError(
                    f"operator {node.name!r}: {what} {port} is not connected; give add() a stream for it, or "
                    f"flow.connect(stream, {node.name!r}, {what}={port}) ({node.where})"
                )


def _in_order(flow: str, nodes: Mapping[str, Node]) -> tuple[Node, ...]:
    """Depth first, so that what belongs together stays together; an input edge back is a cycle."""
    ordered: list[Node] = []
    finished: set[str] = set()
    for root in nodes.values():
        path: list[str] = []
        on_path: set[str] = set()
        todo = [(root.name, False)]
        while todo:
            name, is_left = todo.pop()
            if is_left:
                path.pop()
                on_path.discard(name)
                finished.add(name)
                ordered.append(nodes[name])
                continue
            if name in on_path:
                cycle = " -> ".join([*reversed(path[path.index(name) :]), path[-1]])
                raise FlowError(
                    f"flow {flow!r} has a cycle: {cycle}. Only a control input may lead back: give the operator "
                    "`controls = 1` and connect the stream with flow.connect(…, control=0)"
                )
            if name in finished:
                continue
            path.append(name)
            on_path.add(name)
            todo.append((name, True))
            todo += [(ref.node, False) for ref in reversed(connected(nodes[name].inputs))]
    return tuple(ordered)


def _check_sinks(flow: str, nodes: Iterable[Node]) -> None:
    def ends_here(node: Node) -> bool:
        return isinstance(node.kind, Writes) or (isinstance(node.kind, Loops) and node.outputs == 0)

    if not any(map(ends_here, nodes)):
        last = list(nodes)[-1].name
        raise FlowError(f"flow {flow!r} has no sink, so nothing would come of it: end {last!r} with .write(ps.sinks.…)")
    seen: dict[object, str] = {}
    for node in nodes:
        if not isinstance(node.kind, Writes) or (place := node.kind.sink.place) is None:
            continue
        if (other := seen.setdefault(place, node.name)) != node.name:
            raise FlowError(
                f"flow {flow!r}: sinks {other!r} and {node.name!r} both write to {node.kind.sink.describe()!r}; give "
                "each a place of its own, or merge their streams before one sink"
            )


def _check_dead_letters(nodes: Iterable[Node]) -> None:
    read = {ref for node in nodes for ref in node.upstream}
    for node in nodes:
        if node.has_dead_letters and PortRef(node.name, node.outputs) not in read:
            raise FlowError(
                f"operator {node.name!r} sends dead letters that no operator reads: write them somewhere with "
                f"flow.dead_letters({node.name!r}).write(…), or say 'skip' to lose them ({node.where})"
            )


def _check_endless_joins(nodes: Mapping[str, Node]) -> None:
    for node in nodes.values():
        if not isinstance(node.kind, Waits) or node.kind.lateness is not None:
            continue
        seen: set[str] = set()
        todo = [ref.node for ref in connected(node.inputs)]
        while todo:
            above = nodes[todo.pop()]
            if above.name in seen:
                continue
            seen.add(above.name)
            todo += [ref.node for ref in connected(above.inputs)]
            if isinstance(above.kind, Reads) and not above.kind.source.bounded:
                raise FlowError(
                    f"operator {node.name!r}: {above.name!r} is endless, so this join would keep every tuple for ever; "
                    f"say with lateness= how far out of order a tuple may be ({node.where})"
                )
