"""How much of its output an operator processes with the next one's function (Leron, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.elasticity.changes import SetHelping
from penstock.elasticity.signals import Controller, OperatorSignals, Signals

_STEP = 0.2
_CONGESTED = 0.05
_NEARLY_NOTHING = 0.02
_RELIEVED = 0.1
_RELIEVED_PERIODS = 10


class Helping(Controller):
    """A ratio for each pair of operators: up when the second asks for help, down when the first is congested itself.

    Help ends when a helper needs help; it fades once the helped one's queue has been nearly empty for a while.
    """

    name = "helping"

    def __init__(self, step: float = _STEP) -> None:
        self._step = step
        self._ratios: dict[tuple[str, str], float] = {}
        self._relieved: dict[str, int] = {}
        """For how many periods an operator has had next to nothing waiting."""

    def decide(self, signals: Signals) -> Sequence[SetHelping]:
        changes = []
        for helped in signals.operators.values():
            is_relieved = not helped.full_share and helped.queue_share < _RELIEVED
            self._relieved[helped.name] = self._relieved.get(helped.name, 0) + 1 if is_relieved else 0
            for name in helped.inputs:
                helper = signals.operators.get(name)
                if helper is not None and (change := self._of_pair(helper, helped)) is not None:
                    changes.append(change)
        return changes

    def _of_pair(self, helper: OperatorSignals, helped: OperatorSignals) -> SetHelping | None:
        pair = (helper.name, helped.name)
        ratio = self._ratios.get(pair, 0.0)
        asks = helped.can_be_helped and helped.full_share >= _CONGESTED
        # A helper that is congested because it can't write on is not too busy to help: on the contrary.
        is_congested = helper.full_share >= _CONGESTED and not asks
        # Helpers of helpers: a chain in which everyone does the next one's work.
        is_helped = any(other > 0 for (_, name), other in self._ratios.items() if name == helper.name)
        if asks and is_helped:
            after, reason = 0.0, "the helper is being helped itself"
        elif is_congested and ratio:
            after = ratio - ratio * self._step
            reason = f"the helper's own input is full {helper.full_share:.0%} of the time"
        elif asks:
            after = ratio + (1 - ratio) * self._step
            reason = f"it is full {helped.full_share:.0%} of the time and asks for help"
        elif ratio and self._relieved[helped.name] > _RELIEVED_PERIODS:
            after, reason = ratio - ratio * self._step, f"its queue is down to {helped.queue_share:.0%}"
        else:
            return None
        if after < _NEARLY_NOTHING:
            after = 0.0
        if after == ratio:
            return None
        self._ratios[pair] = after
        return SetHelping(*pair, before=round(ratio, 4), after=round(after, 4), reason=reason)
