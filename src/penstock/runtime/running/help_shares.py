"""How much of their readers' work workers do, and when they ask for help themselves."""

from __future__ import annotations

from collections.abc import Mapping

PATIENT_SECONDS = 0.002
"""Under a GIL: four times the interval at which threads take it from each other."""
PROMPT_SECONDS = 0.0002
"""Where no thread has to wait for a GIL: a few times what it takes to wake a worker."""


class HelpShares:
    """By helper and helped operator: how much of its output a worker processes itself while its reader is busy.

    >>> shares = HelpShares(default_share=0.0, has_gil=False)
    >>> shares.set_share("parse", "score", 0.5)
    >>> shares.share("parse", "score"), shares.share("read", "parse"), shares.is_on
    (0.5, 0.0, True)
    """

    def __init__(self, default_share: float, has_gil: bool) -> None:
        self._default_share = default_share
        self._has_gil = has_gil
        self.shares: Mapping[tuple[str, str], float] = {}
        self._left: dict[tuple[str, str], float] = {}
        """Of a tuple that was to be helped with: chunks of one tuple are helped with too."""
        self.is_on = default_share > 0
        """Whether any worker helps at all."""
        self.help_seconds = PATIENT_SECONDS if has_gil else PROMPT_SECONDS
        """How long an operator must be busy before a worker asks for help with what else is ready."""

    def share(self, helper: str, helped: str) -> float:
        return self.shares.get((helper, helped), self._default_share)

    def count(self, helper: str, helped: str, tuples: int) -> int:
        """How many of so many tuples a helper is to process.

        >>> shares = HelpShares(default_share=0.4, has_gil=False)
        >>> [shares.count("parse", "score", tuples=1) for _ in range(5)]
        [0, 0, 1, 0, 1]
        """
        share = self.share(helper, helped)
        if not share:
            return 0
        wanted = tuples * share + self._left.get((helper, helped), 0.0)
        self._left[helper, helped] = wanted % 1.0
        return min(tuples, int(wanted))

    def set_share(self, helper: str, helped: str, share: float) -> None:
        """From the next chunk on."""
        self.shares = {**self.shares, (helper, helped): share}
        self.is_on = any(self.shares.values()) or self._default_share > 0

    def is_wanted(self, busy_seconds: float, most_seconds: float, ready: int) -> bool:
        """Whether what else is ready waits too long for a worker that is about to be busy for so many seconds.

        The last of several that are ready waits for all before it. Under a GIL it would wait for them anyway.

        >>> shares = HelpShares(default_share=0.0, has_gil=False)
        >>> [shares.is_wanted(0.0001, float("inf"), ready) for ready in (1, 2, 3)]
        [False, False, True]
        """
        waiting_seconds = busy_seconds if self._has_gil else ready * busy_seconds
        return waiting_seconds > min(self.help_seconds, most_seconds)

    def be_prompt(self) -> None:
        """From now on a controller sees to it that threads don't fight for a GIL: ask for help early."""
        self.help_seconds = PROMPT_SECONDS
