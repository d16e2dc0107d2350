"""One run of the flow under test, and the only judge of how it ended."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engines.durable import steps
from tests.reliability import flows

_ADVICE = re.compile(
    r"\b(restore|put .* back|give|start (with|again)|delete|remove|free|make room|must be|stop that|write elsewhere|"
    r"say mode|go on with|try again|run (it )?again|check|set|use|mend)\b"
)
"""Words of which one is in every message that says what to do."""


@dataclass(frozen=True)
class Place:
    """Where a trial happens: its checkpoint and its output; its input is shared and never touched."""

    inputs: Path
    work: Path

    @property
    def checkpoint(self) -> Path:
        return self.work / "checkpoint"

    @property
    def output(self) -> Path:
        return self.work / "out"


@dataclass(frozen=True)
class Ended:
    """How a run ended: with outputs, with an error, by a signal, or not at all."""

    outputs: flows.Outputs | None = None
    error: str = ""
    message: str = ""
    is_ours: bool = False
    frames: str = ""
    signal: int = 0
    hangs: bool = False
    family: list[str] = field(default_factory=list)

    def told(self) -> str:
        if self.hangs:
            return "hangs"
        if self.signal:
            return f"killed by signal {self.signal}"
        return f"{self.error}: {self.message}"[:400] if self.error else "ended"


def run_here(
    engine: str, place: Place, around: AbstractContextManager[object] | None = None, **flow_options: Any
) -> Ended:
    """Run the flow in this process, to its end or for as long as it may take."""
    try:
        with around or nullcontext():
            flow, collected = flows.make_flow(place.inputs, place.output, **flow_options)
            job = flow.start(flows.make_engine(engine, place.checkpoint), at_end="keep")
            try:
                job.wait(flows.TIMEOUT_SECONDS[engine])
            except TimeoutError:
                job.stop(drain=False)
                return Ended(hangs=True)
        return Ended(outputs=flows.read_outputs(place.output, collected.items))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        family = [one.__name__ for one in type(error).__mro__]
        frames = "".join(traceback.format_exception(error))[-3000:]
        return Ended(None, type(error).__name__, str(error), isinstance(error, ps.PenstockError), frames, family=family)


_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["penstock", "tests.reliability.faults", "tests.reliability.kills"])


def run_in_child(
    place: Place,
    around: Callable[..., AbstractContextManager[object]],
    *arguments: Any,
    meanwhile: Callable[[int], object] = lambda pid: None,
    **flow_options: Any,
) -> Ended:
    """Run the flow on the local engine in a process of its own, which may die.

    `around` goes around the run there; `meanwhile` is called here with the number of the process.
    """
    answer = place.work.parent / "answer.json"
    answer.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name.startswith("PENSTOCK")}
    child = _forks.Process(target=_child, args=(place, answer, environment, around, arguments, flow_options))
    child.start()
    try:
        assert child.pid is not None
        meanwhile(child.pid)
        child.join(flows.TIMEOUT_SECONDS["local"])
        if child.is_alive():
            child.kill()
            child.join()
            return Ended(hangs=True)
        if answer.exists():
            return Ended(**json.loads(answer.read_text()))
        return Ended(signal=-child.exitcode) if (child.exitcode or 0) < 0 else Ended(error=f"exit {child.exitcode}")
    finally:
        child.close()


def _child(
    place: Place,
    answer: Path,
    environment: dict[str, str],
    around: Any,
    arguments: tuple[Any, ...],
    flow_options: dict[str, Any],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    ended = run_here("local", place, around(*arguments), **flow_options)
    temporary = answer.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(ended)))
    temporary.replace(answer)
    os._exit(0)  # a thread of a run that hangs would keep the process


def run(engine: str, place: Place) -> Ended:
    """Run the flow with nothing in its way."""
    return run_in_child(place, nullcontext) if engine == "local" else run_here(engine, place)


RIGHT, REFUSED, DIED = "right", "refused", "killed"
FINE = (RIGHT, REFUSED, DIED)


@dataclass(frozen=True)
class Verdict:
    """A class of outcome, and what was seen."""

    outcome: str
    told: str = ""


def judge(
    ended: Ended, expected: flows.Outputs, names: Collection[str], kinds: Collection[str] = ("PenstockError",)
) -> Verdict:
    """Right, or an error of one of these kinds that names one of these files or folders and says what to do.

    Without names there is nothing to complain of, and every error is one too many.
    """
    if ended.hangs:
        return Verdict("HANGS", "no end, though there was time")
    if ended.signal:
        return Verdict(DIED if ended.signal == signal.SIGKILL else "CRASHED", ended.told())
    if ended.outputs is not None:
        wrong = flows.difference(ended.outputs, expected)
        return Verdict("WRONG OUTPUT", wrong) if wrong else Verdict(RIGHT)
    if not ended.is_ours:
        return Verdict("RAW EXCEPTION", ended.told() + _last_frame(ended))
    if not names:
        return Verdict("FAILED", ended.told())
    if not set(kinds) & set(ended.family):
        return Verdict("OTHER ERROR", f"{ended.told()} (expected {' or '.join(kinds)})")
    if not any(name and name in ended.message for name in names):
        return Verdict("NAMES NO FILE", f"{ended.told()} (expected one of {', '.join(sorted(names))})")
    if not _ADVICE.search(ended.message):
        return Verdict("NO ADVICE", ended.told())
    return Verdict(REFUSED, ended.told())


def _last_frame(ended: Ended) -> str:
    ours = [
        line.strip() for line in ended.frames.splitlines() if "/penstock/" in line and line.strip().startswith("File")
    ]
    return f" [{ours[-1].partition('/penstock/')[2]}]" if ours else ""


@contextmanager
def at_steps(do: Callable[[str], None]) -> Iterator[None]:
    """Call `do` with the name of each step that a batch reaches."""
    told, steps.observer = steps.observer, do
    try:
        yield
    finally:
        steps.observer = told
