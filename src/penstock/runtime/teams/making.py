"""Which operators can have several replicas, and how their teams are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.errors import FlowError
from penstock.flow.nodes import Applies, Key, Loops, Node, Remembers, Waits
from penstock.operators.functions import Form
from penstock.runtime.cells.changing import Changing
from penstock.runtime.cells.kernel import CompanionKernel
from penstock.runtime.cells.loop_kernel import LoopKernel
from penstock.runtime.cells.making import function_kernel
from penstock.runtime.companions import Program
from penstock.runtime.ports import Neighbour, Port
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.teams.forgetting import ForgettingWork
from penstock.runtime.teams.keyed import KeyedLoopWork, KeyedWork
from penstock.runtime.teams.team import Team
from penstock.runtime.teams.timed import TimedWork
from penstock.runtime.teams.work import ChunkWork, LoopWork, Shop, Work

_COMPANION_CHUNKS = 8  # the way there and back costs a third of a millisecond


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


def rescale(run: Surroundings, name: str, replicas: int) -> None:
    """Change the number of an operator's replicas, from its next chunk on."""
    with run.changing:
        cell = run.registry.cell_of(name)
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


def scalable(cell: Neighbour) -> list[list[Node]]:
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


def rescale_group(run: Surroundings, nodes: Sequence[Node], replicas: int, guests: int = 0) -> None:
    """The same for operators that stay together; with places for helpers, where they are to have some."""
    with run.changing:
        cell = run.registry.cell_of(nodes[0].name)
        if isinstance(cell, Team):
            cell.roster.allow_guests(guests)
            if cell.roster.wanted != replicas:
                cell.set_replicas(replicas)
            return
        assert isinstance(cell, Changing)
        if replicas > 1 or guests:
            cell.succeed(nodes, lambda old: _successor(run, old, replicas, guests))
        else:
            cell.stay(nodes[0])


def _successor(run: Surroundings, old: Changing, replicas: int, guests: int = 0) -> Team:
    (port,) = old.inputs
    team = make_team(run, old.place, old.nodes, port, replicas, guests)
    team.follow(old.tally.counts())
    team.restore(old.snapshots())
    return team


def make_team(
    run: Surroundings, place: float, nodes: Sequence[Node], port: Port, replicas: int, guests: int = 0
) -> Team:
    """A team that will have so many replicas when it is opened; several nodes are functions without state."""
    return Team(run, place, nodes, port, _work(run, place, nodes), replicas, guests)


def _work(run: Surroundings, place: float, nodes: Sequence[Node]) -> Callable[[Shop], Work]:
    node = nodes[0]
    match node.kind:
        case Remembers(key=Key() as key, ttl=ttl):
            return partial(KeyedWork if ttl is None else ForgettingWork, key=key)
        case Waits(keys=(key,)):
            return partial(TimedWork, key=key)
        case Loops(operator=operator, keys=keys) if operator.kind == "keyed":
            return partial(KeyedLoopWork, key=keys[0])
        case Loops():
            return partial(LoopWork, make_kernel=lambda: LoopKernel(run, place, node))
        case Applies() if run.settings.has_companions:
            program = Program(run.flow, nodes)
            companion = partial(CompanionKernel, run.flow, place, nodes, run.companions, program)
            return partial(ChunkWork, make_kernel=companion, chunks_when_busy=_COMPANION_CHUNKS)
    return partial(ChunkWork, make_kernel=partial(function_kernel, run, place, nodes))
