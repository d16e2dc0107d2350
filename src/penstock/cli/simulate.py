"""`penstock simulate`: what would a flow do on so many cores, and with which policy?"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.cli.load import load_flow
from penstock.cli.options import engine_options, parsed_option
from penstock.cli.progress import wait_with_progress
from penstock.clock import SystemClock
from penstock.connectors.memory import Null
from penstock.costs import Cost
from penstock.engines import Local, Simulated
from penstock.engines.base import Engine
from penstock.engines.simulated.profile import costs_of, load_costs
from penstock.errors import FlowError
from penstock.flow.nodes import Graph, Reads, Writes
from penstock.observe.report import Report, duration
from penstock.rates import parse

_BAR = 30


@dataclass(frozen=True)
class Outcome:
    """What came of one simulated run."""

    cores: int
    policy: str
    throughput: float
    """Tuples that sources gave, a second."""
    report: Report

    @property
    def latency(self) -> tuple[float, float]:
        return self.report.latency.p50, self.report.latency.p99

    @property
    def utilisation(self) -> float:
        assert self.report.simulation is not None
        return self.report.simulation.utilisation


def _numbers(_: Any, option: click.Parameter, text: str) -> list[int]:
    try:
        found = [int(number) for number in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.BadParameter(f"numbers from 1 up, with commas between them, not {text!r}", param=option)
    return found


@click.command()
@click.argument("target")
@click.option(
    "--cores",
    default="1,2,4,8,16,32,64",
    show_default=True,
    callback=_numbers,
    envvar="PENSTOCK_CORES",
    help="How many cores, one simulation for each.",
)
@click.option(
    "--policy",
    "policies",
    default="last-in-pipeline",
    show_default=True,
    envvar="PENSTOCK_POLICY",
    help="The scheduling policy; several, with commas between them, are compared and ranked.",
)
@click.option(
    "--input-rate",
    envvar="PENSTOCK_INPUT_RATE",
    help="Tuples a second that each source offers (or steps:…, spikes:…, seasonal:…, a CSV file); as many as it can, "
    "if it is not given.",
)
@click.option(
    "--costs",
    type=click.Path(exists=True, dir_okay=False),
    envvar="PENSTOCK_COSTS",
    help="What `penstock run --profile` has written; measured now in a run on one thread, if it is not given.",
)
@click.option("--seconds", type=float, envvar="PENSTOCK_SECONDS", help="Virtual seconds after which a run ends.")
@click.option("--gil/--no-gil", default=False, envvar="PENSTOCK_GIL", help="Whether one thread at a time runs Python.")
@click.option("--seed", default=0, envvar="PENSTOCK_SEED", help="Where random numbers begin.")
@click.option("--plot", type=click.Path(dir_okay=False), envvar="PENSTOCK_PLOT", help="Draw it into this file (PNG).")
@engine_options
def simulate(
    target: str,
    cores: list[int],
    policies: str,
    input_rate: str | None,
    costs: str | None,
    seconds: float | None,
    gil: bool,
    seed: int,
    plot: str | None,
    options: tuple[str, ...],
) -> None:
    """Say what a flow would do on other numbers of cores, and what would hold it up.

    Operators that don't say replicas= get as many as there are cores. Nothing is written: sinks are left out.
    """
    graph = without_sinks(load_flow(target).validate())
    given = {"seed": seed, "seconds": seconds, "gil": gil, **dict(map(parsed_option, options))}
    if input_rate is not None:
        given["input_rate"] = parse(input_rate)
    if seconds is None:
        _check_that_it_ends(graph)
    known = _measured(graph, costs)
    outcomes = list(_outcomes(graph, known, cores, policies.split(","), given))
    for line in table(outcomes):
        click.echo(line)
    if plot is not None:
        draw(outcomes, graph.flow, plot)
        click.echo(f"drawn into {plot}", err=True)


def _outcomes(
    graph: Graph, costs: dict[str, Cost], cores: Sequence[int], policies: Sequence[str], options: dict[str, Any]
) -> Iterator[Outcome]:
    sources = [node.name for node in graph.sources]
    for policy in policies:
        for count in cores:
            engine = Simulated(cores=count, policy=policy, costs=costs, **{"replicas": count, **options})
            report = _run(graph, engine, f"{graph.flow} on {count} cores, {policy}")
            given = sum(report.operators[name].emitted for name in sources)
            yield Outcome(count, policy, given / max(report.elapsed_seconds, 1e-12), report)


def _measured(graph: Graph, costs: str | None) -> dict[str, Cost]:
    names = {node.name for node in graph.nodes}
    if costs is not None:
        return {name: cost for name, cost in load_costs(costs).items() if name in names}
    _check_that_it_ends(graph)
    click.echo("measuring what each operator costs, on one thread (give --costs to skip this) …", err=True)
    return costs_of(_run(graph, Local(threads=1), f"{graph.flow} on one thread"))


def _run(graph: Graph, engine: Engine, what: str) -> Report:
    job = engine.start(graph, at_end="close")
    try:
        return wait_with_progress(job, what, SystemClock(), sys.stderr)
    except KeyboardInterrupt:
        job.stop(drain=False)
        raise


def without_sinks(graph: Graph) -> Graph:
    """The same graph, which writes nothing."""
    return dataclasses.replace(
        graph,
        nodes=tuple(
            dataclasses.replace(node, kind=Writes(Null())) if isinstance(node.kind, Writes) else node
            for node in graph.nodes
        ),
    )


def _check_that_it_ends(graph: Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.kind, Reads) and not node.kind.source.bounded:
            raise FlowError(
                f"flow {graph.flow!r}: source {node.name!r} may never end: give --seconds, and --costs from an earlier "
                "run (penstock run --profile FILE)"
            )


# What is shown


def bottleneck(report: Report) -> str:
    """What holds a simulated run up, in a few words."""
    seen = report.simulation
    assert seen is not None
    if seen.gil_utilisation > 0.9:
        return "the GIL"
    if seen.utilisation > 0.9:
        return "the cores"
    waited = max(seen.waited_seconds, key=lambda what: seen.waited_seconds[what], default="")
    capacity = max(report.elapsed_seconds * seen.cores, 1e-12)
    if waited and seen.waited_seconds[waited] / capacity > 0.2:
        return waited
    shares = {
        name: operator.busy_seconds / max(report.elapsed_seconds * operator.replicas, 1e-12)
        for name, operator in report.operators.items()
    }
    busiest = max(shares, key=lambda name: shares[name])
    if shares[busiest] > 0.8:
        count = report.operators[busiest].replicas
        return f"{busiest} ({count} replica{'' if count == 1 else 's'}, busy {shares[busiest]:.0%})"
    return "the input"


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each run; with several policies, then which is best where."""
    widest = max(outcome.throughput for outcome in outcomes) or 1.0
    policies = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    for policy in policies:
        if len(policies) > 1:
            yield f"{policy}:"
        yield f"{'cores':>6}  {'tuples/s':>12}  {'':{_BAR}}  {'p50':>8}  {'p99':>8}  {'used':>5}  held up by"
        for one in outcomes:
            if one.policy == policy:
                p50, p99 = one.latency
                bar = "█" * max(1, round(_BAR * one.throughput / widest))
                yield (
                    f"{one.cores:>6}  {one.throughput:>12,.0f}  {bar:{_BAR}}  {duration(p50):>8}  {duration(p99):>8}  "
                    f"{one.utilisation:>5.0%}  {bottleneck(one.report)}"
                )
    if len(policies) > 1:
        yield from _ranking(outcomes)


