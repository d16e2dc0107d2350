"""Runs without an engine: what a test needs of a host, and no more."""

from __future__ import annotations

from contextlib import suppress

import penstock as ps
from penstock.clock import FakeClock
from penstock.connectors.source import Chunk
from penstock.runtime.build import build_run
from penstock.runtime.event_loop import SteppedEventLoop
from penstock.runtime.inlets import Inlet
from penstock.runtime.policies import LastInPipeline
from penstock.runtime.running.host import Host
from penstock.runtime.running.settings import Settings
from penstock.runtime.worker import Point, Worker


class NoWorkers:
    """Notes what it is told; the test itself does the work."""

    def __init__(self, clock=None, threads=1, picks=True):
        self._clock = clock or FakeClock()
        self.threads = threads
        self.picks = picks
        self.told = []

    def event_loop(self, name):
        return SteppedEventLoop(self._clock.now)

    def on_ready(self, cell=None):
        self.told.append("over" if cell is None else cell.name)

    def on_new_cells(self):
        self.told.append("new cells")

    def look_soon(self):
        self.told.append("look")


class Quietly:
    """Pauses the sources when it is told to, and notes when it was called."""

    def __init__(self, on_take=lambda: None, on_opened=lambda: None):
        self.due = False
        self.calls = []
        self._on_take = on_take
        self._on_opened = on_opened

    def opened(self, registry):
        self.calls.append("opened")
        self._on_opened()

    def is_due(self):
        return self.due

    def take(self, registry):
        self.due = False
        self.calls.append("take")
        self._on_take()


class Runs:
    """Runs that a test feeds, and that are left when it ends."""

    def __init__(self):
        self._made = []

    def __call__(self, build, settings=None, workers=None, **host):
        """Of a flow that `build(stream)` makes; what it reads is named "in"."""
        flow = ps.Flow("fed")
        build(flow.read(Inlet(), name="in"))
        clock = host.pop("clock", None) or FakeClock()
        host = Host(clock, workers or NoWorkers(), LastInPipeline(), **host)
        self._made.append(build_run(flow.validate(), settings or Settings(), host))
        return self._made[-1]

    def leave(self):
        for run in self._made:
            run.ending.end()
            with suppress(Exception):
                run.leave()


def feed(run, *values):
    run.cell_of("in").feed(Chunk(list(values), 0))


def put(run, operator, value):
    """A tuple for an operator comes from outside the run, at any moment and from any thread."""
    (port,) = run.cell_of(operator).inputs
    port.total_restored += 1
    port.offer([value], 0.0)


def work(run):
    """Run ready cells in turn, in this thread, until none is ready."""
    for point in Worker(run, 0).points():
        if point is Point.PARK:
            return
