"""What was admitted, read, sent, received and staged in a batch adds up, or there is no manifest.

A task compares what crosses its borders with what its operators counted; the driver adds up the tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.engines.durable.staging import Staged
from penstock.engines.spark.admission import Admitted
from penstock.engines.spark.stages import Descriptor, Exit, GroupTask, Sums, TaskReport, outlet_of
from penstock.engines.spark.wire import Slice
from penstock.errors import ConservationError
from penstock.flow.nodes import Node, Reads, Waits, Writes
from penstock.plan.groups import Plan
from penstock.state.manifests import Outputs

Counts = Mapping[str, tuple[int, int, int, int]]
"""By operator: received, emitted, failed, late."""


def not_published(batch: int) -> str:
    return f"Nothing of batch {batch} was published"


def check_end(flow: str, batch: int, part: Descriptor, reached: int | None) -> None:
    """The reader of a part has come to its end; one that has given nothing at all has seen only what is no tuple."""
    if part.end is not None and reached is not None and reached != part.end:
        raise ConservationError.of(
            flow,
            f"source {part.operator!r} was to read {part.partition} from {part.start:,} to {part.end:,}, and ended at "
            f"{reached:,}",
            not_published(batch),
        )


def check_positions(flow: str, batch: int, edge: int, part: Slice) -> None:
    """Tuples are put in order by their positions: there must be one for each."""
    if part.positions is not None and len(part.positions[0]) != len(part.values):
        raise ConservationError.of(
            flow,
            f"{len(part.values):,} tuples were to be sent on edge {edge} and {len(part.positions[0]):,} were expected",
            not_published(batch),
        )


def check_task(flow: str, batch: int, group: GroupTask, sums: Sums, counts: Counts, staged: Sequence[Staged]) -> None:
    """What came to a task was worked on, and what came of it was sent on or staged."""

    def same(what: str, here: int, did: str, there: int) -> None:
        if here != there:
            raise ConservationError.of(flow, f"{what} {here:,} tuples, {did} {there:,}", not_published(batch))

    for source, (_, read) in sums.read.items():
        unreadable = counts[source][2] if source in counts else 0
        for exit in group.straight[source]:
            same(f"source {source!r} read", read - unreadable, "of which a task sent on", sums.sent.get(exit.edge, 0))
        if source in counts:
            same(f"source {source!r} read", read, "and its operator counted", counts[source][0])
    for edge, exits in group.relays.items():
        for exit in exits:
            came, went = sums.received.get(edge, 0), sums.sent.get(exit.edge, 0)
            same(f"a task that puts edge {edge} in order received", came, "and sent on", went)
    for edge, inlet in group.inlets.items():
        if inlet in counts:
            same(f"a task received on edge {edge}", sums.received.get(edge, 0), "and let in", counts[inlet][0])
    for exit in group.exits:
        if exit.outlet in counts and not group.keyed:
            went = sums.sent.get(exit.edge, 0)
            same(f"{exit.outlet!r} received", counts[exit.outlet][0], f"and the task sent on edge {exit.edge}", went)
    if group.keyed:
        node = group.keyed[0]
        came = sum(sums.received.values())
        same(f"a task of {node.name!r} received", came, "and the operator counted", counts[node.name][0])
        for exit in group.exits:
            if (made := _made_for(exit, group.keyed, counts)) is not None:
                went = sums.sent.get(exit.edge, 0)
                same(f"{node.name!r} made for edge {exit.edge}", made, "and the task sent on", went)
    if group.gathers is not None:
        name = group.gathers.name
        same(
            f"sink {name!r} received", sum(sums.received.values()), "and staged", sum(one.output.rows for one in staged)
        )


def _made_for(exit: Exit, nodes: Sequence[Node], counts: Counts) -> int | None:
    """How many tuples a keyed group has counted for an edge; `None` where it counts several outputs together."""
    for node in nodes:
        _, emitted, failed, late = counts[node.name]
        if exit.outlet == outlet_of(node, node.outputs):
            is_told = isinstance(node.kind, Waits) and node.kind.on_late == "dead-letter"
            return (failed if node.on_error == "dead-letter" else 0) + (late if is_told else 0)
    if nodes[-1].outputs != 1:
        return None
    emitted = counts[nodes[-1].name][1]
    return emitted - (counts[exit.writes.name][2] if exit.writes is not None else 0)


def check_batch(plan: Plan, admitted: Admitted, reports: Sequence[TaskReport], outputs: Outputs) -> None:
    """Everything that tasks of a batch have counted, added up."""
    parts, rows, sent, received = Counter[str](), Counter[str](), Counter[int](), Counter[int]()
    for report in reports:
        for source, (count, read) in report.sums.read.items():
            parts[source] += count
            rows[source] += read
        sent.update(report.sums.sent)
        received.update(report.sums.received)

    def wrong(difference: str) -> ConservationError:
        return ConservationError.of(plan.graph.flow, difference, not_published(admitted.number))

    for node in plan.graph.sources:
        mine = [part for task in admitted.tasks for part in task if part.operator == node.name]
        if len(mine) != parts[node.name]:
            raise wrong(f"{len(mine):,} parts of source {node.name!r} were admitted and {parts[node.name]:,} were read")
        expected = _rows_of(node, mine)
        if expected is not None and expected != rows[node.name]:
            raise wrong(f"{expected:,} tuples of source {node.name!r} were admitted and {rows[node.name]:,} were read")
    for edge in plan.edges:
        if sent[edge.number] != received[edge.number]:
            readers = ", ".join(dict.fromkeys(repr(reader.node) for reader in edge.readers)) or "those who put in order"
            raise wrong(
                f"{edge.source.node!r} sent {sent[edge.number]:,} tuples to {readers} (edge {edge.number}), where "
                f"{received[edge.number]:,} arrived"
            )
    for node in plan.graph.nodes:
        if isinstance(node.kind, Writes):
            counts = [report.counts[node.name] for report in reports if node.name in report.counts]
            taken = sum(came - failed for came, _, failed, _ in counts)
            staged = sum(output.rows for output in outputs.get(node.name, ()))
            if taken != staged:
                raise wrong(f"sink {node.name!r} took in {taken:,} tuples and {staged:,} are to be published")


def _rows_of(node: Node, parts: Sequence[Descriptor]) -> int | None:
    """How many tuples parts hold, where that is known before they are read."""
    counts_rows = not isinstance(node.kind, Reads) or node.kind.source.counts_rows
    ends = [part.end for part in parts if part.end is not None and (counts_rows or part.spool is not None)]
    return sum(ends) - sum(part.start for part in parts) if len(ends) == len(parts) else None
