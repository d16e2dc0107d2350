"""Replicas, one at a time, for the operator that holds the others up (C-Stream, section 4.2 and algorithm 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.elasticity.changes import Change, SetReplicas
from penstock.elasticity.signals import Controller, OperatorSignals, Signals

CONGESTED = 0.01
_PAYS = 0.03
_IDLE_PERIODS = 3
_ALONE_SECONDS = 10.0
"""For so long an operator is left alone after a replica that did not pay; then for twice as long."""
_ALL_BUSY = 0.98


@dataclass
class _Try:
    """A replica that was added, to see whether it pays."""

    operator: str
    before: int
    rate: float
    """Tuples a second of this operator: those before it may fall back to its pace meanwhile, for its input is full."""


@dataclass(frozen=True)
class _LeftAlone:
    """An operator to which one more than so many replicas did not pay, with so many threads."""

    replicas: int
    threads: int
    seconds: float
    until: float


class Bottleneck(Controller):
    """One replica more for an operator whose input is congested while its output is not.

    A replica with which it does no more is taken back, and its operator left alone for a while (unless there are more
    threads), each time for twice as long; unless its output is congested now, for then the bottleneck has only moved.
    When the load has gone, replicas go one by one.
    """

    name = "bottleneck"

    def __init__(self, congested: float = CONGESTED) -> None:
        self._congested = congested
        self._try: _Try | None = None
        self._left_alone: dict[str, _LeftAlone] = {}
        self._idle: dict[str, int] = {}

    def decide(self, signals: Signals) -> Sequence[Change]:
        undone = self._judge(signals)
        if undone:
            return undone
        found = self.detect(signals)
        if found is not None:
            self._try = _Try(found.name, found.replicas, _rate(found, signals))
            kind = "waits more than it works" if found.cpu_share < 0.5 else "is the bottleneck"
            reason = f"its input is full {found.full_share:.0%} of the time and its output is not: it {kind}"
            return [_replicas(found, found.replicas + 1, reason)]
        return self._fewer(signals)

    def detect(self, signals: Signals) -> OperatorSignals | None:
        """Algorithm 9. Its ratio is an average over replicas: ours have one input, and one figure."""
        if signals.utilisation > _ALL_BUSY and not signals.has_thread_each:
            return None  # no thread has time to work in one more
        for one in signals.operators.values():
            left = self._left_alone.get(one.name)
            is_left_alone = (
                left is not None
                and left.replicas <= one.replicas
                and left.threads >= signals.threads
                and signals.time < left.until
            )
            if (
                not is_left_alone
                and one.replicas < one.most_replicas
                and one.full_share >= self._congested
                and signals.output_full_share(one.name) < self._congested
                and not (signals.is_gil_bound and one.cpu_share > 0.5 and not one.has_own_process)
            ):
                return one
        return None

    def _judge(self, signals: Signals) -> Sequence[Change]:
        tried, self._try = self._try, None
        if tried is None:
            return []
        one = signals.operators.get(tried.operator)
        if one is None or one.replicas != tried.before + 1:
            return []
        rate = _rate(one, signals)
        if rate > tried.rate * (1 + _PAYS) or one.full_share < self._congested:
            return []
        if signals.output_full_share(one.name) >= self._congested:
            return []  # it does more than its readers can take
        before = self._left_alone.get(one.name)
        seconds = 2 * before.seconds if before is not None else _ALONE_SECONDS
        self._left_alone[one.name] = _LeftAlone(tried.before, signals.threads, seconds, signals.time + seconds)
        reason = f"{rate:,.0f} tuples/s is no more than {tried.rate:,.0f} without it"
        return [_replicas(one, tried.before, reason)]

    def _fewer(self, signals: Signals) -> Sequence[Change]:
        for one in signals.operators.values():
            needed = one.busy_seconds / max(signals.seconds, 1e-9)
            is_idle = one.replicas > one.least_replicas and not one.full_share and needed < 0.8 * (one.replicas - 1)
            self._idle[one.name] = self._idle.get(one.name, 0) + 1 if is_idle else 0
            if self._idle[one.name] >= _IDLE_PERIODS:
                self._idle[one.name] = 0
                self._left_alone.pop(one.name, None)
                reason = f"{one.replicas} replicas have had work for {needed:.1f}"
                return [_replicas(one, one.replicas - 1, reason)]
        return []


def _rate(one: OperatorSignals, signals: Signals) -> float:
    return one.received / max(signals.seconds, 1e-9)


def _replicas(one: OperatorSignals, after: int, reason: str) -> SetReplicas:
    return SetReplicas(one.name, before=one.replicas, after=after, reason=reason)
