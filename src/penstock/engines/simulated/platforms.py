"""What a simulated run gets from outside of it: virtual workers, a clock of its own, operators that take their time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace

from penstock.clock import Clock, FakeClock
from penstock.engines.live_meter import Gauge
from penstock.engines.platform import Platform
from penstock.engines.simulated.charging import Charging, Spend
from penstock.engines.simulated.cooling import CoolingPort
from penstock.engines.simulated.machine import Machine
from penstock.engines.simulated.micro_batches import Executors, MicroBatches
from penstock.engines.simulated.skew import Skew
from penstock.engines.simulated.stages import Ledger, Stages
from penstock.engines.simulated.timeline import Timeline
from penstock.engines.simulated.timing import Modelled, VirtualClock, VirtualCpu
from penstock.flow.nodes import Graph
from penstock.observe.report import Report, Simulation
from penstock.plan.groups import Plan
from penstock.runtime.policies import SchedulingPolicy
from penstock.runtime.ports import Port
from penstock.runtime.run import Run
from penstock.runtime.running.host import Host
from penstock.runtime.running.settings import Settings
from penstock.runtime.slots import Slots
from penstock.runtime.step_times import Timing
from penstock.runtime.virtual import Virtual

MakeCharging = Callable[[Callable[[str], Spend], Callable[[str], float]], Charging]
"""By what pays for an operator, and how much room there is behind a source."""


def virtual_gauge(cores: int, clock: Clock, has_gil: bool) -> Gauge:
    """Nothing else runs on virtual cores."""
    return Gauge(cores, VirtualCpu(clock, cores).share, has_gil)


class VirtualCores(Platform):
    """As many cores as you like, and perhaps a GIL, on a clock that moves by what work costs."""

    def __init__(
        self,
        machine: Machine,
        cores: int,
        threads: int,
        charging: MakeCharging,
        has_gil: bool,
        is_dedicated: bool,
        until: float | None,
        timeline: str | os.PathLike[str] | None,
    ) -> None:
        self._machine = machine
        self.clock: VirtualClock = VirtualClock(machine.gil_move_seconds if has_gil else 0.0)
        self._timing = Modelled(machine, self.clock, has_gil)
        self._cores = Slots(cores, machine.slice_seconds, machine.context_switch_seconds)
        self._gil = _gil(machine, cores) if has_gil else None
        self._timeline = None if timeline is None else Timeline()
        self._timeline_file = timeline
        self.driver: Virtual = Virtual(
            threads,
            self.clock,
            self._timing,
            self._cores,
            self._gil,
            dedicated=is_dedicated,
            watch=None if self._timeline is None else self._timeline.add,
            until=until,
        )
        self._charging = charging(lambda _: self.clock.spend, self._room)

    def settings(self, settings: Settings) -> Settings:
        return replace(settings, on_loop=self._charging.charge_loop, has_event_loop=False, port=self._port)

    def charged(self, graph: Graph) -> Graph:
        return self._charging.charged(graph)

    def gauge(self) -> Gauge:
        gauge = virtual_gauge(self._cores.count, self.clock, self._gil is not None)
        gil = self._gil
        return gauge if gil is None else replace(gauge, gil_seconds=lambda: gil.waited_seconds)

    def begin(self, run: Run) -> None:
        self._run = run

    def report(self, run: Run, engine: str) -> Report:
        if self._timeline is not None and self._timeline_file is not None:
            self._timeline.save(self._timeline_file)
        report = run.report(engine)
        return replace(report, simulation=self._seen(report.elapsed_seconds))

    def _port(self, name: str, capacity: int) -> Port:
        return CoolingPort(name, capacity, self.clock, self._machine, self._core)

    def _core(self) -> int | None:
        """Where the worker is whose step is played: each has a core that it comes back to."""
        worker = self.driver.current
        return None if worker is None else worker.number % self._cores.count

    def _room(self, source: str) -> float:
        """How many tuples the readers of a source can take now."""
        readers = self._run.cell_of(source).outputs[0]
        return min((port.capacity - len(port) for port in readers), default=math.inf)

    def _seen(self, elapsed: float) -> Simulation:
        elapsed = max(elapsed, 1e-12)
        python = self.clock.python_seconds + self._timing.overhead_seconds
        waited = {**self._timing.waited_seconds, "a core": self._cores.waited_seconds}
        if self._gil is not None:
            waited["the GIL"] = self._gil.waited_seconds
        return Simulation(
            cores=self._cores.count,
            utilisation=min(1.0, (python + self.clock.released_seconds) / (elapsed * self._cores.count)),
            gil_utilisation=min(1.0, python / elapsed) if self._gil is not None else 0.0,
            waited_seconds={what: seconds for what, seconds in waited.items() if seconds},
        )


def _gil(machine: Machine, cores: int) -> Slots:
    turn_seconds = machine.gil_switch_seconds, machine.gil_switch_asking_seconds
    if cores > 1:
        turn_seconds = machine.gil_move_seconds, machine.gil_move_asking_seconds
    return Slots(1, machine.gil_slice_seconds, *turn_seconds)


class VirtualBatches(Platform):
    """As many task slots as there are cores: while a batch is computed no time passes, and then as much as it takes."""

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        parallelism: int,
        slots: int,
        most_slots: int,
        charging: MakeCharging,
        until: float | None,
        trigger_seconds: float,
        batch_rows: int,
    ) -> None:
        self.clock = FakeClock()
        self._ledger = Ledger()
        self._skew = Skew(plan)
        self.stages = Stages(plan, machine, self._ledger, self._skew, parallelism)
        sources = [node.name for node in plan.graph.sources]
        executors = Executors(slots, most_slots, machine.executor_start_seconds)
        self.batches = MicroBatches(sources, self.stages, self.clock, executors, trigger_seconds, batch_rows)
        self.driver = Virtual(1, self.clock, Timing(), until=until)
        self._charging = charging(self._spender, lambda _: math.inf)
        self._slots = slots

    def _spender(self, operator: str) -> Spend:
        return lambda python, released: self._ledger.spend(operator, python + released)

    def settings(self, settings: Settings) -> Settings:
        return replace(settings, on_loop=self._charging.charge_loop, has_event_loop=False, replicas=1)

    def charged(self, graph: Graph) -> Graph:
        return self._skew.counted(self._charging.charged(graph))

    def gauge(self) -> Gauge:
        return virtual_gauge(self._slots, self.clock, has_gil=False)

    def host(self, policy: SchedulingPolicy) -> Host:
        return Host(self.clock, self.driver, policy, quiet=self.batches, latencies=self.batches)

    def report(self, run: Run, engine: str) -> Report:
        self.batches.take(run.registry)
        slots = self.batches.slots().now
        elapsed = max(self.clock.now(), 1e-12)
        return replace(
            run.report(engine),
            operators=self.stages.charged(run.counts()),
            batches=tuple(self.batches.batches),
            simulation=Simulation(slots, min(1.0, self.stages.used_seconds / (elapsed * slots)), 0.0, {}),
        )
