"""Which ready cell is next: the scheduler by itself, with cells that do nothing."""

import random
import threading
from collections import Counter

import pytest

import penstock as ps
from penstock.runtime.policies import POLICIES
from penstock.runtime.scheduler import Scheduler


class Cell:
    """What a scheduler needs of one, and a view of it with a number; several may be replicas with the same view."""

    def __init__(self, number, view=None):
        self.name = f"cell-{number}"
        self.number = number
        self.view = view or self
        self.is_stale = False
        self.turn = self

    def claim(self, from_list=False):
        assert from_list
        return not self.is_stale


class Highest(ps.SchedulingPolicy):
    """Highest number first; nothing is said about when numbers change."""

    def __init__(self):
        self.asked = Counter()

    def priority(self, operator):
        self.asked[operator.name] += 1
        return operator.number


class HighestFixed(Highest):
    priority_changes = "never"


class HighestNotified(Highest):
    priority_changes = "when notified"


HIGHEST = [Highest, HighestFixed, HighestNotified]


def scheduled(policy, cells, **options):
    scheduler = Scheduler(policy, on_ready=lambda cell: None, **options)
    for cell in cells:
        scheduler.add(cell)
    return scheduler


def picked(scheduler):
    found = []
    while (cell := scheduler.pick()) is not None:
        found.append(cell)
    return found


def shuffled(count, seed=0):
    cells = [Cell(number) for number in range(count)]
    random.Random(seed).shuffle(cells)
    return cells


@pytest.mark.parametrize("policy", HIGHEST)
@pytest.mark.parametrize("count", [1, 2, 8, 9, 20, 1000])
def test_the_highest_of_all_that_are_ready_comes_first(policy, count):
    scheduler = scheduled(policy(), shuffled(count))
    assert [cell.number for cell in picked(scheduler)] == list(reversed(range(count)))
    assert scheduler.is_empty
    assert scheduler.pick() is None


@pytest.mark.parametrize("policy", HIGHEST)
def test_who_becomes_ready_later_is_compared_with_all_that_were_before(policy):
    draw = random.Random(1)
    waiting, ready = shuffled(300), []
    scheduler = scheduled(policy(), [])
    while waiting or ready:
        for _ in range(min(len(waiting), draw.randrange(4))):
            ready.append(waiting.pop())
            scheduler.add(ready[-1])
        if ready:
            best = max(ready, key=lambda cell: cell.number)
            assert scheduler.pick() is best
            ready.remove(best)


def test_of_equals_the_one_that_has_been_ready_for_the_longest_comes_first():
    class Equal(ps.SchedulingPolicy):
        priority_changes = "never"

        def priority(self, operator):
            return 0.0

    cells = shuffled(100)
    scheduler = scheduled(Equal(), cells)
    for turn in range(300):
        cell = scheduler.pick()
        assert cell is cells[turn % 100]
        scheduler.add(cell)


def test_a_queue_of_a_million_is_picked_before_a_thousand_of_one():
    class View:
        name, is_source = "op", False

        def __init__(self, queue_length):
            self.queue_length = queue_length

    views = [View(1) for _ in range(500)] + [View(1_000_000)] + [View(1) for _ in range(500)]
    scheduler = scheduled(POLICIES["max-queue"](), [Cell(number, view) for number, view in enumerate(views)])
    assert scheduler.pick().view.queue_length == 1_000_000


def test_news_about_an_operator_that_is_ready_are_heeded():
    cells = shuffled(100)
    scheduler = scheduled(HighestNotified(), cells)
    assert scheduler.pick().number == 99
    lowest = next(cell for cell in cells if cell.number == 0)
    second = next(cell for cell in cells if cell.number == 98)
    lowest.number, second.number = 1000, -1
    scheduler.look_again(lowest)
    scheduler.look_again(second)
    order = [cell.number for cell in picked(scheduler)]
    assert order == [1000, *range(97, 0, -1), -1]


def test_priorities_that_change_at_any_time_are_found_within_a_round():
    cells = shuffled(1000)
    scheduler = scheduled(Highest(), cells)
    scheduler.add(scheduler.pick())
    cells[0].number = 10_000
    picked_before = 0
    while (cell := scheduler.pick()) is not cells[0]:
        scheduler.add(cell)
        picked_before += 1
        assert picked_before <= 340  # three at each pick have their turn


def test_one_whose_priority_has_fallen_is_not_picked_for_what_it_was():
    cells = shuffled(100)
    scheduler = scheduled(Highest(), cells)
    scheduler.add(scheduler.pick())
    next(cell for cell in cells if cell.number == 99).number = -1
    assert scheduler.pick().number == 98


