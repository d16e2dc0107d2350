"""What virtual workers take turns in having, and in which order their steps come."""

import math

from penstock.runtime.agenda import Agenda
from penstock.runtime.slots import Slots, Turns
from penstock.runtime.step_times import Shuffle, Timing
from penstock.runtime.worker import Point


def resumed(agenda):
    """Which workers are resumed, and when: all that is on an agenda."""
    found = []
    while agenda.events:
        time, _, happens, worker, point = agenda.take()
        if happens is None:
            found.append((time, worker, point))
        else:
            happens(worker, point)
    return found


def test_steps_come_by_time_and_then_in_the_order_in_which_they_were_added():
    agenda = Agenda(until=None)
    assert agenda.next_time == math.inf
    for time, worker in (2.0, "b"), (1.0, "a"), (2.0, "c"):
        agenda.add(time, None, worker)
    assert agenda.next_time == 1.0
    assert [worker for _, worker, _ in resumed(agenda)] == ["a", "b", "c"]


def test_the_horizon_is_the_next_look_or_the_end():
    agenda = Agenda(until=10.0)
    assert agenda.horizon == 10.0
    agenda.look_again_at(4.0)
    assert agenda.horizon == 4.0
    agenda.look_again_at(14.0)
    assert agenda.horizon == 10.0


def turns(agenda, now, cores=1, has_gil=False):
    gil = Slots(1, slice_seconds=0.0, switch_seconds=0.0) if has_gil else None
    return Turns(Slots(cores, slice_seconds=1.0, switch_seconds=0.5), gil, agenda, None, lambda: now[0])


def test_a_worker_without_a_core_is_resumed_where_it_stood_when_one_is_free():
    agenda, now = Agenda(until=None), [0.0]
    cores = turns(agenda, now)
    assert cores.has_all("first", Point.TAKE)
    assert cores.has_all("first", Point.TAKE), "it has one already"
    assert not cores.has_all("second", Point.FLUSH)
    cores.give_way("first", 2.0)
    assert resumed(agenda) == [(2.5, "second", Point.FLUSH)]


def test_a_worker_that_waits_for_the_gil_has_no_core():
    agenda, now = Agenda(until=None), [0.0]
    both = turns(agenda, now, cores=2, has_gil=True)
    assert both.has_all("first", None)
    assert not both.has_all("second", None)
    assert both.cores.free == 1


def test_others_have_the_gil_while_a_worker_is_outside_of_it():
    agenda, now = Agenda(until=None), [0.0]
    both = turns(agenda, now, cores=2, has_gil=True)
    assert both.has_all("first", None)
    assert not both.has_all("second", Point.TAKE)
    both.release_gil("first", Point.PROCESS, 1.0, seconds=3.0)
    assert resumed(agenda) == [(1.0, "second", Point.TAKE), (4.0, "first", Point.PROCESS)]


def test_by_itself_nothing_takes_time_and_a_seed_draws_the_same_order_again():
    assert Timing().done_at("worker", Point.TAKE, 5.0) == 5.0
    first, again = Shuffle(7), Shuffle(7)
    times = [first.done_at("worker", Point.TAKE, 0.0) for _ in range(3)]
    assert times == [again.done_at("worker", Point.TAKE, 0.0) for _ in range(3)]
    assert min(times) > 0
