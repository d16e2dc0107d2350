"""The controllers of threads on scripted signals, rule by rule."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.elasticity.signals import OperatorSignals, Signals
from penstock.elasticity.threads import Figure7, Trend, Utilisation


def signals(threads, throughput, utilisation=1.0, most=64, cost=None, **others):
    """A period of a second in which one operator has worked: a tuple takes what utilisation and throughput say."""
    busy = utilisation * threads if cost is None else cost * throughput
    one = OperatorSignals("op", received=int(throughput), busy_seconds=busy, cpu_seconds=busy)
    settings = {"least_threads": 1, "most_threads": most, "cores": most, **others}
    return Signals(0.0, 1.0, {"op": one}, threads=threads, **settings)


def follow(controller, curve, level=1, periods=100, **settings):
    """Let a controller choose, on a curve of throughput by threads; the levels that it was at."""
    levels = []
    for _ in range(periods):
        throughput, busy_threads = curve(level)
        levels.append(level)
        changes = controller.decide(signals(level, throughput, min(1.0, busy_threads / level), **settings))
        if changes:
            assert changes[0].before == level
            level = changes[0].after
    return levels


# C-Stream, section 4.1


@pytest.mark.parametrize(
    ("threads", "utilisation", "after"),
    [(4, 0.96, 5), (4, 0.93, 4), (4, 0.60, 3), (1, 0.10, 1), (64, 1.0, 64), (2, 0.85, 2), (4, 0.89, 4)],
)
def test_utilisation(threads, utilisation, after):
    changes = Utilisation().decide(signals(threads, 1000, utilisation))
    assert [change.after for change in changes] == ([after] if after != threads else [])


@given(st.floats(0.1, 60.0), st.integers(1, 64))
def test_utilisation_comes_to_rest(work, level):
    """So many threads' worth of work comes, whatever the number of threads."""
    levels = follow(Utilisation(), lambda level: (1000, work), level, 150)
    assert len(set(levels[-20:])) == 1
    assert min(levels[-1] + 1, 64) >= min(work, 64) * 0.95


# IBM Streams 4.2, figure 7


def trained(**seen):
    """A controller that has seen throughputs at levels, in this order."""
    controller = Figure7()
    for level, throughput in seen.items():
        controller.decide(signals(int(level[1:]), throughput))
    return controller


@pytest.mark.parametrize(
    ("seen", "level", "throughput", "rule", "after"),
    [
        ({"l1": 100}, 2, 120, 1, 3),  # better than below, nothing known above
        ({"l3": 150}, 2, 120, 2, 3),  # better was seen above
        ({}, 1, 100, 3, 2),  # one thread, nothing known above
        ({}, 5, 100, 4, 4),  # nothing known below
        ({"l1": 100, "l3": 103}, 2, 103, 5, 1),  # no better than below
        ({"l1": 100, "l3": 120}, 2, 120, 6, 2),  # better than below, and above is no better
    ],
)
def test_the_six_rules(seen, level, throughput, rule, after):
    controller = trained(**seen)
    changes = controller.decide(signals(level, throughput))
    assert controller.rule == rule
    assert [change.after for change in changes] == ([after] if after != level else [])


def test_differences_of_five_percent_are_none():
    assert trained(l1=100).decide(signals(2, 104))[0].after == 1
    assert trained(l1=100).decide(signals(2, 106))[0].after == 3


def test_a_change_in_load_makes_everything_untrusted():
    controller = trained(l1=100, l2=120, l3=120)
    assert controller.decide(signals(2, 120)) == []
    (change,) = controller.decide(signals(2, 60))  # the same level, half of what it gave
    assert controller.rule == 4
    assert change.after == 1


def test_a_busy_machine_gets_no_more_threads():
    crowded = {"system_cpu": 0.9, "cores_used": 8.0}
    assert Figure7().decide(signals(1, 100, most=16, **crowded)) == []
    assert Figure7().decide(signals(1, 100, most=16, system_cpu=0.7, cores_used=8.0))[0].after == 2


def test_the_last_level_has_none_above():
    assert trained(l7=100).decide(signals(8, 120, most=8)) == []


