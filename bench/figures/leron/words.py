"""The words of Leron, a thread for each instance of an operator, and who helps whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import penstock as ps
from elasticity.shown import changes
from penstock.elasticity.signals import Signals

COMPUTE, EXCLAIM, HELPING = 113.76, 146.58, 86.78
"""Table 1: tuples a millisecond, of `compute`, of `exclaim1`, and of a `compute` that does the work of both."""
HOUR = 3600.0
PERIOD = 1.0
CORES = 16
"""Two m4.2xlarge."""
SETTING = (
    "Simulated on 16 cores, a thread for each instance, with the costs of table 1 in milliseconds instead of "
    "microseconds, so that an hour has 0.7 million tuples. A helper's tuple takes 11.5, less than the 8.8 of compute and "
    "the 6.8 of exclaim1: the difference, 4.1, is what a tuple costs on its way between two instances, and all pay it. "
    "word (0.5) and exclaim2 (0.4), which are not told, hold nothing up. Queues have room for 2,000 tuples; from a full "
    "one (the high water mark) to a half full one (the low) those before it stand still. Leron is equation 1 as it is "
    "printed, with steps of 0.1 a second."
)
_DELTA = 0.1
_TRAVEL = 1 / COMPUTE + 1 / EXCLAIM - 1 / HELPING
_FULL = 0.05


@dataclass(frozen=True)
class Seen:
    """A second of a run."""

    time: float
    compute: int
    exclaim1: int
    out: int
    full_share: float
    """How much of it those before `exclaim1` stood still."""
    ratio: float


class Recorder(ps.Controller):
    """Changes nothing, and keeps what it is shown."""

    name = "recorder"
    settles = False

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def __deepcopy__(self, memo: object) -> Recorder:
        return self

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        ops = signals.operators
        ratio = signals.helping.get(("compute", "exclaim1"), 0.0)
        counts = (ops["compute"].received, ops["exclaim1"].received, ops["out"].received)
        self.seen.append(Seen(signals.time, *counts, ops["exclaim1"].full_share, ratio))
        return []


class Leron(ps.Controller):
    """Equation 1: more help each time it is asked for, less each time that the helper itself is congested."""

    name = "leron"
    settles = False

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        ratio = signals.helping.get(("compute", "exclaim1"), 0.0)
        if signals.operators["exclaim1"].full_share > _FULL:
            after, why = ratio + (1 - ratio) * _DELTA, "a help request"
        elif signals.operators["compute"].full_share > _FULL:
            after, why = ratio - ratio * _DELTA, "back-pressure of its own"
        else:
            return []
        return [ps.Change("helping", "compute > exclaim1", ratio, after, why)]


def run(helping: str, seconds: float, compute_slower: float = 1.0) -> dict[str, Any]:
    """`compute_slower`: how many times as long `compute` takes."""
    recorder, numbers = Recorder(), iter(range(1 << 62))

    def leave(word: int) -> None:
        assert word == next(numbers), "words are missing, or overtook each other"

    flow = ps.Flow("words")
    stream = flow.read(ps.sources.generate(_itself), name="word")
    stream = stream.map(_itself, name="compute", replicas=2).map(_itself, name="exclaim1")
    stream.map(_itself, name="exclaim2").write(ps.sinks.call(leave), name="out")
    helpers: dict[str, bool | ps.Controller] = {"Heron": False, "Leron": Leron(), "Penstock": True}
    engine = ps.engines.Simulated(
        cores=CORES,
        threading="dedicated",
        costs={
            "word": 0.0005,
            "compute": compute_slower * (1 / COMPUTE - _TRAVEL),
            "exclaim1": 1 / EXCLAIM - _TRAVEL,
            "exclaim2": 0.0004,
            "out": 1e-9,
        },
        machine=ps.engines.Machine(moved_seconds=_TRAVEL, crowding_share=0.0),
        queue_size=2000,
        seconds=seconds,
        elastic=ps.Elastic(threads="fixed", replicas=recorder, helping=helpers[helping], period=PERIOD),
    )
    report = flow.run(engine)
    decided = [(one.time, one.after) for one in changes(report, "helping")]
    return {"seen": [list(asdict(one).values()) for one in recorder.seen], "ratios": decided}


def seen_of(result: dict[str, Any]) -> list[Seen]:
    return [Seen(*one) for one in result["seen"]]


def _itself(word: int) -> int:
    return word