def test_everybody_is_looked_at_equally_often_and_nobody_starves():
    class Random(ps.SchedulingPolicy):
        def __init__(self):
            self.asked = Counter()
            self.draw = random.Random(3).random

        def priority(self, operator):
            self.asked[operator.name] += 1
            return self.draw()

    policy = Random()
    scheduler = scheduled(policy, shuffled(50))
    found = Counter()
    for _ in range(10_000):
        cell = scheduler.pick()
        found[cell.name] += 1
        scheduler.add(cell)
    assert len(found) == 50
    assert max(found.values()) < 1.6 * min(found.values())
    assert max(policy.asked.values()) < 1.5 * min(policy.asked.values())


@pytest.mark.parametrize(("policy", "most"), [(Highest, 5), (HighestNotified, 1), (HighestFixed, 0)])
@pytest.mark.parametrize("count", [10, 1000])
def test_a_pick_among_a_thousand_asks_no_more_than_one_among_ten(policy, most, count):
    policy = policy()
    scheduler = scheduled(policy, shuffled(count))
    scheduler.add(scheduler.pick())
    policy.asked.clear()
    for _ in range(200):
        assert scheduler.compared <= 8
        scheduler.add(scheduler.pick())
    assert policy.asked.total() <= 200 * most


def test_the_sample_is_drawn_from_the_seed():
    def order(seed):
        draw = random.Random(5)
        cells = [Cell(number) for number in range(200)]
        scheduler = scheduled(Highest(), cells, seed=seed)
        found = []
        for _ in range(300):
            for _ in range(20):
                draw.choice(cells).number = draw.random()
            found.append(scheduler.pick().name)
            scheduler.add(cells[int(found[-1].removeprefix("cell-"))])
        return found

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize("policy", HIGHEST)
def test_replicas_of_an_operator_count_as_one(policy):
    policy = policy()
    teams = [Cell(number) for number in range(3)]
    scheduler = scheduled(policy, [Cell(number, teams[number % 3]) for number in range(30)])
    assert [cell.view.number for cell in picked(scheduler)] == [2] * 10 + [1] * 10 + [0] * 10
    assert set(policy.asked) == {"cell-0", "cell-1", "cell-2"}


@pytest.mark.parametrize("policy", HIGHEST)
def test_what_was_claimed_elsewhere_is_skipped(policy):
    cells = shuffled(30)
    for cell in cells:
        cell.is_stale = cell.number % 2 == 0
    assert [cell.number for cell in picked(scheduled(policy(), cells))] == list(range(29, 0, -2))


def test_who_is_ready_alone_is_picked_without_a_question():
    policy = Highest()
    scheduler = scheduled(policy, [Cell(1)])
    for _ in range(5):
        assert scheduler.compared == 0
        scheduler.add(scheduler.pick())
    assert not policy.asked


@pytest.mark.parametrize("before", HIGHEST)
@pytest.mark.parametrize("after", POLICIES)
def test_another_policy_takes_over_all_that_is_ready(before, after):
    class View:
        is_source, place, depth, last_run, oldest_time = False, 1, 1.0, 0.0, 0.0
        seconds_per_tuple = selectivity = share = busy_seconds = 1.0
        queue_length = output_length = workers = 0
        most_workers, output_capacity, room = 1, 10, 10

        def __init__(self, number):
            self.name, self.number = f"op-{number}", number

    cells = [Cell(number, View(number)) for number in range(30)]
    scheduler = scheduled(before(), cells[:20])
    first = scheduler.pick()
    for cell in cells[20:]:
        scheduler.add(cell)
    scheduler.set_policy(POLICIES[after]())
    assert sorted([first, *picked(scheduler)], key=lambda cell: cell.number) == cells
    scheduler.add(cells[0])
    assert picked(scheduler) == [cells[0]]


@pytest.mark.parametrize("changes", ["never", "when notified", "at any time"])
def test_a_policy_that_fails_is_told_with_what_it_was_asked(changes):
    class Failing(ps.SchedulingPolicy):
        priority_changes = changes

        def priority(self, operator):
            return {}[operator.name]

    with pytest.raises(ps.PolicyError, match=r"policy 'Failing' failed when it was asked which of 'cell-.*KeyError"):
        scheduled(Failing(), shuffled(3)).pick()


@pytest.mark.parametrize("policy", HIGHEST)
def test_many_threads_pick_each_cell_once_each_time_that_it_is_ready(policy):
    """Every cell becomes ready a hundred times; nobody ever gets one that another one has."""
    cells = shuffled(40)
    scheduler = scheduled(policy(), cells)
    runs, held, clashes = Counter(), set(), []
    lock = threading.Lock()

    def work():
        while True:
            cell = scheduler.pick()
            with lock:
                if cell is None:
                    if runs.total() == 4000:
                        return
                    continue
                if cell in held:
                    clashes.append(cell)
                held.add(cell)
                runs[cell] += 1
                again = runs[cell] < 100
                held.discard(cell)
            if again:
                scheduler.add(cell)
                scheduler.look_again(cells[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not clashes
    assert set(runs.values()) == {100}
    assert scheduler.is_empty
