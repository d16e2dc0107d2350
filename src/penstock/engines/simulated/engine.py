"""The simulated engine: the same flow, ports, scheduler and teams as on the local one, on virtual cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from penstock.costs import Cost, Seconds
from penstock.engines.base import AtEnd, Job
from penstock.engines.batch_plant import BatchSteering
from penstock.engines.batch_tasks import first_tasks, rescaled_group
from penstock.engines.live_engine import LiveEngine
from penstock.engines.live_job import LiveJob
from penstock.engines.options import RuntimeOptions
from penstock.engines.simulated.charging import Charging, Spend
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.platforms import VirtualBatches, VirtualCores
from penstock.engines.simulated.profile import load_costs
from penstock.errors import FlowError
from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport
from penstock.plan.groups import make_plan
from penstock.rates import Rate, constant

Costs = Mapping[str, Cost | Seconds] | str | os.PathLike[str]
_REFUSED = ("checkpoint", "clock", "driver")
"""What `Local` can be given and a simulation has of its own, or never has."""

_KNOWN = {field.name for field in fields(RuntimeOptions)} | {"checkpoint_seconds"}


class Simulated(LiveEngine):
    """What would so many cores do?

    `costs` says what a tuple costs each operator: seconds, a function of the tuple, a `ps.costs` distribution or a
    `ps.costs.Cost`; or it is a file that `penstock run --profile` has written. What is not named costs nothing.
    `input_rate` holds sources back; `seconds` ends the run after so many virtual ones; `compute=False` calls no
    function; `gil=True` lets one thread at a time run Python. `like="spark"` runs micro-batches instead, every
    `trigger` seconds, of at most `batch_rows`, with as many tasks at once as there are cores. The other options are
    those of `Local`.

    >>> import penstock as ps
    >>> flow = ps.Flow("squares")
    >>> squares = ps.sinks.collect()
    >>> numbers = flow.read(ps.sources.items(range(1000)))
    >>> numbers.map(lambda x: x * x, name="square", replicas=8).write(squares)
    >>> report = flow.run("simulated", cores=8, costs={"square": 0.01})
    >>> 1.25 <= report.elapsed_seconds < 1.5  # and not 10
    True
    """

    name = "simulated"

    def __init__(
        self,
        cores: int = 1,
        costs: Costs | None = None,
        seed: int = 0,
        threads: int | None = None,
        gil: bool = False,
        machine: Machine | str | os.PathLike[str] | None = None,
        input_rate: float | Rate | None = None,
        seconds: float | None = None,
        compute: bool = True,
        workers: Literal["threads", "processes"] = "threads",
        timeline: str | os.PathLike[str] | None = None,
        like: Literal["local", "spark"] = "local",
        trigger: float = 0.0,
        batch_rows: int = 1_000_000,
        **options: Any,
    ) -> None:
        if like not in ("local", "spark"):
            raise FlowError(f"engine 'simulated': like= is 'local' or 'spark', not {like!r}")
        if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
            raise FlowError(f"engine 'simulated': cores= is a number from 1 up, not {cores!r}")
        for option in _REFUSED:
            if option in options:
                raise FlowError(f"engine 'simulated': there is no {option}= in a simulation")
        for option in options:
            if option not in _KNOWN:
                raise TypeError(f"Simulated() got an unexpected keyword argument {option!r}")
        options.pop("checkpoint_seconds", None)  # says something about a checkpoint, and there is none
        threads = cores if threads is None else threads
        chosen = RuntimeOptions(threads=threads, workers=workers, **options)
        super().__init__(chosen, has_gil=gil, is_elastic=chosen.threads == "auto")
        # What companions cost is charged; there need not be any.
        self.settings = replace(self.settings, has_companions=False)
        self.gil = gil
        self.cores = cores
        self.costs = _costs(costs)
        self.seed = seed
        self.machine = Machine.of(machine)
        self.input_rate = constant(input_rate) if isinstance(input_rate, int | float) else input_rate
        self.seconds = seconds
        self.compute = compute
        self.timeline = timeline
        self.like = like
        self.most_slots = (self.elastic.most_threads if self.elastic is not None else None) or cores
        self.trigger = trigger
        self.batch_rows = batch_rows
        self.parallelism = options.get("replicas")
        self._companion_seconds = self.machine.pickle_seconds if workers == "processes" else None

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        if self.like == "spark":
            return SimulatedBatchJob(self, graph, at_end or "close")
        return LiveJob(self, graph, at_end or "close", self.platform())

    def platform(self) -> VirtualCores:
        """What a run gets from outside, where time passes as it works."""
        return VirtualCores(
            self.machine,
            self.cores,
            self.threads,
            self.charging,
            has_gil=self.gil,
            is_dedicated=self.threading == "dedicated",
            until=self.seconds,
            timeline=self.timeline,
        )

    def charging(self, spender: Callable[[str], Spend], room: Callable[[str], float]) -> Charging:
        return Charging(
            self.costs,
            spender,
            self.seed,
            self.input_rate,
            self.compute,
            self._companion_seconds,
            self.settings.chunk_seconds,
            room,
        )


class SimulatedBatchJob(LiveJob):
    """A flow in micro-batches, as the Spark engine would run it on so many slots."""

    def __init__(self, engine: Simulated, graph: Graph, at_end: AtEnd) -> None:
        self._simulated = engine
        self._plan = make_plan(graph)
        platform = VirtualBatches(
            engine.machine,
            self._plan,
            engine.parallelism or engine.cores,
            engine.cores,
            engine.most_slots,
            engine.charging,
            until=engine.seconds,
            trigger_seconds=engine.trigger,
            batch_rows=engine.batch_rows,
        )
        self._clock, self._stages, self._batches = platform.clock, platform.stages, platform.batches
        super().__init__(engine, graph, at_end, platform)

    def _steer(self, engine: LiveEngine) -> None:
        """Not by the clock, but batch by batch."""
        if engine.elastic is not None:
            elastic, decisions = engine.elastic.for_batches(), self._run.logbook.decisions
            steering = BatchSteering(
                self._plan, elastic, self._batches, self._clock, self._simulated.trigger, decisions
            )
            self._batches.call_after_each(steering.after_batch)

    def metrics(self) -> Mapping[str, OperatorReport]:
        return self._stages.charged(self._run.counts())

    def rescale(self, name: str, replicas: int) -> None:
        """From the next batch on, run the stage of this operator in so many tasks."""
        self._stages.tasks[rescaled_group(self._plan, name, replicas).number] = replicas

    @property
    def threads(self) -> int:
        return self._batches.slots().now

    @threads.setter
    def threads(self, count: int) -> None:
        """As if the run had begun with so many; the executors for them come later."""
        self._batches.set_slots(count)
        self._stages.tasks.update(first_tasks(self._plan, self._simulated.parallelism or count))


def _costs(costs: Costs | None) -> dict[str, Cost]:
    if costs is None:
        return {}
    if isinstance(costs, str | os.PathLike):
        return load_costs(costs)
    return {name: Cost.of(cost) for name, cost in costs.items()}