def _ranking(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "best policy by throughput, then by p99 latency:"
    for cores in dict.fromkeys(outcome.cores for outcome in outcomes):
        ranked = sorted(
            (outcome for outcome in outcomes if outcome.cores == cores),
            # Within half a percent throughputs are the same.
            key=lambda outcome: (-round(outcome.throughput, -_magnitude(outcome.throughput)), outcome.latency[1]),
        )
        yield f"{cores:>6} cores: " + ", ".join(
            f"{outcome.policy} ({outcome.throughput:,.0f}/s, {duration(outcome.latency[1])})" for outcome in ranked
        )


def _magnitude(number: float) -> int:
    return len(str(int(number))) - 3 if number >= 1 else 0


def draw(outcomes: Sequence[Outcome], flow: str, path: str) -> None:
    """Throughput, latency and use of the cores, by number of cores."""
    try:
        import matplotlib
    except ImportError:
        raise FlowError("--plot needs matplotlib: pip install penstock[plot]") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    panels: list[tuple[str, Callable[[Outcome], float]]] = [
        ("tuples a second", lambda one: one.throughput),
        ("p99 latency (ms)", lambda one: one.latency[1] * 1000),
        ("share of the cores in use", lambda one: one.utilisation),
    ]
    for axis, (title, value) in zip(axes, panels, strict=True):
        for policy in dict.fromkeys(one.policy for one in outcomes):
            of_policy = [one for one in outcomes if one.policy == policy]
            axis.plot([one.cores for one in of_policy], [value(one) for one in of_policy], marker="o", label=policy)
        axis.set_xscale("log", base=2)
        axis.set_xticks([one.cores for one in outcomes], [str(one.cores) for one in outcomes])
        axis.set_xlabel("cores")
        axis.set_title(title)
        axis.set_ylim(bottom=0)
    axes[0].legend()
    figure.suptitle(f"{flow}, simulated")
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)
