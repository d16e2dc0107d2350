"""`penstock`: run, explain, check and show flows, and make data for them.

Exit codes: 0 the flow has ended well, 1 it failed while it ran or engines differ, 2 it can't run or the command is
wrong, 130 it was stopped with Ctrl-C, 143 with SIGTERM (once: what was read is let out first; twice: at once).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

import penstock
from penstock.cli.check import check
from penstock.cli.checkpoint import checkpoint
from penstock.cli.journal import journal
from penstock.cli.load import load_flow
from penstock.cli.options import engine_options, parsed_option
from penstock.cli.progress import wait_with_progress
from penstock.cli.simulate import simulate
from penstock.clock import SystemClock
from penstock.engines.simulated.profile import costs_of, save_costs
from penstock.errors import FlowError, PenstockError, describe_traceback
from penstock.flow import Flow
from penstock.observe.journal import Journal
from penstock.observe.report import Report
from penstock.runtime.signals import GRACE_SECONDS, Terminated, attended

_FAILED, _WRONG, _INTERRUPTED = 1, 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(penstock.__version__, prog_name="penstock")
def cli() -> None:
    """Elastic, order-preserving stream processing.

    A flow is named as module:flow, path/to/file.py:flow, or module:make_flow('x') for a function that makes one.
    """


cli.add_command(check)
cli.add_command(checkpoint)
cli.add_command(journal)
cli.add_command(simulate)


@cli.command()
@click.argument("target")
@click.option("--engine", default="spark", show_default=True, envvar="PENSTOCK_ENGINE", help="What runs the flow.")
@engine_options
@click.option(
    "--at-end",
    type=click.Choice(["close", "keep"]),
    envvar="PENSTOCK_AT_END",
    help="Flush windows and last words when the sources end, or keep them for a later run.",
)
@click.option("--report/--no-report", default=True, envvar="PENSTOCK_REPORT", help="Print the report at the end.")
@click.option(
    "--grace-seconds",
    type=click.FloatRange(min=0),
    default=GRACE_SECONDS,
    show_default=True,
    envvar="PENSTOCK_GRACE_SECONDS",
    help="How long to let out what was read after SIGTERM, before it stops at once.",
)
@click.option(
    "--profile",
    type=click.Path(dir_okay=False),
    envvar="PENSTOCK_PROFILE",
    help="Write what a tuple costs each operator to this file, for `penstock simulate --costs`.",
)
@click.option(
    "--journal",
    "journal_file",
    type=click.Path(dir_okay=False),
    envvar="PENSTOCK_JOURNAL",
    help="Write what the engine has decided by itself to this file, for `penstock journal`.",
)
def run(
    target: str,
    engine: str,
    options: tuple[str, ...],
    at_end: Any,
    report: bool,
    grace_seconds: float,
    profile: str | None,
    journal_file: str | None,
) -> None:
    """Run a flow to its end."""
    result = _run(load_flow(target), engine, dict(map(parsed_option, options)), at_end, report, grace_seconds)
    if profile is not None:
        save_costs(costs_of(result), profile)
    if journal_file is not None:
        kept = Journal(journal_file)
        for decision in result.decisions:
            kept.add(decision)


@cli.command()
@click.argument("target")
@click.option("--engine", envvar="PENSTOCK_ENGINE", help="Say how this engine runs it.")
@click.option("--mermaid", is_flag=True, envvar="PENSTOCK_MERMAID", help="Print a Mermaid flowchart instead.")
def explain(target: str, engine: str | None, mermaid: bool) -> None:
    """Say what a flow does, without running it."""
    flow = load_flow(target)
    click.echo(flow.to_mermaid() if mermaid else flow.explain(engine))


@cli.command()
@click.option("--engine", default="spark", show_default=True, envvar="PENSTOCK_ENGINE", help="What runs it.")
@click.option("--clicks", default=50_000, show_default=True, envvar="PENSTOCK_CLICKS", help="How many clicks to make.")
def demo(engine: str, clicks: int) -> None:
    """Make click logs, run a flow over them, and show what came out."""
    from penstock.demo import make_clicks, make_flow, show

    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        click.echo(f"writing {clicks:,} clicks as CSV files …")
        make_clicks(Path(folder, "clicks"), clicks)
        flow = make_flow(Path(folder, "clicks"), Path(folder, "busy"))
        click.echo(flow.explain())
        _run(flow, engine, {}, None, True)
        click.echo(show(Path(folder, "busy")))


@cli.group()
def generate() -> None:
    """Make data of any size, the same for the same seed."""


@generate.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    envvar="PENSTOCK_SCALE",
    help="How much: 1 makes about 900,000 clicks and 560,000 sales.",
)
@click.option("--seed", default=0, show_default=True, envvar="PENSTOCK_SEED", help="Where random numbers begin.")
@click.option("--engine", default="spark", show_default=True, envvar="PENSTOCK_ENGINE", help="What makes it.")
@engine_options
@click.option("--report/--no-report", default=True, envvar="PENSTOCK_REPORT", help="Print the report at the end.")
def tpcxbb(output: Path, scale: float, seed: int, engine: str, options: tuple[str, ...], report: bool) -> None:
    """Web clickstreams, store sales and items of TPCx-BB, as CSV files in the folder OUTPUT."""
    from penstock.tpcxbb import make_flow

    _run(make_flow(output, scale, seed), engine, dict(map(parsed_option, options)), None, report)


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measure: `penstock bench local` compares the local engine with others, as ratios from one run.

    `penstock bench NAME --help` says what else there is to measure and how; a name that there is not lists those that
    there are.
    """
    folder = Path(penstock.__file__).parents[2] / "bench"
    if not (folder / f"{name}.py").is_file():
        there = ", ".join(sorted(path.stem for path in folder.glob("*.py"))) or "none (they are in the source tree)"
        raise click.UsageError(f"there is no benchmark {name!r}; there are {there}")
    os.execv(sys.executable, [sys.executable, str(folder / f"{name}.py"), *arguments])


def _run(
    flow: Flow,
    engine: str,
    options: dict[str, Any],
    at_end: Any,
    report: bool,
    grace_seconds: float = GRACE_SECONDS,
) -> Report:
    job = flow.start(engine, at_end=at_end, **options)
    try:
        result = attended(
            job,
            lambda: wait_with_progress(job, flow.name, SystemClock(), sys.stderr),
            grace_seconds,
            lambda: click.echo("stopping: letting out what was read (Ctrl-C again to stop at once)", err=True),
        )
    except KeyboardInterrupt as asked:
        ended = job.wait()
        if report:
            click.echo(ended, err=True)
        sys.exit(Terminated.exit_code if isinstance(asked, Terminated) else _INTERRUPTED)
    if report:
        click.echo(result, err=True)
    return result


def main() -> None:
    """The entry point: turns errors into one clear message and an exit code."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except PenstockError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            # The reader of our output has closed it, as `head` does: that is no failure to tell about.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(_FAILED)
        if not isinstance(error.__cause__, OSError | None):  # the message says what the system has said
            click.echo(describe_traceback(error.__cause__), err=True, nl=False)
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(_WRONG if isinstance(error, FlowError) else _FAILED)
