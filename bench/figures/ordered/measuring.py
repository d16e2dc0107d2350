"""One run of a pipeline, measured as the paper does: by markers, those between 20% and 80% of the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import penstock as ps
from figures.ordered.queries import Pipeline, build, expected, share_of, step_name
from penstock.clock import Clock

POLICIES = {"CT": "current-throughput", "LP": "last-in-pipeline", "ET": "estimated-time", "QST": "queue-throttling"}
CORES = 16


@dataclass(frozen=True)
class Measured:
    """What a run of a pipeline shows."""

    throughput: float
    """Tuples a second, of those that enter the pipeline."""
    latency_seconds: float
    """Mean, from the moment at which the first operator begins with a tuple to its exit."""
    cost_seconds: float
    """What workers spend on a tuple that enters, with all that they wait for each other."""
    first_cost_seconds: float
    """What a tuple costs the first operator, with what its workers wait for its reorder buffer."""


class _Watched(ps.engines.Simulated):
    """Lets a benchmark look at the virtual clock."""

    clock: Clock

    def platform(self) -> Any:
        platform = super().platform()
        self.clock = platform.clock
        return platform


class _Markers:
    """When tuples were begun with, and when they came out."""

    def __init__(self) -> None:
        self.engine: _Watched
        self.begun: dict[int, float] = {}
        self.out: list[int] = []
        self.out_at: list[float] = []

    def begin(self, number: int) -> None:
        self.begun[number] = self.engine.clock.now()

    def end(self, number: int) -> None:
        self.out.append(number)
        self.out_at.append(self.engine.clock.now())


def measure(
    pipeline: Pipeline,
    workers: int,
    seconds: float,
    is_elastic: bool = False,
    cores: int = CORES,
    window: tuple[float, float] = (0.2, 0.8),
    **options: Any,
) -> dict[str, Any]:
    """Simulate so many seconds of a pipeline whose source always has more, and check what came out.

    So many workers, all of which may be in one operator; or Penstock's defaults go on from there.
    """
    markers = _Markers()
    first = pipeline[0].seconds

    def first_cost(number: int) -> float:
        markers.begin(number)
        return first

    costs: dict[str, Any] = {step_name(place): step.seconds for place, step in enumerate(pipeline)}
    costs[step_name(0)] = first_cost
    options = {"elastic": is_elastic} | options
    flow = ps.Flow("ordered")
    build(flow, pipeline, ps.sinks.call(markers.end), None if is_elastic else workers)
    engine = _Watched(cores=cores, threads=workers, costs=costs, seconds=seconds, **options)
    markers.engine = engine
    report = flow.run(engine)
    if markers.out != list(islice(expected(pipeline), len(markers.out))):
        raise RuntimeError(f"what came out is not what one thread would have let out: {markers.out[:20]}")
    return asdict(_seen(markers, pipeline, report, window))


def _seen(markers: _Markers, pipeline: Pipeline, report: ps.Report, window: tuple[float, float]) -> Measured:
    growth = int(max(1.0, share_of(pipeline, len(pipeline))))
    first, last = (int((len(markers.out) - 1) * share) for share in window)
    assert last - first > 10, f"only {len(markers.out)} tuples came out"
    tuples = (markers.out[last] - markers.out[first]) / growth
    lasted = markers.out_at[last] - markers.out_at[first]
    waits = [markers.out_at[at] - markers.begun[markers.out[at] // growth] for at in range(first, last)]
    simulation = report.simulation
    assert simulation is not None
    waited = sum(time for what, time in simulation.waited_seconds.items() if what != "a core")
    spent = simulation.utilisation * simulation.cores * report.elapsed_seconds + waited
    entered = markers.out[-1] / growth
    one = report.operators[step_name(0)]
    blocked = simulation.waited_seconds.get(f"the reorder buffer of {step_name(0)}", 0.0)
    first_cost = (one.busy_seconds + blocked) / max(1, one.received)
    return Measured(tuples / lasted, sum(waits) / len(waits), spent / entered, first_cost)


def defaults(pipeline: Pipeline, cores: int = CORES, seconds: float = 1.5) -> dict[str, Any]:
    """The same pipeline with nothing decided by the user: Penstock finds threads and replicas."""
    return measure(pipeline, 1, seconds, is_elastic=True, cores=cores, window=(0.5, 1.0))
