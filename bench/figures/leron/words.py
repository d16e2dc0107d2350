"""The words of Leron, a thread for each instance of an operator, and who helps whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elasticity.shown import changes

import penstock as ps
from penstock.elasticity.signals import Signals
from penstock.engines.simulated.platforms import VirtualCores
from penstock.runtime.virtual import Virtual

COMPUTE, EXCLAIM, HELPING = 113.76, 146.58, 86.78
"""Table 1: tuples a millisecond, of `compute`, of `exclaim1`, and of a `compute` that does the work of both."""
WORD = 205.0
"""Not told; what 1.4 times the throughput, and back-pressure in 30% of the time, come from."""
PERIOD = 1.0
CORES = 16
"""Two m4.2xlarge."""
SETTING = (
    "Simulated on 16 cores, a thread for each instance, with the costs of table 1 in milliseconds instead of "
    "microseconds, and ten minutes instead of an hour: compute 8.8, exclaim1 6.8, and both in a helper 11.5, for it "
    "has the tuple at hand. word is not told; it makes 205 a second, from which the paper's 1.4 times and its 30% both "
    "follow. exclaim2 (2.0) holds nothing up. Queues have room for 2,000 tuples; from a full one (the high water mark) "
    "to a half full one (the low) those before it stand still. Leron is equation 1 as it is printed, with a step of "
    "0.005 in each second."
)
_DELTA = 0.005
_FULL = 0.05


@dataclass(frozen=True)
class Seen:
    """A second of a run."""

    time: float
    compute: int
    exclaim1: int
    helped: int
    """Tuples that a helper has processed with the function of `exclaim1`."""
    out: int
    full_share: float
    """How much of it `exclaim1` had no room."""
    still_share: float
    """How much of it the spout stood still, as it does under back-pressure."""
    ratio: float


class Recorder(ps.Controller):
    """Changes nothing, and keeps what it is shown."""

    name = "recorder"
    settles = False

    def __init__(self, helped: Callable[[], int]) -> None:
        """`helped`: how many tuples helpers have worked on so far."""
        self.seen: list[Seen] = []
        self._helped = helped
        self._helped_before = 0

    def __deepcopy__(self, memo: object) -> Recorder:
        return self

    def decide(self, signals: Signals) -> Sequence[ps.Change]:
        ops = signals.operators
        ratio = signals.helping.get(("compute", "exclaim1"), 0.0)
        helped, self._helped_before = self._helped() - self._helped_before, self._helped()
        counts = (ops["compute"].received, ops["exclaim1"].received, helped, ops["out"].received)
        self.seen.append(Seen(signals.time, *counts, ops["exclaim1"].full_share, ops["compute"].full_share, ratio))
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


class Instances(ps.engines.Simulated):
    """The simulated engine, where it matters in whose thread a function is called."""

    helped = 0
    helper_seconds = 0.0

    def platform(self) -> VirtualCores:
        found = super().platform()
        self._driver: Virtual = found.driver
        return found

    def exclaim_seconds(self) -> float:
        """A helper has the tuple at hand: nothing has to be sent to `exclaim1` and read there."""
        worker = self._driver.current
        if worker is None or worker.only is None or worker.only.name != "compute":
            return 1 / EXCLAIM
        seconds = 1 / HELPING - 1 / COMPUTE
        self.helped += 1
        self.helper_seconds += seconds
        return seconds


def run(system: str, seconds: float, computes: int = 2, slower: float = 1.0) -> dict[str, Any]:
    """`slower`: how many times as long `compute` takes."""
    recorder, numbers = Recorder(lambda: engine.helped), iter(range(1 << 62))

    def leave(word: int) -> None:
        assert word == next(numbers), "words are missing, or overtook each other"

    flow = ps.Flow("words")
    stream = flow.read(ps.sources.generate(_itself), name="word")
    stream = stream.map(_itself, name="compute", replicas=computes).map(_itself, name="exclaim1")
    stream.map(_itself, name="exclaim2").write(ps.sinks.call(leave), name="out")
    helpers: dict[str, bool | ps.Controller] = {"Heron": False, "Leron": Leron(), "Penstock": True}
    engine = Instances(
        cores=CORES,
        threading="dedicated",
        costs={
            "word": 1 / WORD,
            "compute": slower / COMPUTE,
            "exclaim1": lambda word: engine.exclaim_seconds(),
            "exclaim2": 0.002,
        },
        machine=ps.engines.Machine(crowding_share=0.0),
        queue_size=2000,
        reorder_size=4,
        seconds=seconds,
        elastic=ps.Elastic(threads="fixed", replicas=recorder, helping=helpers[system], period=PERIOD),
    )
    report = flow.run(engine)
    decided = [(one.time, one.after) for one in changes(report, "helping")]
    return {
        "seen": [list(asdict(one).values()) for one in recorder.seen],
        "ratios": decided,
        "helper_seconds": engine.helper_seconds / max(1, engine.helped),
    }


def seen_of(result: dict[str, Any]) -> list[Seen]:
    return [Seen(*one) for one in result["seen"]]


def _itself(word: int) -> int:
    return word
