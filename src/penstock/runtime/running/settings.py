"""What an engine decides about a run, before there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.flow.nodes import Node
from penstock.ordering.reorder import Downstream, ReorderBuffer, Ring
from penstock.ordering.splits import Splitter
from penstock.ordering.worklists import HybridQueue, Worklist
from penstock.runtime.ports import Port


@dataclass(frozen=True)
class Settings:
    """The options of a run; nothing of it changes while the run goes on."""

    queue_size: int = 16_384
    queue_limit: int = 1 << 20
    quantum_seconds: float = 0.05
    chunk_seconds: float = 0.001
    """How much work a cell takes at once when it has time; when much is waiting, up to four times as much."""
    record_arrivals: bool = False
    closes_at_end: bool = True
    knows_changes: bool = False
    """Whether operators note which of their states have changed."""
    fuses: bool = True
    port: Callable[[str, int], Port] = Port
    """What makes the queues; tests give it hostile ones."""
    replicas: int = 1
    """Of operators that can have some and don't say how many."""
    stateless_replicas: int = 0
    """The same for functions without state, where that is another number."""
    has_companions: bool = False
    """Whether functions without state run in companion processes."""
    help_share: float = 0.0
    has_gil: bool = True
    has_replicas: bool = True
    """Whether operators may have replicas at all: on one thread they would bring nothing."""
    reorder: Callable[[int, Downstream], ReorderBuffer] = Ring
    reorder_size: int = 256
    """How many units of an operator with replicas may wait for an earlier one, or be under way."""
    split: Callable[[], Splitter] | None = None
    """Which replica of an operator without state gets which unit; `None` where each takes the next when it is free."""
    has_event_loop: bool = True
    """Whether sources that await are read on an event loop; otherwise they are waited for."""
    on_loop: Callable[[Node, Sequence[Any]], None] | None = None
    """Told what a driver loop is about to work on, where that is to cost something."""
    worklist: Callable[[], Worklist[Any]] = HybridQueue
    """How the replicas of a keyed operator share out its keys."""
    buckets: int = 64
    """Into how many buckets keys fall, each of which one replica holds at a time: far more than there are workers, so
    that a hot key shares its bucket with few others; few enough for parts of many tuples."""
    partitioner: Callable[[Any], int] | None = None
    """Which bucket a key falls into, modulo their number; by its hash, if there is none."""

    @property
    def largest_chunk(self) -> int:
        """So many tuples a cell takes at once at most, so that its writer can go on meanwhile."""
        return max(1, self.queue_size // 2)
