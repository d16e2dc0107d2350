"""Elasticity of flows whose operators all run at once: threads, replicas and helpers, on real cores or simulated."""

from __future__ import annotations

from penstock.elasticity.changes import Change, SetHelping, SetReplicas, SetThreads
from penstock.elasticity.loop import Elastic
from penstock.elasticity.signals import Signals
from penstock.engines.live_meter import Gauge, Meter
from penstock.engines.steering import Periods, Steering
from penstock.runtime.pool import Pool
from penstock.runtime.run import Run
from penstock.runtime.teams.making import rescale_group


def steer(run: Run, pool: Pool, gauge: Gauge, elastic: Elastic) -> None:
    """Let the threads, replicas and helpers of a run find their own number."""
    periods = Periods(elastic.look_seconds, run.clock.now)
    steering = Steering(LivePlant(run, pool, gauge, elastic), elastic, run.logbook.decisions)

    def look() -> None:
        if not periods.is_over():
            return
        with run.users_code.called("a controller"):
            steering.step()
        if elastic.threads != "fixed":
            # From now on there are no more threads than can work without a fight for the GIL.
            run.help_shares.be_prompt()

    pool.watch(elastic.look_seconds, look)


class LivePlant:
    """A run and the pool that drives it."""

    def __init__(self, run: Run, pool: Pool, gauge: Gauge, elastic: Elastic) -> None:
        self._run = run
        self._pool = pool
        self._meter = Meter(run, pool, gauge, elastic)

    def signals(self) -> Signals:
        return self._meter.read()

    def apply(self, change: Change) -> bool:
        match change:
            case SetThreads():
                self._pool.set_threads(int(change.after))
            case SetReplicas(operator=name):
                self._rescale(name, int(change.after))
            case SetHelping(helper=helper, helped=helped):
                self._run.help_shares.set_share(helper, helped, change.after)
                self._rescale(helped, self._run.cell_of(helped).figures.most_workers)
            case _:
                return False
        return True

    def _rescale(self, name: str, replicas: int) -> None:
        """With as many places for guests as there are workers that may come to help."""
        run = self._run
        helpers = [helper for (helper, helped), share in run.help_shares.shares.items() if helped == name and share]
        guests = sum(run.cell_of(helper).figures.most_workers for helper in helpers)
        rescale_group(run, self._meter.group(name), replicas, guests)
