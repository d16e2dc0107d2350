"""The loop of elasticity: measure, ask, apply, write down. The only code that changes numbers by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from penstock.elasticity.changes import Change
from penstock.elasticity.loop import Arbiter, Elastic
from penstock.elasticity.plant import Plant
from penstock.elasticity.signals import Signals
from penstock.errors import PolicyError, describe_exception
from penstock.observe.journal import Decision, Journal


class Steering:
    """Measures a plant, asks the controllers, and has the plant do what they want."""

    def __init__(self, plant: Plant, elastic: Elastic, decisions: list[Decision]) -> None:
        self._plant = plant
        self._applies = elastic.apply
        self._decisions = decisions
        self._arbiter = Arbiter(elastic)
        self._journal = Journal(elastic.journal)

    def step(self) -> None:
        """A period is over, or a batch."""
        signals = self._plant.signals()
        who, changes = self._arbiter.step(signals)
        for change in changes:
            if self._applies and not self._applied(who, change):
                continue
            decision = Decision(
                signals.time,
                who,
                change.operator,
                change.before,
                change.after,
                change.reason,
                {"what": change.what, **_seen(signals, change)},
                is_applied=self._applies,
            )
            self._decisions.append(decision)
            self._journal.add(decision)

    def _applied(self, who: str, change: Change) -> bool:
        try:
            return self._plant.apply(change)
        except Exception as error:
            raise PolicyError(
                f"controller {who!r} wants what can't be done, {change}: {describe_exception(error)}"
            ) from error


class Periods:
    """Tells when a period is over, on a grid: what comes back after so many periods is to be seen as such.

    >>> times = iter([0.0, 0.9, 2.5, 2.9, 3.0])
    >>> periods = Periods(1.0, lambda: next(times))
    >>> [periods.is_over() for _ in range(4)]
    [False, True, False, True]
    """

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._now = now
        self._due = now() + seconds

    def is_over(self) -> bool:
        """Whether one is; told once for each."""
        now = self._now()
        if now < self._due:
            return False
        self._due += self._seconds * ((now - self._due) // self._seconds + 1)
        return True


def _seen(signals: Signals, change: Change) -> dict[str, object]:
    """The figures that a decision was made on: the flow's, and the operator's own."""
    seen: dict[str, object] = {
        "seconds": round(signals.seconds, 6),
        "throughput": round(signals.throughput, 3),
        "threads": signals.threads,
        "utilisation": round(signals.utilisation, 4),
        "cores_used": round(signals.cores_used, 4),
        "system_cpu": round(signals.system_cpu, 4),
        "offered_rate": signals.offered_rate,
        "backlog": signals.backlog,
    }
    one = signals.operators.get(change.measured)
    if one is not None:
        own = asdict(one)
        seen |= {name: own[name] for name in ("received", "emitted", "busy_seconds", "cpu_seconds", "queue_length")}
        seen |= {name: own[name] for name in ("full_share", "replicas", "hottest_share")}
    return seen
