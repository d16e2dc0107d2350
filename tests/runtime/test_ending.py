"""How a run ends: what is told, and what is closed."""

import math

import pytest

import penstock as ps
from penstock.connectors.sink import Sink, SinkWriter
from penstock.observe.report import LeftBehind
from penstock.runtime.cells import Failed
from penstock.runtime.companions import Interrupted
from penstock.runtime.standing import Abandoned
from tests.runtime.runs import NoWorkers, feed, work


class Noting(Sink):
    name = "noting"
    any_thread = True

    def __init__(self, error=None):
        self.ends = []
        self._error = error

    def open(self):
        return _Noting(self.ends, self._error)


class _Noting(SinkWriter):
    def __init__(self, ends, error):
        self._ends, self._error = ends, error

    def write(self, values):
        pass

    def close(self):
        self._ends.append("closed")
        if self._error is not None:
            raise self._error

    def abandon(self):
        self._ends.append("abandoned")

    def discard(self):
        self._ends.append("discarded")


def running(fed, *sinks, workers=None):
    def build(stream):
        for number, sink in enumerate(sinks):
            stream.write(sink, name=f"out{number}")

    run = fed(build, workers=workers)
    run.open()
    return run


def completed(run):
    feed(run, 1, 2, 3)
    run.cell_of("in").finish()
    work(run)
    assert run.ending.is_over


def test_a_run_that_is_through_is_closed(fed):
    sink = Noting()
    run = running(fed, sink)
    completed(run)
    run.leave()
    assert sink.ends == ["closed"]


def test_a_run_that_has_failed_publishes_nothing(fed):
    sink = Noting()
    run = running(fed, sink)
    run.fail(run.cell_of("in"), Failed(0, ps.OperatorError("it failed")))
    with pytest.raises(ps.OperatorError, match="it failed"):
        run.leave()
    assert sink.ends == ["abandoned"]


def test_what_fails_when_it_is_closed_keeps_no_other_from_being_closed(fed):
    first, second = Noting(ValueError("the first")), Noting(ValueError("the second"))
    run = running(fed, first, second)
    completed(run)
    with pytest.raises(ps.SinkError, match="'out0' .* when it was closed: ValueError: the first"):
        run.leave()
    assert (first.ends, second.ends) == (["closed"], ["closed"])


def test_cells_are_closed_once_and_those_that_hold_a_thread_not_at_all(fed):
    first, second = Noting(), Noting()
    run = running(fed, first, second)
    completed(run)
    left = LeftBehind("out0", "somewhere")
    run.ending.leave_behind(left, run.cell_of("out0"))
    run.ending.close_cells()
    run.ending.close_cells()
    assert (first.ends, second.ends) == ([], ["closed"])
    assert run.report("test").left_behind == (left,)


def test_a_failure_further_down_is_about_an_earlier_tuple(fed):
    run = running(fed, Noting())
    for place, words in (1, "early"), (3, "down"), (2, "between"):
        run.ending.fail(Failed(place, ps.OperatorError(words)))
    assert str(run.ending.failure) == "down"
    run.ending.abort(ps.PolicyError("another"))
    assert str(run.ending.failure) == "down"
    run.ending.fail(Failed(math.inf, ps.ConservationError("lost")))
    assert str(run.ending.failure) == "lost"


def test_what_fails_because_the_run_is_over_is_not_told(fed):
    run = running(fed, Noting())
    abandoned = ps.OperatorError("in the way")
    abandoned.__cause__ = Abandoned()
    for error in Interrupted(), abandoned:
        run.ending.fail(Failed(1, error))
    assert not run.is_failing


def test_an_error_of_ours_comes_first(fed):
    workers = NoWorkers()
    run = running(fed, Noting(), workers=workers)
    run.ending.fail(Failed(1, ps.OperatorError("the user's")))
    run.ending.crash(RuntimeError("ours"))
    assert workers.told[-1] == "over"
    with pytest.raises(RuntimeError, match="ours"):
        run.leave()


def test_stopping_tells_the_driver_and_ends_at_once_only_where_nothing_is_drained(fed):
    workers = NoWorkers()
    run = running(fed, Noting(), workers=workers)
    workers.told.clear()
    run.stop(drain=True)
    assert (run.is_stopping, run.ending.is_over, workers.told) == (True, False, ["look"])
    run.stop(drain=False)
    assert (run.ending.is_over, workers.told) == (True, ["look", "over", "look"])


def test_tuples_that_do_not_add_up_are_discarded(fed):
    sink = Noting()
    run = running(fed, sink)
    feed(run, 1, 2, 3)
    run.cell_of("out0").inputs[0].total_given += 1
    run.cell_of("in").finish()
    work(run)
    with pytest.raises(ps.ConservationError, match="Its output was not published"):
        run.leave()
    assert not run.ending.adds_up
    assert sink.ends == ["discarded"]
