"""Controllers together: one change at a time, in an order that is always the same."""

import pytest

import penstock as ps
from penstock.elasticity.loop import Arbiter
from penstock.elasticity.signals import OperatorSignals, Signals


class Wants(ps.Controller):
    """Wants the same thing in every period, and counts how often it was asked."""

    def __init__(self, what, name="wants"):
        self.what, self.name, self.asked = what, name, 0

    def decide(self, signals):
        self.asked += 1
        return [ps.Change(self.what, "op" if self.what == "replicas" else "", 1, 2, "because")]


def signals(**others):
    operators = {
        "in": OperatorSignals("in", emitted=100, is_source=True),
        "op": OperatorSignals("op", received=100, busy_seconds=1.0, most_replicas=8, inputs={"in": 100}),
    }
    return Signals(1.0, 1.0, operators, **{"threads": 2, "most_threads": 8, "cores": 8, **others})


def started(elastic):
    """A loop that has seen the period in which queues fill."""
    loop = Arbiter(elastic)
    assert loop.step(signals()) == ("", [])  # whatever anybody wants
    return loop


def test_replicas_come_before_threads_and_both_before_helping():
    loop = started(
        ps.Elastic(threads=Wants("threads", "t"), replicas=Wants("replicas", "r"), helping=Wants("helping", "h"))
    )
    assert loop.step(signals())[0] == "r"
    loop = started(ps.Elastic(threads=Wants("threads", "t"), replicas="fixed", helping=Wants("helping", "h")))
    assert loop.step(signals())[0] == "t"
    loop = started(ps.Elastic(threads="fixed", replicas="fixed", helping=Wants("helping", "h")))
    assert loop.step(signals())[0] == "h"


def test_a_period_in_which_nothing_is_decided_is_seen_all_the_same():
    class Sees(Wants):
        def see(self, signals):
            seen.append(signals.time)

        def __deepcopy__(self, memo):
            return self

    seen: list[float] = []
    wants = Sees("threads")
    loop = started(ps.Elastic(threads=wants, replicas="fixed", helping=False))
    for _ in range(4):
        loop.step(signals())
    assert (len(seen), wants.asked) == (3, 2)


def test_after_a_change_one_period_is_nobody_s():
    loop = started(ps.Elastic(threads=Wants("threads"), replicas="fixed", helping=False))
    assert [len(loop.step(signals())[1]) for _ in range(4)] == [1, 0, 1, 0]


def test_only_what_is_made_is_accepted():
    class Notes(Wants):
        def accept(self, changes, signals):
            accepted.extend((self.name, change.what) for change in changes)

    accepted: list[tuple[str, str]] = []
    loop = started(ps.Elastic(threads=Notes("threads", "t"), replicas=Notes("replicas", "r"), helping=False))
    loop.step(signals())
    assert accepted == [("r", "replicas")]


def test_bounds_come_first():
    loop = started(ps.Elastic(threads=Wants("threads"), replicas=Wants("replicas")))
    who, changes = loop.step(signals(threads=9))
    assert who == "bounds"
    assert [(change.what, change.before, change.after) for change in changes] == [("threads", 9, 8)]


def test_the_gil_has_a_veto():
    loop = started(ps.Elastic(replicas=Wants("replicas")))
    bound = signals(has_gil=True, cores_used=1.0, threads=2)
    operators = {**bound.operators, "op": OperatorSignals("op", received=100, busy_seconds=1.9, most_replicas=8)}
    bound = Signals(1.0, 1.0, operators, threads=2, most_threads=8, cores=8, has_gil=True, cores_used=1.0)
    who, changes = loop.step(bound)
    assert who == "gil"
    assert [(change.what, change.after) for change in changes] == [("threads", 1)]


def busy_threads(threads, cores_used, system_cpu=0.0):
    operators = {**signals().operators, "op": OperatorSignals("op", received=100, busy_seconds=0.95 * threads)}
    figures = {"cores": 2, "cores_used": cores_used, "system_cpu": system_cpu}
    return Signals(1.0, 1.0, operators, threads=threads, most_threads=8, has_gil=True, **figures)


def test_who_waits_for_others_does_not_wait_for_the_gil():
    assert busy_threads(2, cores_used=1.0).is_gil_bound
    assert not busy_threads(2, cores_used=0.1).is_gil_bound


def test_who_waits_for_a_core_does_not_wait_for_the_gil():
    """A neighbour has taken the other one."""
    assert busy_threads(2, cores_used=1.0, system_cpu=0.6).is_gil_bound
    assert not busy_threads(2, cores_used=1.0, system_cpu=0.95).is_gil_bound


def test_the_veto_is_taken_back_where_one_thread_has_nothing_to_compute():
    """Many threads that wait a lot and compute a little use up one core: with one of them, hardly anything is used."""
    loop = started(ps.Elastic(threads=Wants("threads"), replicas="fixed", helping=False))
    assert loop.step(busy_threads(8, cores_used=1.0))[0] == "gil"
    loop.step(busy_threads(1, cores_used=0.1))
    assert loop.step(busy_threads(1, cores_used=0.1))[0] == "wants"
    loop.step(busy_threads(8, cores_used=1.0))
    assert loop.step(busy_threads(8, cores_used=1.0))[0] != "gil"


def test_every_run_has_its_own_copy_of_a_controller():
    mine = Wants("threads")
    started(ps.Elastic(threads=mine, replicas="fixed")).step(signals())
    assert mine.asked == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"threads": "magic"},
            "threads= is one of 'demand', 'trend', 'utilisation', 'figure-7', 'fixed' or a ps.Controller",
        ),
        ({"replicas": "magic"}, "replicas= is one of"),
        ({"period": 0}, "period="),
        ({"least_threads": 4, "most_threads": 2}, "least_threads <= most_threads"),
        ({"least_replicas": 0}, "least_replicas"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ps.FlowError, match=message):
        ps.Elastic(**options)
