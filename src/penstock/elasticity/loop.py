"""The one loop of every engine: signals, controllers, changes; one at a time, in an order that is always the same.

First bounds, then the GIL's veto, demand, replicas (tasks and executors), threads, admission, helping. In the period
after a change of a controller that judges by what it sees nothing is decided: it is neither before nor after.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.elasticity.batching import BATCHES_DRAIN, Admitting, Batching
from penstock.elasticity.bottleneck import Bottleneck
from penstock.elasticity.changes import Change, SetReplicas, SetThreads
from penstock.elasticity.demand import Demand
from penstock.elasticity.helping import Helping
from penstock.elasticity.predictive import Predictive
from penstock.elasticity.signals import Controller, Signals
from penstock.elasticity.threads import Figure7, Trend, Utilisation
from penstock.errors import FlowError, PolicyError, describe_exception, short_repr

_GIL_SECONDS = 60.0
_THREADS: Mapping[str, Callable[[Elastic], Controller]] = {
    "demand": lambda elastic: Demand(elastic.drain_seconds or _DEMAND_DRAINS, of_replicas=False),
    "trend": lambda elastic: Trend(),
    "utilisation": lambda elastic: Utilisation(),
    "figure-7": lambda elastic: Figure7(),
}
_REPLICAS: Mapping[str, Callable[[Elastic], Controller]] = {
    "demand": lambda elastic: Demand(elastic.drain_seconds or _DEMAND_DRAINS, of_threads=False),
    "predictive": lambda elastic: Predictive(elastic.drain_seconds or _PREDICTIVE_DRAINS),
    "bottleneck": lambda elastic: Bottleneck(),
}
_LOOK_SECONDS = 0.25
_SETTLED_LOOK_SECONDS = 1.0
"""Where controllers judge what they have changed, one period tells enough."""
_DEMAND_DRAINS = 2.0
_PREDICTIVE_DRAINS = 60.0


@dataclass(frozen=True)
class Elastic:
    """Which numbers an engine finds by itself, and how.

    `threads` is `"demand"`, `"trend"`, `"utilisation"`, `"figure-7"` or `"fixed"`, `replicas` `"demand"`,
    `"predictive"`, `"bottleneck"` or `"fixed"`; a `ps.Controller` of your own works wherever a name does. Controllers
    look once in `period` seconds; on Spark, after each batch. What waits is to be done within `drain_seconds`.
    `most_threads`, `most_replicas` and `least_replicas` are bounds. With `apply=False` nothing is changed: the journal
    says what would have been. `journal` is a file that decisions are written to, a JSON object on a line.

    >>> Elastic(threads="fixed").threads
    'fixed'
    """

    threads: str | Controller = "demand"
    replicas: str | Controller = "demand"
    helping: bool | Controller = True
    period: float | None = None
    least_threads: int = 1
    most_threads: int | None = None
    least_replicas: int = 1
    most_replicas: int | None = None
    apply: bool = True
    journal: str | None = None
    drain_seconds: float | None = None

    def __post_init__(self) -> None:
        for option, value, known in ("threads", self.threads, _THREADS), ("replicas", self.replicas, _REPLICAS):
            if isinstance(value, str) and value != "fixed" and value not in known:
                names = ", ".join(map(repr, [*known, "fixed"]))
                raise FlowError(f"elastic: {option}= is one of {names} or a ps.Controller, not {value!r}")
        if self.period is not None and self.period <= 0:
            raise FlowError(f"elastic: period= is a number of seconds above 0, not {self.period!r}")
        if self.drain_seconds is not None and self.drain_seconds <= 0:
            raise FlowError(f"elastic: drain_seconds= is a number of seconds above 0, not {self.drain_seconds!r}")
        for option, least, most in (
            ("threads", self.least_threads, self.most_threads),
            ("replicas", self.least_replicas, self.most_replicas),
        ):
            if least < 1 or (most is not None and most < least):
                raise FlowError(f"elastic: 1 <= least_{option} <= most_{option} must hold, not {least}, {most}")

    @property
    def look_seconds(self) -> float:
        """From one look to the next: `period`, or what suits the controllers."""
        if self.period is not None:
            return self.period
        return _LOOK_SECONDS if "demand" in (self.threads, self.replicas) else _SETTLED_LOOK_SECONDS

    def for_batches(self) -> Elastic:
        """On an engine that runs stage after stage: threads are its slots, and none idles beside a busy stage.

        There, `"demand"` and `"predictive"` are the same: executors, tasks and rows in one decision.
        """
        replicas: str | Controller = self.replicas
        if replicas in ("demand", "predictive"):
            replicas = Batching(self.drain_seconds or BATCHES_DRAIN)
        return replace(self, threads="fixed", replicas=replicas, helping=False)

    def controllers(self) -> list[Controller]:
        """Copies of their own for one run, in the order in which they are asked."""
        chosen: list[Controller | None]
        if self.threads == self.replicas == "demand":
            chosen = [Demand(self.drain_seconds or _DEMAND_DRAINS)]  # one decision about both
        else:
            chosen = [self._resolved(self.replicas, _REPLICAS), self._resolved(self.threads, _THREADS)]
        if not isinstance(self.replicas, Batching):
            chosen.append(Admitting())
        if self.helping:
            chosen.append(Helping() if self.helping is True else _own_copy(self.helping))
        return [one for one in chosen if one is not None]

    def _resolved(
        self, given: str | Controller, known: Mapping[str, Callable[[Elastic], Controller]]
    ) -> Controller | None:
        if isinstance(given, Controller):
            return _own_copy(given)
        return None if given == "fixed" else known[given](self)


def _own_copy(controller: Controller) -> Controller:
    try:
        return copy.deepcopy(controller)
    except BaseException as error:
        raise PolicyError(
            f"controller {type(controller).__name__!r} can't be copied, and each run needs its own: "
            f"{describe_exception(error)}"
        ) from error


class Arbiter:
    """Asks the controllers, and lets one of them have its way."""

    def __init__(self, elastic: Elastic) -> None:
        self._controllers = elastic.controllers()
        self._decides_threads = elastic.threads != "fixed"
        self._decides_replicas = elastic.replicas != "fixed"
        # At first queues fill, and nothing is as it will be.
        self._is_settling = any(one.settles for one in self._controllers)
        self._gil_patience = _GIL_SECONDS
        self._gil_until = 0.0
        """Until when more threads are out of the question."""
        self._may_lower = True
        """Fewer threads can do as much where the GIL is the limit; unless they wait for other things as well."""

    def step(self, signals: Signals) -> tuple[str, Sequence[Change]]:
        """Who decides, and what."""
        if self._is_settling:
            self._is_settling = False
            for controller in self._controllers:
                self._called(controller, controller.see, signals)
            return "", []
        # All are asked, because all remember; the first that wants something wins.
        own = ("bounds", self._bounded(signals)), ("gil", self._veto(signals))
        asked = [(one, self._called(one, one.decide, signals)) for one in self._controllers]
        for name, changes in own:
            if real := self._real(changes, signals):
                self._is_settling = any(one.settles for one in self._controllers)
                return name, real
        for controller, changes in asked:
            if real := self._real(changes, signals):
                self._called(controller, partial(controller.accept, real), signals)
                self._is_settling = controller.settles
                return controller.name, real
        return "", []

    def _real(self, changes: Sequence[Change], signals: Signals) -> Sequence[Change]:
        return [change for change in changes if change.before != change.after and not self._is_vetoed(change, signals)]

    def _is_vetoed(self, change: Change, signals: Signals) -> bool:
        """Where the GIL was the limit, more threads are out of the question for a while, and replicas that compute."""
        if signals.time >= self._gil_until or change.after <= change.before:
            return False
        one = signals.operators.get(change.operator)
        computes = one is not None and one.cpu_share > 0.5 and not one.has_own_process
        return isinstance(change, SetThreads) or (isinstance(change, SetReplicas) and computes)

    @staticmethod
    def _called(controller: Controller, call: Callable[[Signals], Any], signals: Signals) -> Sequence[Change]:
        """What a controller wants; `PolicyError` for anything that it raises or returns instead."""
        try:
            changes = tuple(call(signals) or ())
            if strange := [change for change in changes if not isinstance(change, Change)]:
                raise TypeError(f"a controller decides on a list of ps.Change, not on {short_repr(strange[0])}")
            return changes
        except BaseException as error:
            name = controller.name or type(controller).__name__
            raise PolicyError(f"controller {name!r} failed: {describe_exception(error)}") from error

    def _bounded(self, signals: Signals) -> Sequence[Change]:
        changes: list[Change] = []
        within = min(max(signals.threads, signals.least_threads), signals.most_threads)
        if self._decides_threads and within != signals.threads:
            bounds = f"between {signals.least_threads} and {signals.most_threads}"
            changes.append(SetThreads(before=signals.threads, after=within, reason=f"threads are to be {bounds}"))
        for one in signals.operators.values():
            within = min(max(one.replicas, one.least_replicas), one.most_replicas)
            if self._decides_replicas and within != one.replicas and not one.is_source:
                bounds = f"between {one.least_replicas} and {one.most_replicas}"
                reason = f"replicas are to be {bounds}"
                changes.append(SetReplicas(one.name, before=one.replicas, after=within, reason=reason))
        return changes

    def _veto(self, signals: Signals) -> Sequence[Change]:
        """Threads that take the GIL from each other are worse than one."""
        is_vetoed = signals.time < self._gil_until
        if is_vetoed and signals.utilisation > 0.9 and signals.cores_used < 0.6 * signals.threads:
            self._gil_until, self._may_lower = 0.0, False
        may_lower = self._may_lower and self._decides_threads and signals.threads > signals.least_threads
        if not may_lower or not signals.is_gil_bound:
            return []
        reason = (
            f"threads were busy for {signals.busy_seconds / signals.seconds:.1f} cores and used "
            f"{signals.cores_used:.1f}: what they run holds the GIL"
        )
        # It is tried again later, for the load may change; each time after twice as long.
        self._gil_until, self._gil_patience = signals.time + self._gil_patience, 2 * self._gil_patience
        return [SetThreads(before=signals.threads, after=signals.least_threads, reason=reason)]
