"""Which operators can have several replicas, and how their teams are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import FlowError
from penstock.flow.nodes import Applies, Key, Loops, Node, Remembers, Waits
from penstock.operators.functions import Form
from penstock.runtime.cells import Cell
from penstock.runtime.changing import Changing
from penstock.runtime.companion_replica import CompanionReplica
from penstock.runtime.companions import Program
from penstock.runtime.forgetting_team import ForgettingTeam
from penstock.runtime.keyed_team import KeyedFunctionTeam, KeyedLoopTeam, KeyedReplica
from penstock.runtime.ports import Port
from penstock.runtime.replicas import BatchReplica, ChainReplica, LoopReplica, Replica
from penstock.runtime.team import LoopTeam, Team
from penstock.runtime.timed_team import TimedTeam

if TYPE_CHECKING:
    from penstock.runtime.run import Run


def why_alone(node: Node) -> str | None:
    """Why an operator can't have replicas; `None` if it can."""
    match node.kind:
        case Applies(form=Form.ASYNC):
            return "it awaits several tuples at once by itself: see its concurrency="
        case Applies(form=Form.INSPECT):
            return "it is called for its effects, which come in the order of tuples"
        case Applies():
            return None
        case Remembers(key=None):
            return "it sees all tuples in one sequence"
        case Waits(on_late=on_late) if callable(on_late):
            return "its on_late= is called for its effects, which come in the order of tuples"
        case Waits(keys=keys):
            return None if len(keys) == 1 else "it reads two streams"
        case Remembers():
            return None
        case Loops(operator=operator) if operator.kind != "sequential":
            if len(node.inputs) != 1 or node.controls:
                return "it does not read just one stream"
            if operator.kind == "stateless" and operator.has_a_say_at_the_ends():
                return "its start() and finish() are called once"
            return None
    return "it is neither a stateless nor a keyed operator"


def rescale(run: Run, name: str, replicas: int) -> None:
    """Change the number of an operator's replicas, from its next chunk on."""
    with run.changing:
        cell = run.cell_of(name)
        node = next(node for node in cell.nodes if node.name == name)
        if isinstance(cell, Team):
            cell.set_replicas(replicas)
            return
        if (reason := why_alone(node)) is not None:
            raise FlowError(f"flow {run.flow!r}: {name!r} ({node.where}) has one replica: {reason}")
        assert isinstance(cell, Changing)
        if replicas > 1:
            cell.succeed([node], lambda old: _successor(run, old, replicas))
        else:
            cell.stay(node)


def scalable(cell: Cell) -> list[list[Node]]:
    """The operators of a cell in groups that can have replicas together: functions without state, or one operator."""
    groups: list[list[Node]] = []
    for node in cell.nodes:
        is_free = isinstance(node.kind, Applies) and why_alone(node) is None
        before = groups[-1][-1] if groups else None
        if is_free and before is not None and isinstance(before.kind, Applies) and why_alone(before) is None:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def rescale_group(run: Run, nodes: Sequence[Node], replicas: int, guests: int = 0) -> None:
    """The same for operators that stay together; with places for helpers, where they are to have some."""
    with run.changing:
        cell = run.cell_of(nodes[0].name)
        if isinstance(cell, Team):
            cell.most_guests = guests
            if cell.wanted != replicas:
                cell.set_replicas(replicas)
            return
        assert isinstance(cell, Changing)
        if replicas > 1 or guests:
            cell.succeed(nodes, lambda old: _successor(run, old, replicas, guests))
        else:
            cell.stay(nodes[0])


def _successor(run: Run, old: Changing, replicas: int, guests: int = 0) -> Team:
    (port,) = old.inputs
    team = make_team(run, old.place, old.nodes, port, replicas)
    team.most_guests = guests
    team.earlier = reports = old.reports()
    if received := reports[team.name].received:
        team.learn(sum(report.busy_seconds for report in reports.values()) / received)
    team.restore(old.snapshots())
    return team


def make_team(run: Run, place: float, nodes: Sequence[Node], port: Port, replicas: int) -> Team:
    """A team that will have so many replicas when it is opened; several nodes are functions without state."""
    team = _team(run, place, nodes, port)
    team.wanted = replicas
    return team


def _team(run: Run, place: float, nodes: Sequence[Node], port: Port) -> Team:
    reorder, worklist = run.settings.reorder, run.settings.worklist

    def replica_of(kind: type[BatchReplica | ChainReplica | KeyedReplica]) -> Callable[[], Replica]:
        return partial(kind, run, place, nodes, port)

    node = nodes[0]
    match node.kind:
        case Remembers(key=Key() as key, ttl=ttl) if ttl is not None:
            return ForgettingTeam(run, place, node, port, replica_of(KeyedReplica), reorder, worklist, key)
        case Remembers(key=Key() as key):
            return KeyedFunctionTeam(run, place, node, port, replica_of(KeyedReplica), reorder, worklist, key)
        case Waits(keys=(key,)):
            return TimedTeam(run, place, node, port, replica_of(KeyedReplica), reorder, worklist, key)
        case Loops(operator=operator, keys=keys) if operator.kind == "keyed":
            return KeyedLoopTeam(run, place, node, port, replica_of(KeyedReplica), reorder, worklist, keys[0])
        case Loops():
            return LoopTeam(run, place, nodes, port, partial(LoopReplica, run, place, node, [port]), reorder)
        case Applies() if run.settings.has_companions:
            made = partial(CompanionReplica, run, place, nodes, port, Program(run.flow, nodes))
            return Team(run, place, nodes, port, made, reorder)
        case Applies(form=Form.BATCH | Form.ARROW):
            return Team(run, place, nodes, port, replica_of(BatchReplica), reorder)
    return Team(run, place, nodes, port, replica_of(ChainReplica), reorder)
