"""What a person sees while a flow runs: a live table on a terminal, plain lines elsewhere, nothing on short runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.clock import Clock
from penstock.engines.base import Job
from penstock.observe.report import OperatorReport, Report, operators_table

_LIVE_SECONDS = 0.5
_PLAIN_SECONDS = 5.0


def wait_with_progress(job: Job, flow: str, clock: Clock, stream: TextIO) -> Report:
    """Wait for a job's end and show how far it is, on `stream`."""
    started = clock.now()
    if not stream.isatty():
        while not _ends_within(job, _PLAIN_SECONDS):
            print(_headline(flow, clock.now() - started, job.metrics()), file=stream, flush=True)
        return job.wait()
    if not _ends_within(job, 2 * _LIVE_SECONDS):
        # Results that go to the same terminal are printed above the table; those that go elsewhere are left alone.
        together = sys.stdout.isatty()
        with Live(
            console=Console(file=stream), transient=True, redirect_stdout=together, redirect_stderr=False
        ) as live:
            while not _ends_within(job, _LIVE_SECONDS):
                metrics = job.metrics()
                live.update(Text(f"{_headline(flow, clock.now() - started, {})}\n{operators_table(metrics)}"))
    return job.wait()


def _ends_within(job: Job, seconds: float) -> bool:
    """Whether the job ends in that time, well or not."""
    try:
        job.wait(timeout=seconds)
    except Exception:
        return not job.is_running
    return True


def _headline(flow: str, elapsed_seconds: float, metrics: Mapping[str, OperatorReport]) -> str:
    counts = ", ".join(f"{name} {operator.received:,}" for name, operator in metrics.items())
    return f"{flow}: {elapsed_seconds:.0f} s" + (f"; {counts}" if counts else "")
