"""What goes in comes out: the only code that adds up what cells and ports have counted, when nothing is under way.

Everything is counted twice, by the cell that gives and by the cell that takes, chunk by chunk. So a tuple that is lost
between the two, or comes twice, shows as a difference, and the run fails before any user relies on its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import ConservationError
from penstock.flow.nodes import Applies, Loops, Node, Remembers, Waits
from penstock.observe.report import OperatorReport
from penstock.operators.functions import Form
from penstock.runtime.cells.sinks import SinkCell
from penstock.runtime.cells.sources import SourceCell

if TYPE_CHECKING:
    from penstock.runtime.cells.cell import Cell
    from penstock.runtime.ports import Port
    from penstock.runtime.running.registry import Registry

_ONE_FOR_ONE = frozenset({Form.MAP, Form.INSPECT, Form.BRANCH, Form.ASYNC})


def check_cells(registry: Registry, consequence: str) -> None:
    """`ConservationError` where something was lost or came twice; no worker works, and all that was taken is out."""
    for cell in registry.cells:
        for difference in _differences(cell):
            raise ConservationError.of(registry.flow, difference, consequence)


def _differences(cell: Cell) -> Iterator[str]:
    for port in cell.inputs:
        yield from _in_port(port, cell)
    if cell.is_cut_short:
        return  # what it had taken, and what others had done for it, goes nowhere
    reports = cell.figures.reports()
    first, last = reports[cell.nodes[0].name], reports[cell.nodes[-1].name]
    yield from _taken(cell, first.received)
    yield from _given(cell, last.emitted)
    for node, report in zip(cell.nodes, (reports[node.name] for node in cell.nodes), strict=True):
        yield from _in_node(node, report)
    for before, after in zip(cell.nodes, cell.nodes[1:], strict=False):
        emitted, received = reports[before.name].emitted, reports[after.name].received
        if emitted != received:
            yield f"{before.name!r} emitted {emitted:,} tuples and {after.name!r}, fused with it, received {received:,}"
    for number, node in enumerate(cell.nodes):
        yield from _dead_letters(node, reports[node.name], cell.outputs[cell.nodes[-1].outputs + number])


def _in_port(port: Port, reader: Cell) -> Iterator[str]:
    came = port.total_given + port.total_restored
    went = port.total_taken + port.total_dropped
    held = port.held()
    if came != went + held:
        writer = f"{port.writer.name!r} gave" if port.total_given else "there were"
        yield f"{writer} {came:,} tuples for {port.name}, which has {went:,} behind it and holds {held:,}"
    has_returned = reader.is_complete and isinstance(reader.nodes[0].kind, Loops)
    if port.total_dropped and not reader.is_cut_short and not has_returned:
        yield f"{port.total_dropped:,} tuples for {port.name} were dropped, which was not done with them"


def _taken(cell: Cell, received: int) -> Iterator[str]:
    if isinstance(cell, SourceCell):
        passed = cell.rows_passed()
        if passed is not None and passed != received:
            yield (
                f"source {cell.name!r} went on by {passed:,} tuples and read {received:,} (its counts_rows = True says "
                "that its positions count tuples)"
            )
    elif cell.inputs:
        taken = sum(port.total_taken for port in cell.inputs)
        if taken != received:
            yield f"{cell.name!r} took {taken:,} tuples from its inputs and received {received:,}"
    if isinstance(cell, SinkCell):
        failed = cell.tally.first.failed
        if received != cell.written + failed:
            yield f"sink {cell.name!r} received {received:,} tuples, wrote {cell.written:,} and failed on {failed:,}"


def _given(cell: Cell, emitted: int) -> Iterator[str]:
    """By output port; what a port without a reader was given is not counted."""
    outputs = cell.outputs[: cell.nodes[-1].outputs]
    given = sum(targets[0].total_given for targets in outputs if targets)
    is_whole = all(outputs)
    if outputs and (given > emitted or (is_whole and given != emitted)):
        yield f"{cell.nodes[-1].name!r} emitted {emitted:,} tuples and its readers were given {given:,}"


def _in_node(node: Node, report: OperatorReport) -> Iterator[str]:
    kind, accounted = node.kind, report.emitted + report.failed
    is_exact = (isinstance(kind, Applies) and kind.form in _ONE_FOR_ONE) or (
        isinstance(kind, Remembers) and not kind.many
    )
    is_most = isinstance(kind, Applies) and kind.form is Form.FILTER
    if (is_exact and accounted != report.received) or (is_most and accounted > report.received):
        yield (
            f"{node.name!r} received {report.received:,} tuples, emitted {report.emitted:,} and failed on "
            f"{report.failed:,}"
        )


def _dead_letters(node: Node, report: OperatorReport, readers: Sequence[Port]) -> Iterator[str]:
    if not readers:
        return
    letters = report.failed if node.on_error == "dead-letter" else 0
    if isinstance(node.kind, Waits) and node.kind.on_late == "dead-letter":
        letters += report.late
    given = readers[0].total_given
    if letters != given:
        yield f"{node.name!r} has {letters:,} dead letters and their readers were given {given:,}"
