"""PRESPS as it is printed, and DABS-Storm, which restarts whenever it changes something."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import penstock as ps
from penstock.elasticity.learning import EdgeShares
from penstock.elasticity.signals import OperatorSignals, Signals

_CRITICAL, _LOW = 0.8, 0.2
"""How busy an operator may get, and how idle, before DABS-Storm does something about it."""


class Presps(ps.Controller):
    """Equations 1 to 6 and algorithm 1: what has come will come again, and what waits is done in the same interval."""

    name = "presps"
    settles = False

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._costs = costs
        self._shares = EdgeShares()

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        self._shares.add(signals)
        wanted = {one.name: self._replicas(signals, one) for one in _sized(signals, self._costs)}
        return _to(signals, wanted, "what is expected and what waits")

    def _replicas(self, signals: Signals, one: OperatorSignals) -> int:
        came = (signals.offered_rate or 0.0) * signals.seconds * self._shares[one.name]
        waits = one.queue_length + signals.backlog * self._shares[one.name]
        return max(1, math.ceil((came + waits) * self._costs[one.name] / signals.seconds))


class Dabs(ps.Controller):
    """What comes goes on to change as it last did; an operator that will be too busy or too idle is sized anew.

    Whatever it changes, it restarts everything for it.
    """

    name = "dabs"
    settles = True

    def __init__(self, costs: Mapping[str, float], gate: Gate) -> None:
        self._costs = costs
        self._gate = gate
        self._shares = EdgeShares()
        self._before: float | None = None

    def __deepcopy__(self, memo: object) -> Dabs:
        return self  # the gate is the flow's

    def see(self, signals: Signals) -> None:
        self._shares.add(signals)
        self._before = signals.offered_rate

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        now = signals.offered_rate or 0.0
        expected = max(0.0, now + (0.0 if self._before is None else now - self._before))
        self.see(signals)
        wanted = {}
        for one in _sized(signals, self._costs):
            waits = one.queue_length + signals.backlog * self._shares[one.name]
            work = (expected * self._shares[one.name] + waits / signals.seconds) * self._costs[one.name]
            if not _LOW * one.replicas <= work <= _CRITICAL * one.replicas:
                wanted[one.name] = max(1, math.ceil(work / _CRITICAL))
        changes = _to(signals, wanted, "it is expected to be too busy or too idle")
        if changes:
            self._gate.restart(signals.time)
        return changes


class Gate:
    """What a restart does: all that is inside is lost, and nothing goes on for some seconds."""

    def __init__(self, rate: ps.rates.Rate, restart_seconds: float) -> None:
        self.now: Callable[[], float] = lambda: 0.0
        self.restarts = 0
        self._rate = rate
        self._restart_seconds = restart_seconds
        self._first_kept = 0
        """The first tuple that came after the last restart began; those before it are out, or lost."""
        self._until = 0.0

    def restart(self, now: float) -> None:
        self._first_kept = math.ceil(self._rate.count_by(now))
        self._until = now + self._restart_seconds
        self.restarts += 1

    def has_lost(self, number: int) -> bool:
        return number < self._first_kept

    def cost(self, seconds: float) -> Callable[[int], float]:
        """What is lost is not worked on, and what comes during a restart waits until it is over."""

        def of(number: int) -> float:
            return 0.0 if self.has_lost(number) else seconds + max(0.0, self._until - self.now())

        return of


def _sized(signals: Signals, costs: Mapping[str, float]) -> list[OperatorSignals]:
    return [one for name, one in signals.operators.items() if name in costs]


def _to(signals: Signals, wanted: Mapping[str, int], reason: str) -> list[ps.Change]:
    return [
        ps.Change("replicas", name, before, after, reason)
        for name, after in wanted.items()
        if (before := signals.operators[name].replicas) != after
    ]
