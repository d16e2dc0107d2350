"""`penstock checkpoint`: look at a checkpoint, verify it, copy it, let it fit a changed flow, roll its output back."""

from __future__ import annotations

import json
import sys
from datetime import datetime

import click

from penstock.clock import WallClock
from penstock.engines.durable import keeping

_PATH = click.argument("path", type=click.Path())


@click.group()
def checkpoint() -> None:
    """Look at a checkpoint, verify it, copy it, let it fit a changed flow, or roll its output back."""


@checkpoint.command()
@_PATH
def show(path: str) -> None:
    """Say what is in a checkpoint: flow, engine, how far sources were read, what operators remember."""
    told = keeping.show(path)
    click.echo(f"flow       {told.flow}")
    click.echo(f"made       {_when(told.created)}, by Penstock {told.penstock}; query {told.query}")
    if told.batch is None or told.written is None:
        click.echo("batches    none yet")
        return
    state = "ended for good" if told.closed else "can be gone on with"
    out = "its output is out" if told.is_out else "its output is not out yet: the next run publishes it"
    click.echo(f"last batch {told.batch}, on {told.engine}, {_when(told.written)}; {out}; {state}")
    click.echo(f"size       {told.size_bytes:,} bytes in {told.files:,} files")
    for source, offset in told.offsets.items():
        click.echo(f"read       {source}: {json.dumps(offset.get('reached', offset))}")
    for one in told.operators:
        click.echo(f"knows      {one.name} ({one.what}): {one.keys:,} keys, {one.size_bytes:,} bytes")
    for sink, kept in told.sinks.items():
        click.echo(f"writes     {sink}: {kept['directory']}")


@checkpoint.command()
@_PATH
def verify(path: str) -> None:
    """Read every file of a checkpoint, and say which are not sound; exit code 1 if there are any."""
    findings = keeping.verify(path)
    problems = [finding for finding in findings if finding.problem]
    for finding in problems:
        click.echo(finding.problem)
    click.echo(f"{len(findings)} looked at, {len(problems)} not sound")
    if problems:
        sys.exit(1)


@checkpoint.command()
@_PATH
@click.argument("to", type=click.Path())
def copy(path: str, to: str) -> None:
    """Make a copy that can be run elsewhere, with output of its own."""
    keeping.copy(path, to)
    click.echo(f"{to}: goes on from where {path} stands, as a query of its own; let it write to other directories")


@checkpoint.command()
@_PATH
@click.argument("names", nargs=-1)
@click.option("--drop", multiple=True, metavar="NAME", help="Forget a source, an operator or a sink.")
@click.option("--add", multiple=True, metavar="NAME", help="Expect a source or an operator that begins empty.")
def rename(path: str, names: tuple[str, ...], drop: tuple[str, ...], add: tuple[str, ...]) -> None:
    """Let a changed flow go on: `rename PATH OLD NEW`, several pairs, or `--drop` and `--add`."""
    if len(names) % 2 or not (names or drop or add):
        raise click.UsageError("give pairs of an old and a new name, --drop NAME or --add NAME")
    pairs = dict(zip(names[::2], names[1::2], strict=True))
    keeping.rename(path, pairs, drop, add)
    for old, new in pairs.items():
        click.echo(f"{old} is {new} now")
    for name in drop:
        click.echo(f"{name} is forgotten")
    for name in add:
        click.echo(f"{name} will begin empty")


@checkpoint.command()
@_PATH
@click.option(
    "--directory", multiple=True, metavar="DIR", help="A directory that this checkpoint knows nothing of yet."
)
def rewind(path: str, directory: tuple[str, ...]) -> None:
    """Roll the output back to this checkpoint: delete the files that later batches have written."""
    for sink, count in keeping.rewind(path, directory).items():
        click.echo(f"{sink}: {count} files deleted")


def _when(seconds: float) -> str:
    ago = max(0, int(WallClock().now() - seconds))
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if ago >= 2 * unit:
            return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S} ({ago // unit} {name} ago)"
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S} ({ago} seconds ago)"
