"""The controller of batches on scripted signals: executors, tasks and rows, rule by rule."""

import random

import pytest

from penstock.elasticity.batching import Batching
from penstock.elasticity.seasons import Seasons, season_of
from penstock.elasticity.signals import Batches, OperatorSignals, Signals

_START_SECONDS = 12.0


def stage(name, received, cost, before="in", **others):
    seconds = received * cost
    given = {"inputs": {before: received}, "busy_seconds": seconds, "cpu_seconds": seconds, "most_replicas": 1000}
    return OperatorSignals(name, received=received, emitted=received, **(given | others))


def batch(*stages, rows, slots=1, interval=2.0, fixed=0.0, rate=None, time=0.0, seconds=2.0, awaited=0, **others):
    """What is seen after a batch of so many rows."""
    source = OperatorSignals("in", received=rows, emitted=rows, is_source=True)
    return Signals(
        time=time,
        seconds=seconds,
        operators={one.name: one for one in (source, *stages)},
        threads=slots,
        stuck_threads=awaited,
        offered_rate=rows / seconds if rate is None else rate,
        batches=Batches(interval, fixed, rows, most_rows=rows, slots_each=others.pop("slots_each", 1)),
        **{"most_threads": 64, "cores": 64, **others},
    )


def of_10_ms(rate, slots, tasks, **others):
    """One stage of 10 ms a tuple, in batches of two seconds."""
    rows = int(2 * rate)
    return batch(stage("op", rows, 0.01, replicas=tasks), rows=rows, slots=slots, rate=rate, **others)


def decided(controller, signals):
    return {(change.what, change.operator): change.after for change in controller.decide(signals)}


def slots_asked(controller, signals):
    return decided(controller, signals).get(("executors", ""))


# Executors


def test_stages_one_after_another_share_their_slots():
    """Two stages of 1.5 and 0.5 seconds of work a second, batches of 2 s of which 0.4 are fixed."""
    stages = stage("a", 2000, 0.0015), stage("b", 2000, 0.0005, before="a"), stage("cheap", 2000, 1e-5, before="b")
    for slots, needed in ((4, 4), (2, 5)):  # 4.02 s of work in 1.6 s; and what will be late until there are more
        found = decided(Batching(), batch(*stages, rows=2000, fixed=0.4, slots=slots))
        assert found.get(("executors", ""), slots) == needed
        assert found["replicas", "a"] == found["replicas", "b"] == slots
        assert ("replicas", "cheap") not in found  # 20 ms of work are one task


def test_tasks_follow_executors_when_they_come():
    controller = Batching()
    found = decided(controller, of_10_ms(400.0, slots=1, tasks=1))
    asked = found["executors", ""]
    assert asked > 4
    assert ("replicas", "op") not in found
    assert slots_asked(controller, of_10_ms(400.0, slots=1, tasks=1, time=2.0, awaited=asked - 1)) is None
    assert decided(controller, of_10_ms(400.0, slots=5, tasks=1, time=4.0))["replicas", "op"] == 5


def test_more_are_asked_for_while_others_are_under_way():
    controller = Batching()
    asked = slots_asked(controller, of_10_ms(300.0, slots=2, tasks=2))
    late = of_10_ms(300.0, slots=2, tasks=2, time=2.0, awaited=asked - 2, backlog=600 + 4000)
    assert slots_asked(controller, late) >= asked + 3


def test_what_is_late_counts_and_what_is_the_next_batch_s_does_not():
    assert slots_asked(Batching(), of_10_ms(200.0, slots=3, tasks=3, backlog=400)) is None
    assert slots_asked(Batching(), of_10_ms(200.0, slots=3, tasks=3, backlog=400 + 800)) == 5  # 2 + 2, 1.2 times
    assert slots_asked(Batching(40.0), of_10_ms(200.0, slots=3, tasks=3, backlog=400 + 800)) is None


def test_slots_that_are_hardly_too_many_stay():
    """Work for 3.95 slots: five are one too many, but four would have no room for a batch that is a little larger."""
    controller = Batching()
    for number in range(20):
        assert slots_asked(controller, of_10_ms(395.0, slots=5, tasks=5, time=2.0 * number)) is None


def test_executors_are_held_for_half_the_time_in_which_they_come():
    controller = Batching()
    found = {}
    for time in range(0, 40, 2):
        rate = 400.0 if time < 20 else 50.0
        asked = slots_asked(controller, of_10_ms(rate, slots=5, tasks=5, time=float(time)))
        if asked is not None:
            found[time] = asked
    assert found[min(found)] == 1  # at once
    assert 20 + _START_SECONDS / 2 <= min(found) <= 20 + _START_SECONDS / 2 + 4


def test_how_long_executors_take_is_learnt():
    """They have come after forty seconds; so they are held for twenty."""
    controller, found = Batching(), []
    asked = slots_asked(controller, of_10_ms(400.0, slots=1, tasks=1))
    controller.decide(of_10_ms(400.0, slots=1, tasks=1, time=20.0, awaited=asked - 1))
    for time in range(40, 70, 2):
        if slots_asked(controller, of_10_ms(50.0, slots=asked, tasks=asked, time=float(time))) is not None:
            found.append(time)
    assert found[0] == 60


