"""The only place that says what a machine costs besides the work itself: each figure has a name, and was measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.errors import FlowError

_POLICY_SECONDS = {
    "random": 0.3e-6,
    "max-queue": 1.1e-6,
    "min-latency": 1e-6,
    "least-recently-run": 0.3e-6,
    "max-running-time": 3.9e-6,
    "last-in-pipeline": 0.4e-6,
    "current-throughput": 4.4e-6,
    "estimated-time": 1.7e-6,
    "queue-throttling": 7e-6,
}


@dataclass(frozen=True)
class Machine:
    """What the runtime and the machine under it cost, in seconds where nothing else is said.

    The defaults are those of a common server (2 cores, CPython 3.11); `penstock bench calibrate --save FILE` measures
    them on yours, and `Simulated(machine=FILE)` uses what it found.
    """

    pick_seconds: float = 4e-6
    """Find a ready operator and claim it."""
    policy_seconds: Mapping[str, float] = field(default_factory=lambda: dict(_POLICY_SECONDS))
    """Ask a policy about one of the operators that are ready, by the policy's name."""
    take_seconds: float = 4e-6
    """Take a chunk from a queue."""
    give_seconds: float = 6e-6
    """Hand a chunk on to its reader."""
    give_tuple_seconds: float = 0.0
    """What each of its tuples adds to that where replicas send: nothing to speak of, for lists are handed on whole."""
    release_seconds: float = 4e-6
    """Let an operator go."""
    unit_seconds: float = 12e-6
    """Number a chunk for one of several replicas, and put it into the reorder buffer."""
    park_seconds: float = 12e-6
    """Find nothing to do, and fall asleep."""
    wake_seconds: float = 50e-6
    """Wake a sleeping thread."""
    notify_seconds: float = 6e-6
    """What it costs the one that wakes it."""
    gil_switch_seconds: float = 12e-6
    """Get the GIL from another thread on the same core."""
    gil_switch_asking_seconds: float = 7e-6
    """What every further thread that waits for the GIL costs at each such turn: it wakes up, asks, and sleeps again."""
    gil_move_seconds: float = 40e-6
    """Get the GIL from another thread on another core, which has what is needed in its cache."""
    gil_move_asking_seconds: float = 20e-6
    """What every further thread that waits for the GIL costs at each turn where there are several cores."""
    gil_slice_seconds: float = 0.0005
    """How long a thread may keep the GIL that others wait for: the switch interval while a flow runs."""
    context_switch_seconds: float = 5e-6
    """Get a core from another thread."""
    slice_seconds: float = 0.004
    """How long a thread may keep a core that others wait for."""
    crowding_share: float = 0.1
    """How much longer work takes on a core while all others work too, for they share caches and memory; no seconds."""
    cold_seconds: float = 15e-9
    """How much longer it takes to work on a tuple that is in no cache any more."""
    warm_tuples: float = 4000.0
    """Half of that is lost when so many others have been worked on since it was made; no seconds."""
    moved_seconds: float = 2e-9
    """How much longer it takes to work on a tuple that another core has made, with which this one shares a cache."""
    ready_list_seconds: float = 0.5e-6
    """How long the list of ready operators is held by one worker."""
    port_seconds: float = 1e-6
    """How long a queue is held by a worker that puts a chunk into it, or takes one out; the next one waits."""
    worklist_seconds: float = 1.5e-6
    """How long the queue of an operator with replicas is held by one of them."""
    reorder_seconds: float = 1.5e-6
    """How long its reorder buffer, if it is the one with a lock, is held by one that adds to it; the sender holds it
    for as long as that takes."""
    pickle_seconds: float = 1e-6
    """Send a tuple to a companion process and get the result back."""
    batch_seconds: float = 0.17
    """A micro-batch on Spark, however small."""
    exchange_seconds: float = 0.11
    """An exchange in a micro-batch, however small."""
    exchanged_tuple_seconds: float = 0.2e-6
    """A tuple that goes through an exchange."""
    executor_start_seconds: float = 12.0
    """From the request for an executor to its first task, on a standalone cluster."""

    @classmethod
    def of(cls, machine: Machine | str | os.PathLike[str] | None) -> Machine:
        """The machine itself, what a file says, or the default."""
        if isinstance(machine, Machine):
            return machine
        return cls() if machine is None else cls.load(machine)

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Machine:
        """What was measured elsewhere, or before.

        >>> Machine.load("nowhere.json")
        Traceback (most recent call last):
        penstock.errors.FlowError: machine 'nowhere.json': No such file or directory
        """
        name = os.fspath(path)
        try:
            found = json.loads(Path(path).read_text())
            unknown = sorted(set(found) - {field.name for field in fields(cls)})
            if unknown:
                raise FlowError(f"machine {name!r}: there is no figure {unknown[0]!r}")
            return cls(**{figure: _number(value) for figure, value in found.items()})
        except OSError as error:
            raise FlowError(f"machine {name!r}: {error.strerror}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise FlowError(f"machine {name!r}: a JSON object of figures in seconds is expected ({error})") from error


def _number(value: Any) -> Any:
    return {name: float(number) for name, number in value.items()} if isinstance(value, dict) else float(value)
