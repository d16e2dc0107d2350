"""The pipelines of the paper: the five queries of TPCx-BB (its table 1), and the operators that it varies.

Tuples are numbers that count up, so that order is seen at a glance. Which of them an operator lets out, and which key
one has, are drawn from the number: what comes out is known without running anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal

import penstock as ps

Key = Callable[[int, int], int]
"""From a place and a number, which together decide what is drawn."""


@dataclass(frozen=True)
class Step:
    """An operator: SL (without state), PS (partitioned state, by key) or SF (state, one after the other)."""

    kind: Literal["SL", "PS", "SF"]
    seconds: float
    """What a tuple costs."""
    selectivity: float = 1.0
    """How many tuples come out for one that goes in: a share, or a whole number."""
    key: Key | None = None
    """Drawn evenly from a thousand, if there is none."""

    def outputs(self, place: int, number: int) -> list[int]:
        """What comes of a tuple, in the step at this place of its pipeline."""
        if self.selectivity > 1:
            copies = int(self.selectivity)
            return list(range(number * copies, (number + 1) * copies))
        return [number] if self.selectivity == 1 or drawn(number, place) < self.selectivity else []

    def key_of(self, place: int, number: int) -> int:
        return (self.key or even)(~place, number)


Pipeline = tuple[Step, ...]


@dataclass(frozen=True)
class Query:
    name: str
    steps: Pipeline
    peak_cores: int
    """Up to which number of cores the paper shows it."""

    def work_of(self, place: int) -> float:
        """The seconds that a step spends on what comes of one tuple that enters the pipeline."""
        return share_of(self.steps, place) * self.steps[place].seconds

    @property
    def work(self) -> float:
        """Of all steps together."""
        return sum(map(self.work_of, range(len(self.steps))))


def _query(name: str, peak_cores: int, *steps: Step) -> Query:
    return Query(name, steps, peak_cores)


def _step(
    kind: Literal["SL", "PS", "SF"], microseconds: float, selectivity: float = 1.0, key: Key | None = None
) -> Step:
    return Step(kind, _SCALE * microseconds * 1e-6, selectivity, key)


def drawn(number: int, place: int) -> float:
    """From 0 to 1, evenly, always the same for the same numbers."""
    mixed = (number * 0x9E3779B97F4A7C15 + place * 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 31) / 2**64


# Keys, as the generator of TPCx-BB data draws them: some users click more than others, some items are bought more often


def even(place: int, number: int) -> int:
    return int(drawn(number, place) * 1_000)


def category(place: int, number: int) -> int:
    return int(drawn(number, place) * 10)


def user(place: int, number: int) -> int:
    return int(drawn(number, place) ** 2 * 400)


def item(place: int, number: int) -> int:
    return 10 * int(drawn(number, place) ** 3 * 14) + category(place - 100, number)


def pair(place: int, number: int) -> int:
    return 140 * item(place, number) + item(place - 1_000, number)


_SCALE = 40
"""Microseconds were measured in examples/tpcxbb; times so many a run has few enough tuples to be simulated quickly."""

QUERIES = (
    _query(
        "Q1",
        16,
        _step("SL", 1.65, 0.125),
        _step("PS", 5.2, 0.84),
        _step("PS", 7.6, key=pair),
        _step("SF", 0.46),
    ),
    _query(
        "Q2",
        8,
        _step("SL", 1.1, 0.78),
        _step("PS", 5.5, 0.144, key=user),
        _step("SL", 1.14, 0.414),
        _step("PS", 6.2, 0.785, key=item),
        _step("SF", 1.6),
    ),
    _query("Q3", 8, _step("SL", 1.77, 0.166), _step("PS", 3.5, 0.3, key=user), _step("PS", 4.4, 0.084, key=item)),
    _query(
        "Q4",
        8,
        _step("SL", 1.1, 0.9),
        _step("PS", 6.1, 0.137, key=user),
        _step("SL", 0.24, 0.4),
        _step("SF", 1.2),
    ),
    _query("Q15", 12, _step("SL", 1.65, 0.071), _step("SL", 0.5), _step("PS", 2.0, 0.12, key=category)),
)
"""Costs and selectivities are those of examples/tpcxbb on data of the generator, the first step with its parsing."""


def step_name(place: int) -> str:
    return f"step{place + 1}"


def build(flow: ps.Flow, pipeline: Pipeline, sink: ps.Sink, replicas: int | None) -> None:
    """The pipeline as a flow, over numbers without end."""
    stream = flow.read(ps.sources.generate(_itself), name="in")
    for place, step in enumerate(pipeline):
        stream = _built(stream, place, step, replicas)
    stream.write(sink, name="out")


def expected(pipeline: Pipeline) -> Iterator[int]:
    """What comes out, one after the other."""
    return _passed(pipeline, count())


def share_of(pipeline: Pipeline, place: int) -> float:
    """How many tuples a step gets for one that enters the pipeline."""
    share = 1.0
    for step in pipeline[:place]:
        share *= step.selectivity
    return share


def _passed(pipeline: Pipeline, numbers: Iterator[int]) -> Iterator[int]:
    for place, step in enumerate(pipeline):
        if step.selectivity != 1:
            numbers = _out_of(step, place, numbers)
    return numbers


def _out_of(step: Step, place: int, numbers: Iterator[int]) -> Iterator[int]:
    for number in numbers:
        yield from step.outputs(place, number)


def _built(stream: ps.Stream[int], place: int, step: Step, replicas: int | None) -> ps.Stream[int]:
    name, outputs = step_name(place), partial(step.outputs, place)
    match step.kind:
        case "SL" if step.selectivity == 1:
            return stream.map(_itself, name=name, replicas=replicas)
        case "SL":
            return stream.flat_map(outputs, name=name, replicas=replicas)
        case "PS":
            keyed = stream.key_by(partial(step.key_of, place))
            return keyed.stateful_flat_map(partial(_next, outputs), init=_none, name=name, replicas=replicas)
        case "SF":
            return stream.scan(_later, init=-1, name=name)


def _itself(number: int) -> int:
    return number


def _none() -> int:
    return -1


def _next(outputs: Callable[[int], list[int]], before: int, number: int) -> tuple[int, list[int]]:
    """A key's state is its last number: they come in order."""
    assert before < number, f"{number} came after {before}"
    return number, outputs(number)


def _later(before: int, number: int) -> tuple[int, int]:
    assert before < number, f"{number} came after {before}"
    return number, number
