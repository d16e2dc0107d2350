"""What a run at rest needs: found without changing anything, carried out once."""

import pytest

import penstock as ps
from penstock.runtime.running.rest import CloseControls, Deadlock, EndHere, Grow, NeverComes, TakeQuietly
from penstock.runtime.running.settings import Settings
from tests.runtime.runs import NoWorkers, Quietly, feed, work


def collected(fed, **options):
    result = ps.sinks.collect()
    run = fed(lambda stream: stream.map(lambda x: x).write(result, name="out"), **options)
    run.open()
    return run, result


def test_a_run_whose_sources_pause_takes_a_checkpoint_and_goes_on(fed):
    quiet = Quietly()
    run, result = collected(fed, quiet=quiet)
    feed(run, 1, 2)
    quiet.due = True
    run.pause_if_due()
    assert run.is_pausing
    work(run)
    step = run.rest.found()
    assert step == TakeQuietly(then_ends=False)
    assert (quiet.calls, run.is_pausing) == (["opened"], True), "it has only looked"
    run.rest.carry_out(step)
    assert (quiet.calls, run.is_pausing) == (["opened", "take"], False)
    assert run.cell_of("in").turn.is_queued, "sources are told that they may read on"
    run.leave()
    assert result.items == [1, 2]


def test_sources_pause_until_the_checkpoint_is_taken(fed):
    pausing = []
    quiet = Quietly(on_take=lambda: pausing.append(run.is_pausing))
    run, _ = collected(fed, quiet=quiet)
    quiet.due = True
    run.pause_if_due()
    work(run)
    run.rest.carry_out(run.rest.found())
    assert pausing == [True]


@pytest.mark.parametrize("error", [ps.CheckpointError("the disk is full"), ValueError("a bug")])
def test_a_checkpoint_that_fails_ends_the_run(error, fed):
    def fails():
        raise error

    workers = NoWorkers()
    run, _ = collected(fed, quiet=Quietly(fails), workers=workers)
    run.rest.carry_out(TakeQuietly(then_ends=False))
    assert run.ending.is_over
    assert "over" in workers.told
    with pytest.raises(type(error), match=str(error)):
        run.leave()


def test_a_flow_that_is_kept_is_taken_when_its_sources_have_ended(fed):
    quiet = Quietly()
    run, _ = collected(fed, quiet=quiet, settings=Settings(closes_at_end=False))
    work(run)
    step = run.rest.found()
    assert step == TakeQuietly(then_ends=True)
    run.rest.carry_out(step)
    assert (quiet.calls, run.ending.is_over) == (["opened", "take"], True)
    assert run.rest.found() is None, "what is over needs nothing"


def test_a_failing_run_ends_and_takes_nothing(fed):
    quiet = Quietly()
    result = ps.sinks.collect()
    run = fed(lambda stream: stream.map(lambda x: 1 // x, name="op").write(result), quiet=quiet)
    run.open()
    feed(run, 1, 0)
    work(run)
    quiet.due = True
    run.pause_if_due()
    step = run.rest.found()
    assert step == EndHere()
    run.rest.carry_out(step)
    assert quiet.calls == ["opened"]
    with pytest.raises(ps.OperatorError, match="'op' .* failed on 0"):
        run.leave()
    assert result.items == [1]


def rejoining(fed, **options):
    result = ps.sinks.collect()

    def build(stream):
        small, large = stream.branch(lambda x: x < 8)
        small.zip(large, name="pairs").write(result)

    run = fed(build, settings=Settings(queue_size=2, **options))
    run.open()
    feed(run, *range(16))
    work(run)
    return run, result


def test_a_fork_that_rejoins_gets_the_smallest_full_queue_doubled(fed):
    run, result = rejoining(fed)
    step = run.rest.found()
    assert isinstance(step, Grow)
    assert (step.capacity, step.port.capacity) == (4, 2)
    while (step := run.rest.found()) is not None:
        if not isinstance(step, Grow):
            break
        run.rest.carry_out(step)
        work(run)
    assert {(one.before, one.after) for one in run.logbook.decisions} == {(2, 4), (4, 8)}
    run.cell_of("in").finish()
    work(run)
    assert run.ending.is_over
    run.leave()
    assert result.items == [(x, x + 8) for x in range(8)]


def test_a_fork_that_may_not_grow_is_named(fed):
    run, _ = rejoining(fed, queue_limit=3)
    step = run.rest.found()
    assert isinstance(step, Deadlock)
    run.rest.carry_out(step)
    assert run.ending.is_over
    with pytest.raises(ps.FlowError, match="can't go on within queue_limit=3: .* waits for tuples on input 1"):
        run.leave()


def test_control_inputs_close_one_operator_at_a_time_and_then_nothing_can_come(fed):
    run, _ = collected(fed)
    work(run)
    closed = []
    while isinstance(step := run.rest.found(), CloseControls):
        run.rest.carry_out(step)
        closed.append(step.cell.name)
        work(run)
    assert closed == [cell.name for cell in run.cells]
    assert isinstance(step, NeverComes)
    run.rest.carry_out(step)
    with pytest.raises(ps.FlowError, match="waits for what never comes"):
        run.leave()
