"""A writer that waits for room: each of its full readers is marked, and only as long as it is full."""

import penstock as ps
from penstock.clock import FakeClock
from penstock.runtime.build import build_run
from penstock.runtime.policies import LastInPipeline
from penstock.runtime.ports import Port
from penstock.runtime.running.host import Host
from penstock.runtime.running.settings import Settings
from tests.runtime.runs import NoWorkers


def forked(clock):
    """A source cell with two readers whose queues hold ten tuples each, and those two queues."""
    flow = ps.Flow("fork")
    stream = flow.read(ps.sources.items(range(100)), name="numbers")
    stream.write(ps.sinks.null(), name="left")
    stream.write(ps.sinks.null(), name="right")
    settings = Settings(queue_size=10, has_event_loop=False)
    run = build_run(flow.validate(), settings, Host(clock, NoWorkers(clock), LastInPipeline()))
    writer = run.cell_of("numbers")
    return run, writer, *writer.outputs[0]


def test_every_full_reader_of_a_fork_is_marked():
    clock = FakeClock()
    _, writer, left, right = forked(clock)
    writer.give(0, list(range(25)), 0.0)
    clock.sleep(1.0)
    assert not writer.flush()
    assert (left.full_since, right.full_since) == (1.0, 1.0)
    assert writer.full_ports() == [left, right]
    clock.sleep(1.0)
    left.take(10)
    clock.sleep(1.0)
    assert not writer.flush()  # both are full again: the left one with the next ten
    assert (left.full_since, right.full_since) == (1.0, 1.0)
    left.take(10)
    assert not writer.flush()
    assert writer.full_ports() == [right]  # the left one has got all
    assert (left.full_since, left.full_seconds) == (None, 2.0)
    for _ in range(3):
        clock.sleep(1.0)
        right.take(10)
        writer.flush()
    assert writer.has_given_all
    assert writer.full_ports() == []
    assert (left.full_seconds, right.full_seconds) == (2.0, 4.0)
    assert writer.blocked_seconds == 4.0


def test_the_smallest_of_all_full_queues_grows_when_everything_waits():
    run, writer, left, right = forked(FakeClock())
    right.capacity = 6
    writer.give(0, list(range(25)), 0.0)
    assert not writer.flush()
    run.rest.carry_out(run.rest.relief())
    assert (left.capacity, right.capacity) == (10, 12)


def test_how_long_a_queue_was_full():
    port = Port("port", 10)
    port.note_full(True, 1.0)
    port.note_full(True, 2.0)
    assert port.full_since == 1.0
    port.note_full(False, 4.0)
    port.note_full(False, 5.0)
    assert (port.full_since, port.full_seconds) == (None, 3.0)