@pytest.mark.parametrize("controller", [Figure7, Trend])
def test_nothing_is_decided_while_a_thread_has_not_gone(controller):
    assert controller().decide(signals(1, 100, stuck_threads=1)) == []


def peak(best, work):
    """Throughput rises up to a number of threads and falls slowly after it; there is work for so many."""
    return lambda level: (1000 * min(level, best) * 0.995 ** max(0, level - best), min(level, work))


@pytest.mark.parametrize("best", [1, 2, 5, 12])
def test_figure_7_finds_the_peak(best):
    levels = follow(Figure7(), peak(best, 64), periods=120)
    assert set(levels[-10:]) <= {best - 1, best, best + 1}


def test_figure_7_one_by_one_ends_where_one_more_is_five_percent():
    levels = follow(Figure7(), peak(40, 64), periods=120)
    assert set(levels[-10:]) == {20}


@pytest.mark.parametrize(("controller", "after"), [(Utilisation, 3), (Figure7, 3), (Trend, 4)])
def test_threads_that_wait_may_be_more_than_cores(controller, after):
    def decided(cores_used):
        one = controller()
        one.decide(signals(1, 500, cores=2))
        return [change.after for change in one.decide(signals(2, 1000, cores=2, cores_used=cores_used))]

    assert decided(cores_used=0.1) == [after]
    assert decided(cores_used=1.9) == []


# Better than the paper


@pytest.mark.parametrize("best", [1, 2, 3, 5, 12, 40, 64])
@pytest.mark.parametrize("start", [1, 64])
def test_trend_finds_what_there_is_work_for_in_a_few_steps(best, start):
    levels = follow(Trend(), peak(best, best), start, periods=30)
    steps = sum(one != other for one, other in itertools.pairwise(levels))
    assert len(set(levels[-10:])) == 1
    assert best <= levels[-1] <= best + 1.5 * math.sqrt(best) + 1
    assert steps <= (1 if start == 64 else math.ceil(math.log2(best + 1)) + 3)


@given(st.integers(1, 64), st.integers(1, 64))
def test_trend_is_bounded_and_comes_to_rest(best, start):
    levels = follow(Trend(), peak(best, best), start, periods=40)
    assert all(1 <= level <= 64 for level in levels)
    assert len(set(levels[-10:])) == 1


def test_trend_goes_back_where_more_was_worse():
    levels = follow(Trend(), lambda level: (1000 if level == 4 else 1000 - 100 * abs(level - 4), level), 4, 12)
    assert levels[:3] == [4, 8, 4]
    assert levels[-5:] == [4] * 5


def test_trend_remembers_loads():
    """Dear tuples need twelve threads, cheap ones two; when the dear ones come back there is no search."""
    controller = Trend()

    def dear(level):
        return (1000 * min(level, 12), min(level, 12))

    def cheap(level):
        return (50_000, min(level, 2))

    first = follow(controller, dear, 1, 20)
    second = follow(controller, cheap, first[-1], 20)
    third = follow(controller, dear, second[-1], 20)
    assert first[-1] == third[-1]
    assert second[-1] < first[-1]
    assert len(set(third)) == 2


def test_trend_does_not_follow_bursts():
    """Nine threads of which six are busy, now five, now seven: the average counts."""
    controller = Trend()
    for busy in (6.0, 5.0, 7.0, 4.8, 6.5, 7.2, 5.0, 6.0) * 5:
        assert controller.decide(signals(9, 1000, busy / 9)) == []


def test_trend_leaves_room_for_bursts():
    """Nine on average are busy: half as many more are kept for when more are."""
    (change,) = Trend().decide(signals(64, 1000, 9 / 64))
    assert change.after == 14


@pytest.mark.parametrize("controller", [Figure7, Trend])
def test_a_thread_that_is_held_for_ever_is_not_waited_for(controller):
    chosen = controller()
    found = follow(chosen, lambda level: (1000 * min(level, 16), 99), level=2, periods=60, stuck_threads=1)
    assert found[:4] == [2] * 4
    assert found[-1] >= 12


def test_figure_7_with_levels_that_are_not_linear_passes_where_one_more_is_five_percent():
    found = follow(Figure7(growth=1.25), lambda level: (1000 * min(level, 40), 99), level=1, periods=60)
    assert max(found) >= 40
