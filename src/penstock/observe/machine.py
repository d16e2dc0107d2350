"""What the machine says of itself: cores that this process may use, and how busy all of them are."""

from __future__ import annotations

import math
import os
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


class SystemCpu:
    """The share of all cores' time that anybody has used, from one look to the next."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._before = self._read()

    def share(self) -> float:
        before, self._before = self._before, self._read()
        total = self._before[1] - before[1]
        return (self._before[0] - before[0]) / total if total > 0 else 0.0

    def _read(self) -> tuple[float, float]:
        """Used and all, in ticks."""
        try:
            ticks = [float(word) for word in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return 0.0, 0.0
        idle = sum(ticks[3:5])
        return sum(ticks) - idle, sum(ticks)
