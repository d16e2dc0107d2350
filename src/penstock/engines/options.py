"""The only place that checks what users decide about a run on the runtime, whether its workers are real or virtual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.elasticity.loop import Elastic
from penstock.errors import FlowError
from penstock.observe.machine import available_cores
from penstock.ordering.reorder import Downstream, LockedBuffer, ReorderBuffer, Ring
from penstock.ordering.splits import LeastLoaded, RoundRobin, Splitter
from penstock.ordering.worklists import HybridQueue, PartitionedQueue, SharedQueue, Worklist
from penstock.runtime.policies import SchedulingPolicy, resolve_policy
from penstock.runtime.ports import Port
from penstock.runtime.running.settings import Settings

_REORDER: Mapping[str, Callable[[int, Downstream], ReorderBuffer]] = {"ring": Ring, "lock": LockedBuffer}
_KEYED_QUEUES: Mapping[str, Callable[[], Worklist[Any]]] = {
    "hybrid": HybridQueue,
    "shared": SharedQueue,
    "partitioned": PartitionedQueue,
}
_SPLITS: Mapping[str, Callable[[], Splitter] | None] = {
    "pull": None,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
}
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "workers": ("threads", "processes"),
    "reorder": tuple(_REORDER),
    "split": tuple(_SPLITS),
    "keyed_queue": tuple(_KEYED_QUEUES),
}
Threading = Literal["dynamic", "dedicated", "manual"]


@dataclass(frozen=True)
class RuntimeOptions:
    """What a user may decide about a run, as `Local` explains it; what can't be is refused.

    >>> RuntimeOptions(threads=0)
    Traceback (most recent call last):
    penstock.errors.FlowError: engine 'local': threads= is a number from 1 up or 'auto', not 0
    """

    threads: int | Literal["auto"] = "auto"
    policy: str | SchedulingPolicy = "last-in-pipeline"
    threading: Threading = "dynamic"
    workers: Literal["threads", "processes"] = "threads"
    queue_size: int = 16_384
    queue_limit: int = 1 << 20
    quantum: float = 0.05
    replicas: int = 1
    helping: float = 0.0
    reorder: Literal["ring", "lock"] = "ring"
    reorder_size: int = 256
    split: Literal["pull", "round-robin", "least-loaded"] = "pull"
    keyed_queue: Literal["hybrid", "shared", "partitioned"] = "hybrid"
    elastic: Elastic | bool | None = None
    fuse: bool = True
    record_arrivals: bool = False
    port: Callable[[str, int], Port] = Port
    slice_seconds: float = 0.001
    buckets: int = 64
    partitioner: Callable[[Any], int] | None = None

    def __post_init__(self) -> None:
        if self.threads != "auto" and not _is_count(self.threads):
            raise _refused(f"threads= is a number from 1 up or 'auto', not {self.threads!r}")
        if self.threading not in ("dynamic", "dedicated", "manual"):
            raise _refused(f"threading= is 'dynamic', 'dedicated' or 'manual', not {self.threading!r}")
        if self.queue_size < 1 or self.queue_limit < self.queue_size:
            raise _refused(f"1 <= queue_size <= queue_limit must hold, not {self.queue_size}, {self.queue_limit}")
        for option in "replicas", "reorder_size", "buckets":
            if not _is_count(count := getattr(self, option)):
                raise _refused(f"{option}= is a number from 1 up, not {count!r}")
        if not 0 <= self.helping <= 1:
            raise _refused(f"helping= is a share from 0 to 1, not {self.helping!r}")
        for option, known in _KNOWN.items():
            if (value := getattr(self, option)) not in known:
                raise _refused(f"{option}= is one of {', '.join(map(repr, known))}, not {value!r}")
        for option in "quantum", "slice_seconds":
            if not (seconds := getattr(self, option)) > 0:
                raise _refused(f"{option}= is a number of seconds above 0, not {seconds!r}")
        if self.partitioner is not None and not callable(self.partitioner):
            raise _refused(f"partitioner= is a function from a key to a number, not {self.partitioner!r}")

    @property
    def most_threads(self) -> int:
        """How many workers a run begins with, where not every operator has one of its own."""
        if self.threading == "manual":
            return 1
        return available_cores() if self.threads == "auto" else self.threads

    def resolved_policy(self) -> SchedulingPolicy:
        return resolve_policy("last-in-pipeline" if self.threading == "manual" else self.policy)

    def elasticity(self, by_default: bool) -> Elastic | None:
        """What is found by itself; `by_default` says whether it is where the user says nothing about it."""
        if self.threading == "manual" or self.elastic is False or (self.elastic is None and not by_default):
            return None
        chosen = self.elastic if isinstance(self.elastic, Elastic) else Elastic()
        return chosen if self.threading == "dynamic" else replace(chosen, threads="fixed")

    def settings(self, has_gil: bool) -> Settings:
        """What that means for the run."""
        has_processes = self.workers == "processes"
        return Settings(
            queue_size=self.queue_size,
            queue_limit=self.queue_limit,
            quantum_seconds=self.quantum,
            chunk_seconds=self.slice_seconds,
            record_arrivals=self.record_arrivals,
            replicas=self.replicas,
            stateless_replicas=max(self.most_threads, self.replicas) if has_processes else 0,
            has_companions=has_processes,
            has_replicas=self.threading != "manual",
            help_share=self.helping,
            has_gil=has_gil,
            reorder=_REORDER[self.reorder],
            reorder_size=self.reorder_size,
            split=_SPLITS[self.split],
            worklist=_KEYED_QUEUES[self.keyed_queue],
            buckets=self.buckets,
            partitioner=self.partitioner,
            fuses=self.fuse and self.threading != "dedicated",
            port=self.port,
        )


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _refused(why: str) -> FlowError:
    return FlowError(f"engine 'local': {why}")
