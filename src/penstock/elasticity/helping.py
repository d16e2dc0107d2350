"""How much of its output an operator processes with the next one's function (Leron, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.elasticity.changes import SetHelping
from penstock.elasticity.learning import Learnt
from penstock.elasticity.signals import Controller, OperatorSignals, Signals

_CONGESTED = 0.05
_NEARLY_EMPTY = 0.05
"""A queue with less than that runs dry: its operator has too little to do."""
_NEARLY_NOTHING = 0.02
_MOST = 0.95
_OTHER_COSTS = 0.05
"""A ratio that what tuples cost now speaks for by so much more or less is set anew."""
_TRIM = 0.005
_TURNS = 3
"""After so many turns up and down a ratio is as right as it gets."""


class Helping(Controller):
    """A ratio for each pair of operators with threads of their own, so that both are busy for equally long.

    With `n` threads each and costs `c` of a tuple for helper and helped, that is
    `(n_helper * c_helped - n_helped * c_helper) / (c_helped * (n_helper + n_helped))`. An operator asks for help when
    its input is full and its output is not; one that helps doesn't ask; sources don't help. Then the ratio is trimmed
    in small steps, until it has turned often enough.
    """

    name = "helping"
    settles = False

    def __init__(self, trim: float = _TRIM) -> None:
        self._trim = trim
        self._learnt = Learnt()
        self._pairs: dict[tuple[str, str], _Pair] = {}

    def see(self, signals: Signals) -> None:
        self._learnt.add(signals)

    def decide(self, signals: Signals) -> Sequence[SetHelping]:
        self.see(signals)
        if not signals.has_thread_each:
            return []  # any thread goes where work is
        ratios = dict(signals.helping)
        changes = []
        for helped in reversed(
            list(signals.operators.values())
        ):  # from the end: helpers there relieve those before them
            for name in helped.inputs:
                helper = signals.operators.get(name)
                if helper is None or helper.is_source:
                    continue
                change = self._of_pair(signals, helper, helped, ratios)
                if change is not None:
                    ratios[name, helped.name] = change.after
                    changes.append(change)
        return changes

    def _of_pair(
        self, signals: Signals, helper: OperatorSignals, helped: OperatorSignals, ratios: dict[tuple[str, str], float]
    ) -> SetHelping | None:
        key = (helper.name, helped.name)
        ratio = ratios.get(key, 0.0)
        is_full = helped.full_share >= _CONGESTED and signals.output_full_share(helped.name) < _CONGESTED
        if not ratio and not (is_full and helped.can_be_helped and self._may_help(key, ratios)):
            return None
        fair = self._fair(signals, helper, helped)
        if fair is None:
            return None
        if not ratio or abs(fair - self._pairs.get(key, _Pair(ratio)).fair) > _OTHER_COSTS:
            self._pairs[key] = _Pair(fair)
            after, reason = (
                fair,
                f"it is full {helped.full_share:.0%} of the time; so both are equally busy",
            )
        else:
            pair = self._pairs.setdefault(key, _Pair(fair))
            # Where sources can be read at any speed, a helper's input is always full; that alone is nothing.
            is_too_much = helper.full_share >= _CONGESTED and helped.queue_share < _NEARLY_EMPTY
            step = pair.step(is_full, is_too_much) * self._trim
            if step:
                pair.fair = fair  # help itself changes what a tuple costs on average
            after = min(_MOST, max(0.0, ratio + step))
            reason = (
                f"it is full {helped.full_share:.0%} of the time"
                if step > 0
                else f"it runs dry, and the helper's own input is full {helper.full_share:.0%} of the time"
            )
        after = 0.0 if after < _NEARLY_NOTHING else round(after, 4)
        return None if after == ratio else SetHelping(*key, before=ratio, after=after, reason=reason)

    @staticmethod
    def _may_help(pair: tuple[str, str], ratios: dict[tuple[str, str], float]) -> bool:
        """A helper isn't helped itself, and who is helped helps nobody: else all would do the next one's work."""
        helper, helped = pair
        return not any(
            share and (other_helped == helper or other_helper == helped)
            for (other_helper, other_helped), share in ratios.items()
        )

    def _fair(self, signals: Signals, helper: OperatorSignals, helped: OperatorSignals) -> float | None:
        costs, shares = self._learnt.costs, self._learnt.shares
        if helper.name not in costs or helped.name not in costs or not shares[helper.name]:
            return None
        own = costs[helper.name].seconds
        others = costs[helped.name].seconds * shares[helped.name] / shares[helper.name]
        if others <= 0:
            return None
        here, there = helper.replicas, helped.replicas
        return min(_MOST, max(0.0, (here * others - there * own) / (others * (here + there))))


class _Pair:
    """How a ratio came about, and how it was trimmed."""

    def __init__(self, fair: float) -> None:
        self.fair = fair
        """What the costs spoke for when it was last set or trimmed."""
        self._last = 0
        self._turns = 0

    def step(self, is_too_little: bool, is_too_much: bool) -> int:
        """Up, down, or not at all."""
        step = int(is_too_little) - int(is_too_much)
        if self._turns >= _TURNS or not step:
            return 0
        self._turns += self._last == -step
        self._last = step
        return step
