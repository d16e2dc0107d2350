"""The loop of elasticity in a run: looks, asks, applies, writes down. The only code that changes numbers by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from penstock.elasticity.loop import Elastic, Loop
from penstock.elasticity.signals import Change, Signals
from penstock.errors import PolicyError, describe_exception, short_repr
from penstock.observe.journal import Decision, Journal


class Steering:
    """Called now and then; looks once a period."""

    def __init__(
        self,
        elastic: Elastic,
        now: Callable[[], float],
        read: Callable[[], Signals],
        apply: Callable[[Change, Signals], bool],
        decisions: list[Decision],
    ) -> None:
        self._elastic = elastic
        self._now = now
        self._read = read
        self._apply = apply
        self._decisions = decisions
        self._loop = Loop(elastic)
        self._due = now() + elastic.period
        self._journal = Journal(elastic.journal)

    def look(self) -> bool:
        """If it is time; whether it was."""
        if self._now() < self._due:
            return False
        # On a grid: what comes back after so many periods is to be seen as such.
        self._due += self._elastic.period * ((self._now() - self._due) // self._elastic.period + 1)
        self.step(self._read())
        return True

    def step(self, signals: Signals) -> None:
        """Ask the controllers, and do what they want."""
        who, changes = self._loop.step(signals)
        for change in changes:
            if self._elastic.apply and not self._applied(who, change, signals):
                continue
            decision = Decision(
                signals.time,
                who,
                change.operator,
                change.before,
                change.after,
                change.reason,
                {"what": change.what, **_seen(signals, change)},
                is_applied=self._elastic.apply,
            )
            self._decisions.append(decision)
            self._journal.add(decision)

    def _applied(self, who: str, change: Change, signals: Signals) -> bool:
        try:
            return self._apply(change, signals)
        except Exception as error:
            raise PolicyError(
                f"controller {who!r} wants what can't be done, {short_repr(change)}: {describe_exception(error)}"
            ) from error


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
    one = signals.operators.get(change.operator.rpartition(" > ")[2])
    if one is not None:
        own = asdict(one)
        seen |= {name: own[name] for name in ("received", "emitted", "busy_seconds", "cpu_seconds", "queue_length")}
        seen |= {name: own[name] for name in ("full_share", "replicas", "hottest_share")}
    return seen
