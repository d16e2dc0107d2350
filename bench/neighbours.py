"""What others have taken of this machine while something ran: cores that a hypervisor gave to somebody else.

On a shared machine two threads can't be twice as fast as one while a third of the second core is away. Rounds in which
little was taken show what a program does; the others show what its neighbours did.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

_STAT = Path("/proc/stat")
_QUIET_SHARE = 0.03
_FEWEST = 7


class Contest:
    """Contestants that run in rounds, and what each of them took in each round that was quiet.

    Rounds are played until so many were quiet, or twice as many were played; where hardly any was, the quietest count.
    """

    def __init__(self, contestants: Mapping[str, Callable[[], float]], rounds: int) -> None:
        self.played = 0
        found: list[tuple[float, dict[str, float]]] = []
        while sum(stolen <= _QUIET_SHARE for stolen, _ in found) < rounds and self.played < 2 * rounds:
            found.append(self._round(contestants))
        found.sort(key=lambda one: one[0])
        self.quiet = sum(stolen <= _QUIET_SHARE for stolen, _ in found)
        counted = [taken for _, taken in found[: max(self.quiet, min(_FEWEST, rounds))]]
        self.seconds = {name: [taken[name] for taken in counted] for name in contestants}

    def _round(self, contestants: Mapping[str, Callable[[], float]]) -> tuple[float, dict[str, float]]:
        """What others have taken during the worst of its runs, and what each contestant took."""
        neighbours, stolen, taken = Neighbours(), 0.0, {}
        # To and fro, so that a machine that slows down or speeds up favours nobody.
        for name in list(contestants) if self.played % 2 else reversed(list(contestants)):
            neighbours.share()
            taken[name] = contestants[name]()
            stolen = max(stolen, neighbours.share())
        self.played += 1
        return stolen, taken

    def ratio(self, slow: str, fast: str) -> float:
        """How many times as fast the second one is: the median over the rounds."""
        return statistics.median(self.ratios(slow, fast))

    def ratios(self, slow: str, fast: str) -> list[float]:
        return [one / other for one, other in zip(self.seconds[slow], self.seconds[fast], strict=True)]


class Neighbours:
    """The share of the time that this machine has asked for and others got, from one look to the next."""

    def __init__(self) -> None:
        self._before = _used_and_stolen()

    def share(self) -> float:
        used, stolen = _used_and_stolen()
        before, self._before = self._before, (used, stolen)
        asked = used + stolen - sum(before)
        return (stolen - before[1]) / asked if asked else 0.0


def _used_and_stolen() -> tuple[int, int]:
    """In hundredths of a second, all cores together; nothing is ever stolen where nobody tells."""
    if not _STAT.exists():
        return 0, 0
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, _STAT.read_text().split()[1:9])
    return user + nice + system + interrupts + soft_interrupts, stolen
