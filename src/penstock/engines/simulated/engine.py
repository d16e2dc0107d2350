"""The simulated engine: the same flow, ports, scheduler and teams as on the local one, on virtual cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from penstock.clock import Clock, FakeClock
from penstock.costs import Cost, Seconds
from penstock.engines.base import AtEnd, Job
from penstock.engines.batch_plant import BatchSteering
from penstock.engines.batch_tasks import first_tasks, rescaled_group
from penstock.engines.live_meter import Gauge
from penstock.engines.local import Local, LocalJob
from penstock.engines.simulated.charging import Charging, Spend
from penstock.engines.simulated.cooling import CoolingPort
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.micro_batches import Executors, MicroBatches
from penstock.engines.simulated.profile import load_costs
from penstock.engines.simulated.stages import Ledger, Stages
from penstock.engines.simulated.timeline import Timeline
from penstock.engines.simulated.timing import Instantly, Modelled, VirtualClock, VirtualCpu
from penstock.errors import FlowError
from penstock.flow.nodes import Graph
from penstock.observe.report import OperatorReport, Report, Simulation
from penstock.plan.groups import make_plan
from penstock.rates import Rate, constant
from penstock.runtime.ports import Port
from penstock.runtime.slots import Slots
from penstock.runtime.virtual import Virtual

Costs = Mapping[str, Cost | Seconds] | str | os.PathLike[str]


class Simulated(Local):
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
        for option in ("checkpoint", "clock", "driver"):
            if option in options:
                raise FlowError(f"engine 'simulated': there is no {option}= in a simulation")
        self.gil = gil
        super().__init__(threads=cores if threads is None else threads, **options)
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
        self._companion_seconds = None
        if workers == "processes":
            self._companion_seconds = self.machine.pickle_seconds
            replicas = max(self.threads, self.settings.replicas)
            self.settings = replace(self.settings, stateless_replicas=replicas)

    def start(self, graph: Graph, at_end: AtEnd | None = None) -> Job:
        return (SimulatedJob if self.like == "local" else SimulatedBatchJob)(self, graph, at_end or "close")

    @property
    def has_gil(self) -> bool:
        return self.gil

    def gauge(self, clock: Clock) -> Gauge:
        return Gauge(self.cores, VirtualCpu(clock, self.cores).share, self.gil)

    def charging(self, spender: Callable[[str], Spend]) -> Charging:
        return Charging(self.costs, spender, self.seed, self.input_rate, self.compute, self._companion_seconds)


class SimulatedJob(LocalJob):
    """A flow that runs on virtual cores, with a clock of its own."""

    def __init__(self, engine: Simulated, graph: Graph, at_end: AtEnd) -> None:
        machine = engine.machine
        self._simulated = engine
        self._clock = VirtualClock(machine.gil_move_seconds if engine.gil else 0.0)
        self._timing = Modelled(machine, self._clock, engine.gil)
        self._cores = Slots(engine.cores, machine.slice_seconds, machine.context_switch_seconds)
        turn_seconds = machine.gil_switch_seconds, machine.gil_switch_asking_seconds
        if engine.cores > 1:
            turn_seconds = machine.gil_move_seconds, machine.gil_move_asking_seconds
        self._gil = None
        if engine.gil:
            self._gil = Slots(1, machine.gil_slice_seconds, *turn_seconds)
        self._timeline = None if engine.timeline is None else Timeline()
        driver = Virtual(
            engine.threads,
            self._clock,
            self._timing,
            self._cores,
            self._gil,
            dedicated=engine.threading == "dedicated",
            watch=None if self._timeline is None else self._timeline.add,
            until=engine.seconds,
        )
        charging = engine.charging(lambda _: self._clock.spend)
        settings = replace(engine.settings, on_loop=charging.charge_loop, has_event_loop=False, port=self._port)
        super().__init__(engine, charging.charged(graph), at_end, settings, self._clock, driver)

    def _port(self, name: str, capacity: int) -> Port:
        return CoolingPort(name, capacity, self._clock, self._simulated.machine, self._core)

    def _core(self) -> int | None:
        """Where the worker is whose step is played: each has a core that it comes back to."""
        assert isinstance(self._driver, Virtual)
        worker = self._driver.current
        return None if worker is None else worker.number % self._cores.count

    def _gauge(self, engine: Local, clock: Clock) -> Gauge:
        gil = self._gil
        return replace(engine.gauge(clock), gil_seconds=lambda: 0.0 if gil is None else gil.waited_seconds)

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


class SimulatedBatchJob(LocalJob):
    """A flow in micro-batches, as the Spark engine would run it on so many slots."""

    def __init__(self, engine: Simulated, graph: Graph, at_end: AtEnd) -> None:
        clock, ledger = FakeClock(), Ledger()
        self._clock = clock
        self._simulated = engine
        self._plan = make_plan(graph)
        self._stages = Stages(self._plan, engine.machine, ledger, engine.parallelism or engine.cores)
        self._batches = MicroBatches(
            [node.name for node in graph.sources],
            self._stages,
            clock,
            Executors(engine.cores, engine.most_slots, engine.machine.executor_start_seconds),
            engine.trigger,
            engine.batch_rows,
        )
        charging = engine.charging(lambda name: lambda python, released: ledger.spend(name, python + released))
        settings = replace(engine.settings, on_loop=charging.charge_loop, has_event_loop=False, replicas=1)
        driver = Virtual(1, clock, Instantly(), until=engine.seconds)
        super().__init__(engine, charging.charged(graph), at_end, settings, clock, driver)

    def _steer(self, engine: Local, clock: Clock) -> None:
        """Not by the clock, but batch by batch."""
        if engine.elastic is not None:
            elastic, decisions = engine.elastic.for_batches(), self._run.decisions
            steering = BatchSteering(self._plan, elastic, self._batches, clock, self._simulated.trigger, decisions)
            self._batches.on_end = steering.after_batch

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

    def _to_the_end(self) -> Report:
        self._run.quiet = self._batches
        report = super()._to_the_end()
        self._batches.take(self._run)
        slots = self.threads
        elapsed = max(self._clock.now(), 1e-12)
        return replace(
            self._run.report(report.engine),
            operators=self.metrics(),
            batches=tuple(self._batches.batches),
            simulation=Simulation(slots, min(1.0, self._stages.used_seconds / (elapsed * slots)), 0.0, {}),
        )


def _costs(costs: Costs | None) -> dict[str, Cost]:
    if costs is None:
        return {}
    if isinstance(costs, str | os.PathLike):
        return load_costs(costs)
    return {name: Cost.of(cost) for name, cost in costs.items()}
