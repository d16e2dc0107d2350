"""From a graph to cells: which operators are fused, and which ports connect them."""

from __future__ import annotations

from penstock.flow.nodes import Applies, Graph, Loops, Node, PortRef, Reads, Waits, Writes
from penstock.operators.functions import Form
from penstock.runtime.cells.cell import Cell
from penstock.runtime.cells.functions import AsyncCell, ChainCell, FunctionCell
from penstock.runtime.cells.loops import LoopCell
from penstock.runtime.cells.making import chain_kernel, function_kernel
from penstock.runtime.cells.sinks import SinkCell
from penstock.runtime.cells.sources import AsyncSourceCell, InletCell, SourceCell
from penstock.runtime.cells.timed import TimedCell
from penstock.runtime.chain import MOST_EXPANDING, can_be_chained, is_expanding
from penstock.runtime.inlets import Inlet
from penstock.runtime.ports import Port
from penstock.runtime.run import Run
from penstock.runtime.running.host import Host
from penstock.runtime.running.settings import Settings
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.teams.making import make_team, why_alone


def build_run(graph: Graph, settings: Settings, host: Host) -> Run:
    """A run of a graph on what its engine and driver provide, with all its cells."""
    return Run(graph, settings, host, build_cells)


def build_cells(graph: Graph, run: Surroundings) -> list[Cell]:
    """The cells of a graph, each after what it reads, connected by ports."""
    groups = fused_groups(graph, run.settings)
    cells: list[Cell] = []
    cell_of: dict[str, Cell] = {}
    ports: dict[tuple[str, int], Port] = {}
    for place, group in enumerate(groups):
        first = group[0]
        inputs = [
            run.settings.port(_port_name(first, number), run.settings.queue_size)
            for number in range(len(first.inputs) + len(first.controls))
        ]
        cell = _cell(run, place, group, inputs)
        cells.append(cell)
        for node in group:
            cell_of[node.name] = cell
        ports.update({(first.name, number): port for number, port in enumerate(inputs)})
    for cell in cells:
        depth = 1 + max((cell_of[ref.node].depth for ref in cell.nodes[0].inputs if ref is not None), default=-1.0)
        cell.connect((_targets(graph, ports, ref) for ref in _output_refs(cell)), depth)
        if cell.is_source:
            for targets in cell.outputs:
                for port in targets:
                    port.note_taking(run.clock.now)
    return cells


def fused_groups(graph: Graph, settings: Settings) -> list[list[Node]]:
    """Consecutive function operators that nothing else reads in between, together; the others alone.

    So are those with replicas of their own.
    """
    if not settings.fuses:
        return [[node] for node in graph.nodes]
    groups: list[list[Node]] = []
    group_of: dict[str, list[Node]] = {}
    for node in graph.nodes:
        group = _group_before(graph, node, group_of, settings)
        if group is None:
            group = []
            groups.append(group)
        group.append(node)
        group_of[node.name] = group
    # A group stands where its last node stands, so that it comes after everything that it reads.
    rank = {node.name: place for place, node in enumerate(graph.nodes)}
    return sorted(groups, key=lambda group: rank[group[0].name])


def _group_before(graph: Graph, node: Node, group_of: dict[str, list[Node]], settings: Settings) -> list[Node] | None:
    if not can_be_chained(node) or len(node.inputs) != 1 or node.inputs[0] is None:
        return None
    ref = node.inputs[0]
    group = group_of[ref.node]
    before = group[-1]
    fits = (
        before.name == ref.node
        and before.outputs == 1
        and ref.port == 0
        and can_be_chained(before)
        and len(graph.readers[ref]) == 1
        and _share_replicas(before, node, settings)
        and sum(map(is_expanding, [*group, node])) <= MOST_EXPANDING
    )
    return group if fits else None


def _share_replicas(before: Node, node: Node, settings: Settings) -> bool:
    """Whether two operators can be one loop in each of their replicas: those with keys would have different ones."""
    replicas = replicas_of(before, settings)
    if replicas != replicas_of(node, settings) or before.ordered != node.ordered:
        return False
    return replicas == 1 or (isinstance(before.kind, Applies) and isinstance(node.kind, Applies))


def replicas_of(node: Node, settings: Settings) -> int:
    """How many replicas an operator begins with."""
    if not _can_have_replicas(node, settings):
        return 1
    is_stateless = isinstance(node.kind, Applies)
    return node.replicas or (settings.stateless_replicas if is_stateless else 0) or settings.replicas


def _can_have_replicas(node: Node, settings: Settings) -> bool:
    # Arrivals are recorded of one loop, and repeated by one.
    is_recorded = settings.record_arrivals and isinstance(node.kind, Loops)
    return settings.has_replicas and not is_recorded and why_alone(node) is None


def _cell(run: Surroundings, place: int, group: list[Node], ports: list[Port]) -> Cell:
    node = group[0]
    replicas = replicas_of(node, run.settings)
    # A loop can't become another cell's on the way, so one that may get replicas is a team from the start.
    if replicas > 1 or (isinstance(node.kind, Loops) and _can_have_replicas(node, run.settings)):
        return make_team(run, place, group, ports[0], replicas)
    match node.kind:
        case Reads(source=Inlet()):
            return InletCell(run, place, node)
        case Reads():
            awaits = node.kind.source.awaits and run.settings.has_event_loop
            return (AsyncSourceCell if awaits else SourceCell)(run, place, node)
        case Writes():
            return SinkCell(run, place, node, ports[0])
        case Waits():
            return TimedCell(run, place, node, ports)
        case Loops():
            return LoopCell(run, place, node, ports)
        case Applies(form=Form.ASYNC):
            return AsyncCell(run, place, node, ports[0])
        case Applies(form=Form.BATCH | Form.ARROW):
            return FunctionCell(run, function_kernel(run, place, group), ports[0])
    return ChainCell(run, chain_kernel(run, place, group), ports[0])


def _output_refs(cell: Cell) -> list[PortRef]:
    """The outputs of the last node, then the dead letters of every node."""
    last = cell.nodes[-1]
    outputs = [PortRef(last.name, port) for port in range(last.outputs)]
    return outputs + [PortRef(node.name, node.outputs) for node in cell.nodes]


def _targets(graph: Graph, ports: dict[tuple[str, int], Port], ref: PortRef) -> list[Port]:
    return [ports[reader.node, reader.port] for reader in graph.readers.get(ref, ())]


def _port_name(node: Node, number: int) -> str:
    kind = "input" if number < len(node.inputs) else "control"
    place = number if number < len(node.inputs) else number - len(node.inputs)
    return f"{kind} {place} of {node.name!r}" if len(node.inputs) + len(node.controls) > 1 else f"{node.name!r}"
