"""The simulated engine: the same flow, ports, scheduler and teams as on the local one, on virtual cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from penstock.costs import Cost, Seconds
from penstock.engines.base import AtEnd, Job
from penstock.engines.local import Local, LocalJob
from penstock.engines.simulated.charging import Charging
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.profile import load_costs
from penstock.engines.simulated.timeline import Timeline
from penstock.engines.simulated.timing import Modelled, VirtualClock
from penstock.errors import FlowError
from penstock.flow.nodes import Graph
from penstock.observe.report import Report, Simulation
from penstock.rates import Rate, constant
from penstock.runtime.virtual import Slots, Virtual

Costs = Mapping[str, Cost | Seconds] | str | os.PathLike[str]


class Simulated(Local):
    """What would so many cores do?

    `costs` says what a tuple costs each operator: seconds, a function of the tuple, a `ps.costs` distribution or a
    `ps.costs.Cost`; or it is a file that `penstock run --profile` has written. What is not named costs nothing.
    `input_rate` holds sources back; `seconds` ends the run after so many virtual ones; `compute=False` calls no
    function; `gil=True` lets one thread at a time run Python. The other options are those of `Local`.

    >>> import penstock as ps
    >>> flow = ps.Flow("squares")
    >>> squares = ps.sinks.collect()
    >>> numbers = flow.read(ps.sources.items(range(1000)))
    >>> numbers.map(lambda x: x * x, name="square", replicas=8).write(squares)
    >>> report = flow.run("simulated", cores=8, costs={"square": 0.01})
    >>> 1.25 <= report.elapsed_seconds < 1.4
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
        **options: Any,
    ) -> None:
        if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
            raise FlowError(f"engine 'simulated': cores= is a number from 1 up, not {cores!r}")
        for option in ("checkpoint", "clock", "driver"):
            if option in options:
                raise FlowError(f"engine 'simulated': there is no {option}= in a simulation")
        super().__init__(threads=cores if threads is None else threads, **options)
        self.cores = cores
        self.costs = _costs(costs)
        self.seed = seed
        self.gil = gil
        self.machine = Machine.of(machine)
        self.input_rate = constant(input_rate) if isinstance(input_rate, int | float) else input_rate
        self.seconds = seconds
        self.compute = compute
        self.timeline = timeline
        self._companion_seconds = None
        if workers == "processes":
            self._companion_seconds = self.machine.pickle_seconds
            replicas = max(self.threads, self.settings.replicas)
            self.settings = replace(self.settings, stateless_replicas=replicas)

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        return SimulatedJob(self, graph, at_end or "close")


class SimulatedJob(LocalJob):
    """A flow that runs on virtual cores, with a clock of its own."""

    def __init__(self, engine: Simulated, graph: Graph, at_end: AtEnd) -> None:
        clock = VirtualClock()
        charging = Charging(
            engine.costs, clock, engine.seed, engine.input_rate, engine.compute, engine._companion_seconds
        )
        machine = engine.machine
        self._simulated = engine
        self._clock = clock
        self._timing = Modelled(machine, clock, engine.gil)
        self._cores = Slots(engine.cores, machine.slice_seconds, machine.context_switch_seconds)
        self._gil = Slots(1, machine.gil_slice_seconds, machine.gil_switch_seconds) if engine.gil else None
        self._timeline = None if engine.timeline is None else Timeline()
        driver = Virtual(
            engine.threads,
            clock,
            self._timing,
            self._cores,
            self._gil,
            dedicated=engine.threading == "dedicated",
            watch=None if self._timeline is None else self._timeline.add,
            until=engine.seconds,
        )
        settings = replace(engine.settings, on_loop=charging.charge_loop, has_event_loop=False)
        super().__init__(engine, charging.charged(graph), at_end, settings, clock, driver)

    def _to_the_end(self) -> Report:
        report = super()._to_the_end()
        if self._timeline is not None and self._simulated.timeline is not None:
            self._timeline.save(self._simulated.timeline)
        return replace(report, simulation=self._seen(report.elapsed_seconds))

    def _seen(self, elapsed: float) -> Simulation:
        elapsed = max(elapsed, 1e-12)
        python = self._clock.python_seconds + self._timing.overhead_seconds
        waited = {**self._timing.waited_seconds, "a core": self._cores.waited_seconds}
        if self._gil is not None:
            waited["the GIL"] = self._gil.waited_seconds
        return Simulation(
            cores=self._cores.count,
            utilisation=min(1.0, (python + self._clock.released_seconds) / (elapsed * self._cores.count)),
            gil_utilisation=min(1.0, python / elapsed) if self._gil is not None else 0.0,
            waited_seconds={what: seconds for what, seconds in waited.items() if seconds},
        )


def _costs(costs: Costs | None) -> dict[str, Cost]:
    if costs is None:
        return {}
    if isinstance(costs, str | os.PathLike):
        return load_costs(costs)
    return {name: Cost.of(cost) for name, cost in costs.items()}
