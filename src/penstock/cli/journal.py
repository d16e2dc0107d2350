"""`penstock journal FILE`: what an engine has decided by itself, when, and why; as a table or a drawing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from penstock.errors import FlowError
from penstock.observe.journal import Decision, read_journal

_WIDEST_REASON = 100


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--operator", envvar="PENSTOCK_OPERATOR", help="Only decisions about this operator.")
@click.option("--plot", type=click.Path(dir_okay=False), envvar="PENSTOCK_PLOT", help="Draw it into this file (PNG).")
def journal(file: str, operator: str | None, plot: str | None) -> None:
    """Show the decisions that a run has written to FILE."""
    try:
        decisions = [one for one in read_journal(file) if operator is None or operator in one.operator.split(" > ")]
    except (json.JSONDecodeError, TypeError) as error:
        raise FlowError(f"journal {file!r}: each line is a JSON object that tells a decision ({error})") from error
    for line in table(decisions):
        click.echo(line)
    if plot is not None:
        draw(decisions, plot)
        click.echo(f"drawn into {plot}", err=True)


def what_of(decision: Decision) -> str:
    return str(decision.signals.get("what", decision.controller))


def table(decisions: Sequence[Decision]) -> Iterator[str]:
    """A line for each decision."""
    if not decisions:
        yield "nothing was decided"
        return
    head = ("seconds", "controller", "what", "operator", "from", "to", "why")
    rows = [
        (
            f"{one.time:.2f}",
            one.controller if one.is_applied else f"({one.controller})",
            what_of(one),
            one.operator or "-",
            f"{one.before:g}",
            f"{one.after:g}",
            one.reason[:_WIDEST_REASON],
        )
        for one in decisions
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if column in (0, 4, 5) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        yield "  ".join([*cells, row[-1]])
    if any(not one.is_applied for one in decisions):
        yield "in brackets: what would have been done"


def draw(decisions: Sequence[Decision], path: str) -> None:
    """Each number as it was from one decision to the next."""
    try:
        import matplotlib
    except ImportError:
        raise FlowError("--plot needs matplotlib: pip install penstock[plot]") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(10, 5), layout="constrained")
    end = max((one.time for one in decisions), default=0.0) * 1.05
    for name in dict.fromkeys((what_of(one), one.operator) for one in decisions):
        own = [one for one in decisions if (what_of(one), one.operator) == name]
        times = [0.0, *(one.time for one in own), end]
        values = [own[0].before, *(one.after for one in own), own[-1].after]
        axis.step(times, values, where="post", label=" ".join(filter(None, name)))
    axis.set_xlabel("seconds")
    axis.set_ylim(bottom=0)
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
