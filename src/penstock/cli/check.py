"""`penstock check`: one flow on several engines, and the first tuple in which they differ.

The only code that knows what a sink may be compared by: its order, its set, or nothing that is promised.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import click

from penstock.cli.compare import EngineOutput, difference_as_sets, difference_in_order
from penstock.cli.load import load_flow
from penstock.cli.options import parsed_option
from penstock.cli.progress import wait_with_progress
from penstock.clock import SystemClock
from penstock.connectors.memory import Collect
from penstock.engines import Engine, resolve
from penstock.errors import FlowError
from penstock.flow.nodes import Applies, Graph, Loops, Node, Reads, Remembers, Waits, Writes, connected
from penstock.operators.loops import Merge, Zip

_DIFFERENT = 1


@click.command()
@click.argument("target")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    default=("sequential", "local", "spark"),
    show_default=True,
    envvar="PENSTOCK_CHECK_ENGINE",
    help="What runs the flow; may be repeated, and the others are compared with the first.",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="ENGINE.NAME=VALUE",
    envvar="PENSTOCK_CHECK_OPTION",
    help="An option of one engine, such as spark.parallelism=3; may be repeated.",
)
def check(target: str, engines: tuple[str, ...], options: tuple[str, ...]) -> None:
    """Run a flow on several engines and compare what its sinks get, tuple by tuple.

    Nothing is written: for the check, each sink is replaced by a list.
    """
    if len(engines) < 2:
        raise click.UsageError("a check compares at least two engines: repeat --engine")
    by_engine = _by_engine(options, engines)
    made = [resolve(name, **by_engine[name]) for name in engines]
    lines, is_same = check_graph(load_flow(target).validate(), made)
    for line in lines:
        click.echo(line)
    if not is_same:
        sys.exit(_DIFFERENT)


def check_graph(graph: Graph, engines: Sequence[Engine]) -> tuple[list[str], bool]:
    """Run the graph on each engine; what to print about each sink, and whether no promise was broken."""
    _check_sources(graph)
    checked = with_collecting_sinks(graph)
    sinks = [node for node in checked.nodes if isinstance(node.kind, Writes)]
    found: dict[str, list[EngineOutput]] = {node.name: [] for node in sinks}
    for engine in engines:
        _run(checked, engine)
        for node in sinks:
            found[node.name].append(EngineOutput(engine.name, _collected(node).items))
    promises = promised(checked)
    lines: list[str] = []
    is_same = True
    for node in sinks:
        of_sink, kept = _compared(node.name, found[node.name], promises[node.name])
        lines += of_sink
        is_same = is_same and kept
    return lines, is_same


# What a sink may be compared by


class Guarantee(IntEnum):
    """How much of a stream every engine gives alike; the higher, the less."""

    ORDER = 0
    SET = 1
    NOTHING = 2


@dataclass(frozen=True)
class Promise:
    """What every engine gives alike, and why it is no more."""

    guarantee: Guarantee = Guarantee.ORDER
    because: str = ""


def promised(graph: Graph) -> dict[str, Promise]:
    """What is promised of each operator's output (and of each sink's input), by everything upstream of it."""
    promises: dict[str, Promise] = {}
    for node in graph.nodes:
        # A control input leads back, to what has no promise yet; an operator that has one counts as arrival's.
        above = (promises[ref.node] for ref in connected(node.inputs))
        promises[node.name] = _kept(node, max(above, key=lambda promise: promise.guarantee, default=Promise()))
    return promises


def _kept(node: Node, above: Promise) -> Promise:
    """What is left of the promise above an operator."""
    name = repr(node.name)
    own = Promise()
    remembers = False
    match node.kind:
        case Loops(operator=Merge()):
            own = Promise(Guarantee.SET, f"{name} interleaves its inputs in arrival order")
        case Loops(operator=operator):
            remembers = operator.kind != "stateless"
            if len(node.inputs) + len(node.controls) > 1 and not isinstance(operator, Zip):
                own = Promise(Guarantee.SET, f"{name} is a driver loop with several inputs, which may observe arrival")
        case Waits(keys=keys, lateness=lateness):
            is_join = len(keys) > 1
            remembers = not is_join or lateness is not None
            if is_join:
                own = Promise(Guarantee.SET, f"{name} is a join, which promises the set of its results")
        case Remembers(ttl=ttl, time=time):
            remembers = True
            if ttl is not None and time is None:
                own = Promise(Guarantee.NOTHING, f"{name} forgets by the clock (give it time= to forget by event time)")
        case Applies() if not node.ordered:
            own = Promise(Guarantee.SET, f"{name} has ordered=False")
    if above.guarantee is Guarantee.SET and remembers:
        return Promise(Guarantee.NOTHING, f"{name} depends on the order of its input, and {above.because}")
    return max(above, own, key=lambda promise: promise.guarantee)


# Running without writing


def with_collecting_sinks(graph: Graph) -> Graph:
    """The same graph with a list instead of each sink, and of each driver loop without outputs."""
    return Graph(graph.flow, tuple(made for node in graph.nodes for made in _collecting(node)))


def _collecting(node: Node) -> Iterator[Node]:
    if isinstance(node.kind, Writes):
        yield dataclasses.replace(node, kind=Writes(Collect()))
    elif isinstance(node.kind, Loops) and node.outputs == 0:
        # It writes somewhere, or why is it there: what reaches its inputs is compared, and it is not run.
        for number, ref in enumerate(connected(node.inputs)):
            name = node.name if number == 0 else f"{node.name}-input-{number}"
            yield dataclasses.replace(node, name=name, kind=Writes(Collect()), inputs=(ref,), controls=())
    else:
        yield node


def _collected(node: Node) -> Collect[Any]:
    assert isinstance(node.kind, Writes)
    assert isinstance(node.kind.sink, Collect)
    return node.kind.sink


def _check_sources(graph: Graph) -> None:
    for node in graph.nodes:
        if not isinstance(node.kind, Reads):
            continue
        if not node.kind.source.bounded:
            raise FlowError(
                f"flow {graph.flow!r}: source {node.name!r} may never end, and then neither would a check; check the "
                "flow on a sample, such as ps.sources.items([…]) or ps.sources.generate(fn, count=1000)"
            )
        if not node.kind.source.replayable:
            raise FlowError(
                f"flow {graph.flow!r}: source {node.name!r} can be read only once, and a check reads it once on each "
                "engine; give it a list or files, which can be read again"
            )


def _run(graph: Graph, engine: Engine) -> None:
    job = engine.start(graph, at_end="close")
    try:
        report = wait_with_progress(job, f"{graph.flow} on {engine.name}", SystemClock(), sys.stderr)
    except KeyboardInterrupt:
        job.stop(drain=False)
        raise
    click.echo(f"{graph.flow} on {engine.name}: {report.elapsed_seconds:.1f} s", err=True)


def _compared(sink: str, outputs: Sequence[EngineOutput], promise: Promise) -> tuple[list[str], bool]:
    """The lines about one sink, and whether what is promised of it was kept."""
    in_order = promise.guarantee is Guarantee.ORDER
    note = "" if in_order else f" (compared as a set, because {promise.because})"
    lines = difference_in_order(outputs) if in_order else difference_as_sets(outputs)
    engines = ", ".join(output.engine for output in outputs)
    if not lines:
        count = len(outputs[0].items)
        return [f"{sink}: {count:,} tuple{'' if count == 1 else 's'}, the same on {engines}{note}"], True
    if promise.guarantee is Guarantee.NOTHING:
        return [f"{sink}: not the same on {engines}, which is allowed, because {promise.because}"], True
    if in_order:
        return [f"{sink}: {lines[0]}", *lines[1:]], False
    return [f"{sink}: not the same{note}", *(f"  {line}" for line in lines)], False


def _by_engine(options: Sequence[str], engines: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in engines}
    for text in options:
        name, value = parsed_option(text)
        engine, dot, of_engine = name.partition(".")
        if not dot or engine not in found:
            there = ", ".join(f"{name}.{of_engine or engine}" for name in found)
            raise click.UsageError(f"--option {text!r} names no engine of this check: say {there} = …")
        found[engine][of_engine] = value
    return found
