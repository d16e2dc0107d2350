"""Pictures and words for a graph: `explain`, Mermaid, and the SVG that notebooks show."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from penstock.flow.nodes import Applies, Graph, Kind, Loops, Node, Reads, Remembers, Waits, Writes, connected

_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 150, 40, 50, 20, 10


def describe(kind: Kind) -> str:
    """What a node is, in a few words."""
    match kind:
        case Reads():
            return f"source: {kind.source.describe()}"
        case Applies():
            return f"stateless: {kind.form.value}"
        case Remembers():
            return "sequential: one state" if kind.key is None else f"keyed: a state per {_key_words(kind)}"
        case Waits():
            return f"keyed, event time: {type(kind.logic).__name__}"
        case Loops():
            return f"driver loop, {kind.operator.kind}: {type(kind.operator).__name__}"
        case Writes():
            return f"sink ({kind.sink.delivery.value}): {kind.sink.describe()}"


def _key_words(kind: Remembers) -> str:
    return ", ".join(kind.key.columns) if kind.key is not None and kind.key.columns else "key"


def explain(graph: Graph) -> str:
    """One line for each operator, in running order, with what it reads."""
    width = max(len(node.name) for node in graph.nodes)
    lines = [f"flow {graph.flow}: {len(graph.nodes)} operators"]
    for node in graph.nodes:
        reads = ", ".join(ref.node + (f"[{ref.port}]" if ref.port else "") for ref in connected(node.inputs))
        controls = ", ".join(ref.node for ref in connected(node.controls))
        details = [
            describe(node.kind),
            f"reads {reads}" if reads else "",
            f"controlled by {controls}" if controls else "",
            f"{node.replicas} replica{'' if node.replicas == 1 else 's'}" if node.replicas else "",
            "" if node.ordered else "unordered",
            "" if node.on_error == "fail" else f"on error: {node.on_error}",
        ]
        lines.append(f"  {node.name:<{width}}  {'; '.join(detail for detail in details if detail)}")
    return "\n".join(lines)


def to_mermaid(flow: str, nodes: Iterable[Node]) -> str:
    """A Mermaid flowchart; sources and sinks are rounded, control inputs dotted."""
    nodes = list(nodes)
    ids = {node.name: f"n{number}" for number, node in enumerate(nodes)}
    lines = ["---", f"title: {flow}", "---", "flowchart LR"]
    for node in nodes:
        left, right = ("([", "])") if isinstance(node.kind, Reads | Writes) else ("[", "]")
        lines.append(f'    {ids[node.name]}{left}"{escape(node.name)}"{right}')
    for node in nodes:
        lines += [f"    {ids[ref.node]} --> {ids[node.name]}" for ref in connected(node.inputs)]
        lines += [f"    {ids[ref.node]} -.-> {ids[node.name]}" for ref in connected(node.controls)]
    return "\n".join(lines)


def to_svg(nodes: Iterable[Node]) -> str:
    """Boxes in columns by their distance from the sources."""
    nodes = list(nodes)
    corners = _corners(nodes)
    width = max((x for x, _ in corners.values()), default=0) + _BOX_WIDTH + _MARGIN
    height = max((y for _, y in corners.values()), default=0) + _BOX_HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="13"><defs><marker id="penstock-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#567"/></marker></defs>'
    ]
    for node in nodes:
        x, y = corners[node.name]
        for ref in node.upstream:
            from_x, from_y = corners[ref.node]
            start, end = (from_x + _BOX_WIDTH, from_y + _BOX_HEIGHT // 2), (x, y + _BOX_HEIGHT // 2)
            bend = (start[0] + end[0]) // 2
            dashes = "" if ref in node.inputs else ' stroke-dasharray="4 3"'
            parts.append(
                f'<path d="M{start[0]} {start[1]}C{bend} {start[1]} {bend} {end[1]} {end[0]} {end[1]}" fill="none" '
                f'stroke="#567"{dashes} marker-end="url(#penstock-arrow)"/>'
            )
    for node in nodes:
        x, y = corners[node.name]
        radius = _BOX_HEIGHT // 2 if isinstance(node.kind, Reads | Writes) else 6
        label = node.name if len(node.name) <= 20 else node.name[:19] + "…"
        parts.append(
            f'<g><title>{escape(describe(node.kind))}</title><rect x="{x}" y="{y}" width="{_BOX_WIDTH}" '
            f'height="{_BOX_HEIGHT}" rx="{radius}" fill="#e8f1f8" stroke="#567"/><text x="{x + _BOX_WIDTH // 2}" '
            f'y="{y + _BOX_HEIGHT // 2 + 5}" text-anchor="middle" fill="#123">{escape(label)}</text></g>'
        )
    return "".join(parts) + "</svg>"


def _corners(nodes: list[Node]) -> dict[str, tuple[int, int]]:
    column: dict[str, int] = {}
    filled: dict[int, int] = {}
    corners = {}
    for node in nodes:  # most nodes are added after what they read
        column[node.name] = max((column.get(ref.node, -1) + 1 for ref in connected(node.inputs)), default=0)
        row = filled.get(column[node.name], 0)
        filled[column[node.name]] = row + 1
        corners[node.name] = (
            _MARGIN + column[node.name] * (_BOX_WIDTH + _GAP_X),
            _MARGIN + row * (_BOX_HEIGHT + _GAP_Y),
        )
    return corners
