"""A run is whole when it is made, and tells its driver what it has to know."""

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.runtime.running.settings import Settings
from penstock.runtime.teams.making import rescale
from tests.runtime.runs import NoWorkers, feed, put, work


def test_a_run_is_whole_when_it_is_made(fed):
    clock, workers = FakeClock(5.0), NoWorkers(threads=3)
    run = fed(
        lambda stream: stream.map(lambda x: x, name="op").write(ps.sinks.null(), name="out"),
        settings=Settings(queue_size=10, help_share=0.25),
        workers=workers,
        clock=clock,
        flight_seconds=1.0,
    )
    assert [cell.name for cell in run.cells] == ["in", "op", "out"]
    assert run.settings.largest_chunk == 5
    assert run.help_shares.share(run.cell_of("in"), run.cell_of("op")) == 0.25
    assert run.flight is not None
    assert all(port.is_limited for cell in run.cells for port in cell.inputs), "nobody knows yet what a tuple costs"
    assert workers.told == [], "nothing happens before it is opened"
    clock.sleep(2.0)
    assert run.logbook.share_of_time(1.0) == 0.5
    assert run.report("test").elapsed_seconds == 2.0


def test_the_driver_is_told_what_is_ready(fed):
    workers = NoWorkers()
    run = fed(lambda stream: stream.map(lambda x: x, name="op").write(ps.sinks.null()), workers=workers)
    run.open()
    work(run)
    workers.told.clear()
    feed(run, 1)
    assert workers.told == ["in"]


def test_nothing_is_listed_where_every_cell_has_a_worker_of_its_own(fed):
    """That worker is told; a list that no worker picks from would only grow."""
    workers = NoWorkers(picks=False)
    run = fed(lambda stream: stream.map(lambda x: x, name="op").write(ps.sinks.null()), workers=workers)
    run.open()
    for number in range(10):
        put(run, "op", number)
    assert "op" in workers.told
    assert run.scheduler.is_empty


def test_a_writer_is_over_when_all_its_readers_are(fed):
    def build(stream):
        stream.write(ps.sinks.null(), name="left")
        stream.write(ps.sinks.null(), name="right")

    run = fed(build)
    run.open()
    source = run.cell_of("in")
    for name, is_over in ("left", False), ("right", True):
        cell = run.cell_of(name)
        cell.is_over = True
        work(run)
        assert cell.is_complete or cell.turn.is_at_rest
        if not cell.is_complete:
            cell.notify()
            work(run)
        assert source.is_over is is_over
    assert run.ending.is_over


@pytest.mark.parametrize("after", ["readers", "request"])
def test_an_operator_whose_readers_end_while_it_is_to_get_replicas_ends_once(fed, after):
    """Its successor is told what it has been told; the other branch of the flow goes on undisturbed."""
    kept = ps.sinks.collect()

    def build(stream):
        stream.map(lambda x: x, name="op", replicas=None).write(ps.sinks.null(), name="out")
        stream.map(lambda x: x, name="other").write(kept, name="kept")

    run = fed(build, settings=Settings(fuses=False))
    run.open()
    work(run)
    out = run.cell_of("out")

    def end_readers():
        out.is_over = True
        out.notify()
        out.turn.claim()
        out.complete()

    steps = [lambda: rescale(run, "op", 2), end_readers]
    for step in steps if after == "request" else reversed(steps):
        step()
    work(run)
    feed(run, 1, 2, 3)
    run.cell_of("in").finish()
    work(run)
    assert kept.items == [1, 2, 3]
    assert all(cell.is_complete for cell in run.cells)
    assert run.ending.is_over