def test_whole_executors_within_bounds():
    assert slots_asked(Batching(), of_10_ms(390.0, slots=4, tasks=4, slots_each=4, backlog=1780)) == 8
    assert slots_asked(Batching(), of_10_ms(5000.0, slots=4, tasks=4, slots_each=4, most_threads=12)) == 12
    assert slots_asked(Batching(), of_10_ms(5000.0, slots=4, tasks=4, most_threads=4)) is None


def test_slots_that_a_hot_key_leaves_nothing_to_are_not_asked_for():
    """Three seconds of work a second on two slots: where one task has half of it, it takes that long on any number."""
    asked = []
    for share in (0.1, 0.5, 0.9):
        one = stage("op", 600, 0.01, replicas=2, hottest_share=share)
        asked.append(slots_asked(Batching(), batch(one, rows=600, slots=2)))
    assert asked[0] >= 4
    assert asked[1:] == [None, None]


def test_without_a_rate_what_fills_its_batches_gets_all_slots():
    full = batch(stage("op", 1000, 0.01), rows=1000, slots=2, most_threads=16, cores=16)
    object.__setattr__(full, "offered_rate", None)
    assert slots_asked(Batching(), full) == 16


# Seasons


def in_seasons(controller, seasons, noise):
    """400 tuples a second in the last ten of every eighty seconds, else 40; executors take twelve seconds to come."""
    random.seed(1)
    found, slots, coming = [], 1, []
    for time in range(2, 80 * seasons, 2):
        slots = max(slots, *(count for ready, count in coming if time >= ready), 0)
        coming = [(ready, count) for ready, count in coming if time < ready]
        awaited = max((count for _, count in coming), default=slots) - slots
        rate = (400.0 if (time - 1) % 80 >= 70 else 40.0) * random.uniform(1 - noise, 1 + noise)
        asked = slots_asked(controller, of_10_ms(rate, slots=slots, tasks=slots, time=float(time), awaited=awaited))
        if asked is not None:
            found.append((time, asked))
            slots, coming = min(slots, asked), [*coming, (time + _START_SECONDS, asked)]
    return found


@pytest.mark.parametrize("noise", [0.0, 0.07])
def test_a_season_is_known_before_it_comes(noise):
    found = in_seasons(Batching(), 6, noise)
    asked = [time % 80 for time, count in found if count >= 4 and time > 160]
    assert len(asked) == 4  # from the third on
    assert all(70 - _START_SECONDS - 8 <= time <= 70 - _START_SECONDS for time in asked)
    assert len([time for time, _ in found if time > 170]) <= 2 * 4


def test_a_season_is_seen_in_batches_of_any_length():
    """The same load, seen after one to seven seconds each."""
    seasons, time = Seasons(), 0.0
    random.seed(2)
    while time < 300:
        seconds = random.uniform(1, 7)
        inside = sum(1 for tick in range(int(seconds * 10)) if (time + tick / 10) % 60 >= 45) / int(seconds * 10)
        time += seconds
        seasons.add(time, seconds, 200 + 1800 * inside)
    assert seasons.season_seconds == pytest.approx(60, abs=1)
    left = 45 - time % 60
    assert seasons.peak(left + 5 if left > 0 else 5) > 1000


def test_long_seasons_are_seen_on_a_coarser_grid():
    seasons = Seasons()
    for second in range(0, 4000, 5):
        seasons.add(float(second), 5.0, 900.0 if second % 1200 > 1000 else 100.0)
    assert seasons.season_seconds == pytest.approx(1200, abs=20)


@pytest.mark.parametrize(
    "values",
    [[5.0] * 50, list(range(50)), [1.0] * 25 + [9.0] * 25, [random.Random(3).uniform(9, 11) for _ in range(50)]],
)
def test_what_does_not_come_back_is_no_season(values):
    assert season_of(values) is None


# Tasks


def test_tasks_don_t_flip_where_work_is_about_the_same():
    """Three tasks and a bit, batch by batch a little more or less: whatever they are at first, they stay."""
    random.seed(4)
    for interval in (1.0, 0.0):
        controller, tasks, changes = Batching(), 4, 0
        for number in range(100):
            seconds = random.uniform(0.13, 0.18)
            one = stage("op", 100, seconds / 100, replicas=tasks)
            seen = batch(one, rows=100, slots=4, interval=interval, seconds=1.0, time=float(number), least_threads=4)
            wanted = decided(controller, seen).get(("replicas", "op"))
            changes += wanted is not None
            tasks = wanted or tasks
        assert changes == 0


def test_tasks_go_when_little_is_left_to_do():
    controller, found = Batching(), []
    for number in range(6):
        one = stage("op", 100, 0.0004, replicas=4)
        seen = batch(one, rows=100, slots=4, interval=1.0, seconds=1.0, time=float(number), least_threads=4)
        found.append(decided(controller, seen).get(("replicas", "op")))
    assert found[:4] == [None, None, 1, 1]


def test_a_stage_has_no_more_tasks_than_slots():
    """Seven equal tasks on six slots take as long as twelve."""
    found = decided(Batching(), of_10_ms(100.0, slots=6, tasks=7, least_threads=6))
    assert found["replicas", "op"] == 6


def test_one_stage_may_have_only_one_task():
    one = stage("op", 400, 0.01, most_replicas=1)
    assert slots_asked(Batching(), batch(one, rows=400, slots=2)) is None  # it would be no faster
