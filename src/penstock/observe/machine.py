"""What the machine says of itself: cores that this process may use, and how busy all of them are."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_OLD_QUOTA, _OLD_PERIOD = (Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{what}_us") for what in ("quota", "period"))
_STAT = Path("/proc/stat")


def available_cores() -> int:
    """Cores that this process may run on, and as many as its container may use.

    >>> 1 <= available_cores() <= os.cpu_count()
    True
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, cgroup_limit())))


def cgroup_limit(quota: Path = _CGROUP_QUOTA, old: tuple[Path, Path] = (_OLD_QUOTA, _OLD_PERIOD)) -> float:
    """Cores that the control group allows; infinity where it says nothing."""
    try:
        words = quota.read_text().split() if quota.exists() else [path.read_text().strip() for path in old]
        share, period = words
        return float(share) / float(period) if share not in ("max", "-1") else math.inf
    except (OSError, ValueError):
        return math.inf


@dataclass(frozen=True)
class Ticks:
    """What all cores together have done so far, in hundredths of a second."""

    used: float = 0.0
    idle: float = 0.0
    stolen: float = 0.0
    """Wanted here, and given to another machine on the same hardware."""


def ticks(stat: Path = _STAT) -> Ticks:
    """As the kernel counts them; all zero where it does not say."""
    try:
        counted = [float(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
        user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = counted
    except (OSError, ValueError):
        return Ticks()
    return Ticks(user + nice + system + interrupts + soft_interrupts, idle + waiting, stolen)


class SystemCpu:
    """The share of all cores' time that was used from one look to the next, by neighbours too."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._before = ticks(stat)

    def share(self) -> float:
        before, self._before = self._before, ticks(self._stat)
        taken = self._before.used + self._before.stolen - before.used - before.stolen
        total = taken + self._before.idle - before.idle
        return taken / total if total > 0 else 0.0
