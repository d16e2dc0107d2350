"""What controllers learn from signals that does not depend on how many threads and replicas there are.

How many tuples reach an operator for each one that is read (PRESPS, equations 3 and 4), what a tuple costs it, and how
many wait on the way to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Set

from penstock.elasticity.signals import OperatorSignals, Signals

_FORGETTING_SECONDS = 3.0
_CREEP = 1.05
"""The least waiting that was seen is believed a little less every second: what is waited for may have become slower."""


class RunningRatio:
    """So much for each of so many, where what is long ago counts less and less.

    >>> ratio = RunningRatio()
    >>> ratio.add(8.0, 2.0, seconds=1.0)
    >>> ratio.value
    4.0
    >>> ratio.add(0.0, 0.0, seconds=60.0)  # nothing is learnt from nothing
    >>> ratio.value
    4.0
    """

    def __init__(self) -> None:
        self._amount = self._count = 0.0

    def add(self, amount: float, count: float, seconds: float) -> None:
        """What came in a period of so many seconds."""
        if count <= 0:
            return
        kept = math.exp(-seconds / _FORGETTING_SECONDS)
        self._amount = kept * self._amount + amount
        self._count = kept * self._count + count

    @property
    def value(self) -> float:
        return self._amount / self._count if self._count else 0.0

    def __bool__(self) -> bool:
        return self._count > 0


class Learnt:
    """What is known of a flow's operators by now."""

    def __init__(self) -> None:
        self.shares = EdgeShares()
        self._costs: dict[str, TupleCost] = defaultdict(TupleCost)

    def add(self, signals: Signals) -> None:
        """A period more."""
        self.shares.add(signals)
        for name, one in signals.operators.items():
            if one.handled:
                self._costs[name].add(one, signals.seconds)

    @property
    def costs(self) -> Mapping[str, TupleCost]:
        """Of the operators that have worked on something; also of sources, for each tuple that they read."""
        return self._costs

    def cpu_seconds_a_tuple(self, names: Set[str] | None = None) -> float:
        """Of the whole flow, or of these operators, for each tuple that is read."""
        known = self._costs.items()
        return sum(self.shares[name] * cost.cpu_seconds for name, cost in known if names is None or name in names)

    def waiting(self, signals: Signals, name: str) -> float:
        """Tuples that wait for an operator: before it, further up, and at the sources."""
        share = self.shares[name]
        one = signals.operators[name]
        total, seen, level = one.queue_length + signals.backlog * share, set(), list(one.inputs)
        while level:
            before = level.pop()
            writer = signals.operators.get(before)
            if writer is None or before in seen:
                continue
            seen.add(before)
            level += writer.inputs
            if self.shares[before]:  # as many as they will be when they come here
                total += writer.queue_length * share / self.shares[before]
        return total


class EdgeShares:
    """Equations 3 and 4: how many tuples reach an operator for each one that is read, along all ways.

    >>> read = OperatorSignals("in", received=100, emitted=100, is_source=True)
    >>> split = OperatorSignals("split", received=50, emitted=500, inputs={"in": 100})
    >>> count = OperatorSignals("count", received=300, inputs={"split": 400})
    >>> shares = EdgeShares()
    >>> shares.add(Signals(1.0, 1.0, {one.name: one for one in (read, split, count)}))
    >>> shares["in"], shares["split"], shares["count"]
    (1.0, 1.0, 8.0)
    """

    def __init__(self) -> None:
        self._of_edges: dict[tuple[str, str], RunningRatio] = defaultdict(RunningRatio)
        """By who sends and who receives: tuples sent for each that the first has processed."""
        self._of_sources: dict[str, RunningRatio] = defaultdict(RunningRatio)
        self._found: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        return self._found.get(name, 0.0)

    def add(self, signals: Signals) -> None:
        """A period more; where nothing was processed, what was known stays."""
        sources = [name for name, one in signals.operators.items() if one.is_source]
        read = sum(signals.operators[name].emitted for name in sources)
        for name, one in signals.operators.items():
            if one.is_source:
                self._of_sources[name].add(one.emitted, read, signals.seconds)
            for before, sent in one.inputs.items():
                if (writer := signals.operators.get(before)) is not None:
                    self._of_edges[before, name].add(sent, writer.handled, signals.seconds)
        self._found = {}
        for name, one in signals.operators.items():
            if one.is_source:
                known = self._of_sources[name]
                self._found[name] = known.value if known else 1 / len(sources)
            else:
                self._found[name] = sum(self._of_edge(before, name, sources) * self[before] for before in one.inputs)

    def _of_edge(self, before: str, name: str, sources: list[str]) -> float:
        """What is read goes to every reader, as long as nothing else was seen."""
        known = self._of_edges[before, name]
        return known.value if known else float(before in sources)


class TupleCost:
    """What a tuple costs an operator: an honest running estimate, and how it depends on the number of replicas."""

    def __init__(self) -> None:
        self._cpu: dict[int, RunningRatio] = defaultdict(RunningRatio)
        """Core seconds by number of replicas."""
        self._recent = RunningRatio()
        self.waiting_seconds = math.inf
        """The least that it has waited for a tuple lately, for something else than a core."""

    def add(self, one: OperatorSignals, seconds: float) -> None:
        """A period in which it has worked on something."""
        self._cpu[one.replicas].add(one.cpu_seconds, one.handled, seconds)
        self._recent.add(one.cpu_seconds, one.handled, seconds)
        waited = max(0.0, one.busy_seconds - one.cpu_seconds) / one.handled
        self.waiting_seconds = min(self.waiting_seconds * _CREEP**seconds, waited)

    @property
    def cpu_seconds(self) -> float:
        """As it was lately, with however many replicas."""
        return self._recent.value

    @property
    def seconds(self) -> float:
        """Of one worker, for a tuple."""
        return self.cpu_seconds + self.waiting_seconds

    @property
    def waits(self) -> bool:
        """Whether it needs a core less than half of the time."""
        return self.waiting_seconds > self.cpu_seconds

    def at(self, replicas: int) -> float:
        """Seconds a tuple with so many replicas: as seen, or on the line through what was seen with fewer and more."""
        known = {count: ratio.value for count, ratio in self._cpu.items()}
        if replicas in known or len(known) == 1:
            return known.get(replicas, next(iter(known.values()))) + self.waiting_seconds
        low, high = sorted(sorted(known, key=lambda count: (abs(count - replicas), count))[:2])
        slope = max(0.0, (known[high] - known[low]) / (high - low))
        return max(min(known.values()), known[low] + slope * (replicas - low)) + self.waiting_seconds
