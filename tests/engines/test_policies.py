"""The heuristics of ordered streams, each on the figures of its own section."""

from dataclasses import dataclass

import pytest

import penstock as ps
from penstock.runtime.policies import CurrentThroughput, EstimatedTime, QueueThrottling


@dataclass
class View:
    """What a policy sees."""

    name: str = "op"
    place: float = 1
    is_source: bool = False
    queue_length: int = 0
    seconds_per_tuple: float = 1e-3
    workers: int = 0
    most_workers: int = 1
    busy_seconds: float = 0.0
    share: float = 1.0
    selectivity: float = 1.0
    output_length: int = 0
    output_capacity: int = 100


def first_choice(policy, *views):
    return max(views, key=policy.priority).name


def test_estimated_time_is_queue_times_cost_for_one_worker_more():
    policy = EstimatedTime()
    assert policy.priority(View(queue_length=30, seconds_per_tuple=0.01, workers=2, most_workers=4)) == pytest.approx(
        0.1
    )
    assert policy.priority(View(queue_length=30, workers=4, most_workers=4)) == 0
    assert first_choice(policy, View("source", is_source=True), View("busy", queue_length=1)) == "busy"


def test_current_throughput_picks_who_has_processed_the_fewest_tuples():
    """All have had ten milliseconds; a tuple costs the first one, the others ten, but the last gets a tenth."""
    policy = CurrentThroughput()
    views = [View("cheap"), View("costly", seconds_per_tuple=1e-2), View("rare", seconds_per_tuple=1e-2, share=0.1)]
    for view in views:
        policy.priority(view)
        view.busy_seconds = 0.01
    assert first_choice(policy, *views) == "costly"
    cheap, _, rare = (policy.priority(view) for view in views)
    assert cheap == pytest.approx(rare)
    views[1].workers = 100
    assert first_choice(policy, *views) != "costly"


def test_queue_throttling_picks_the_first_whose_readers_have_room():
    """Both emit as much, so each may have half of the capacity waiting behind it."""
    policy = QueueThrottling()
    early, late = View("early", place=1, output_length=49), View("late", place=2)
    policy.priority(late)
    assert first_choice(policy, early, late) == "early"
    early.output_length = 51
    assert first_choice(policy, early, late) == "late"
    early.output_capacity = 1000  # the queues' capacity is the flow's
    assert first_choice(policy, early, late) == "early"


def test_queue_throttling_has_the_capacity_that_it_is_given():
    policy = QueueThrottling(capacity=20)
    early, late = View("early", place=1, output_length=11), View("late", place=2)
    policy.priority(late)
    assert first_choice(policy, early, late) == "late"


def test_views_tell_what_the_heuristics_need():
    seen = {}

    class Watching(ps.SchedulingPolicy):
        def priority(self, operator):
            seen[operator.name] = (
                operator.share,
                operator.selectivity,
                operator.workers,
                operator.most_workers,
                operator.busy_seconds,
            )
            return 0

    flow = ps.Flow("views")
    numbers = flow.read(ps.sources.items(range(5000)), name="numbers")
    many = numbers.flat_map(lambda x: [x] * 3, name="many", replicas=2)
    many.filter(lambda x: x % 2, name="odd", replicas=3).write(ps.sinks.null(), name="sink")
    flow.run(ps.engines.Local(threads=2, policy=Watching(), queue_size=100))
    assert seen["many"][:2] == (1.0, 3.0)
    assert seen["odd"][0] == 3.0
    assert seen["odd"][1] == pytest.approx(0.5, abs=0.1)
    assert seen["sink"][0] == pytest.approx(1.5, abs=0.3)
    assert (seen["many"][3], seen["odd"][3], seen["sink"][3]) == (2, 3, 1)
    assert seen["odd"][4] > 0
