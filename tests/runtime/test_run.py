"""A run is whole when it is made, and tells its driver what it has to know."""

import penstock as ps
from penstock.clock import FakeClock
from penstock.runtime.running.settings import Settings
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
    assert run.largest_chunk == 5
    assert run.help_share(run.cell_of("in"), run.cell_of("op")) == 0.25
    assert run.flight is not None
    assert all(port.is_limited for cell in run.cells for port in cell.inputs), "nobody knows yet what a tuple costs"
    assert workers.told == [], "nothing happens before it is opened"
    clock.sleep(2.0)
    assert run.share_of_time(1.0) == 0.5
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
        assert cell.is_complete or cell.is_at_rest
        if not cell.is_complete:
            cell.notify()
            work(run)
        assert source.is_over is is_over
    assert run.ending.is_over
