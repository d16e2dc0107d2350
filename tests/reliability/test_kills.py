"""Drivers and workers that are killed and paused at any moment: nothing lost, nothing twice, nothing out of order."""

from __future__ import annotations

import random
import shutil
from contextlib import nullcontext

import pytest

from tests.reliability import flows
from tests.reliability.damage import snapshots
from tests.reliability.figures import FIGURES, Trials
from tests.reliability.kills import NEVER, Death, Lives, dying, dying_workers, live_once, paused
from tests.reliability.trials import RIGHT, Place, judge, run_here, run_in_child


def make_place(folder, files, items):
    place = Place(folder / "in", folder / "work")
    flows.write_inputs(place.inputs, files=files)
    place.work.mkdir()
    return place, flows.sequential_outputs(place.inputs, folder / "reference", items)


def check_lives(what, folder, engines, seed, deaths, *, most_steps, most_seconds, files, items, at_each_step=False):
    place, expected = make_place(folder, files, items)
    lives = Lives(place, engines, seed, items)
    wrong = lives.live(most_steps, most_seconds, deaths, at_each_step)
    # What one more run finds is what there is; it reads nothing, and fills the list again.
    last = run_here(engines[0], place, items=items) if not wrong else None
    verdict = judge(last, expected, ()) if last else None
    outcome = verdict.outcome if verdict else "ENDED WRONG"
    FIGURES.add(what, " and ".join(engines), outcome, max(1, len(lives.deaths)))
    assert not wrong, wrong
    assert verdict.outcome == RIGHT, (verdict, lives.deaths)
    return len(lives.deaths)


def test_a_driver_that_dies_again_and_again(tmp_path):
    """Spark's is killed in `tests/spark/test_exactly_once.py`."""
    options = {"most_steps": 5, "most_seconds": 0.05, "files": 12, "items": 30, "at_each_step": True}
    assert check_lives("drivers killed", tmp_path, ["local"], 1, 8, **options) >= 5


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_a_local_driver_that_dies_ten_times(seed, tmp_path):
    options = {"most_steps": 16, "most_seconds": 0.08, "files": 20, "items": 60}
    check_lives("drivers killed", tmp_path, ["local"], seed, 10, **options)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_a_spark_driver_that_dies_twenty_five_times(seed, tmp_path):
    options = {"most_steps": 8, "most_seconds": 1.5, "files": 30, "items": 160}
    check_lives("drivers killed", tmp_path, ["spark"], seed, 25, **options)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_engines_take_turns_and_die(seed, tmp_path):
    options = {"most_steps": 8, "most_seconds": 0.5, "files": 30, "items": 120}
    check_lives("drivers killed", tmp_path, ["local", "spark"], seed, 20, **options)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("pair", [("local", "spark"), ("spark", "local")])
def test_another_engine_goes_on_with_every_step(pair, place, expected, tmp_path):
    """What one engine leaves at any step of any batch is finished by the other."""
    first, second = pair
    trials = Trials("copied at a step", f"{first}, then {second}")
    taken, ended = snapshots(first, place, tmp_path / "taken")
    assert judge(ended, expected, ()).outcome == RIGHT
    for snapshot in taken[:: max(1, len(taken) // 20)]:
        snapshot.restore(place)
        trials.add(str(snapshot), judge(run_here(second, place), expected, ()))
    assert not trials.report(), trials.report()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_local_driver_is_killed_at_every_step(place, expected, tmp_path):
    trials = Trials("drivers killed", "local")
    taken, _ = snapshots("local", place, tmp_path / "taken")
    for number in range(1, len(taken) + 1):
        _begin_again(place)
        if run_in_child(place, dying, Death(number, 0.0)).signal:  # threads may make fewer batches of the same input
            trials.add(f"at step {number}", judge(run_in_child(place, nullcontext), expected, ()))
    assert not trials.report(), trials.report()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_spark_driver_is_killed_at_every_step_of_a_batch(tmp_path):
    """A live process, with a JVM that outlives it for a moment: copies taken at a step are in `test_damage.py`."""
    place, expected = make_place(tmp_path, flows.FILES, flows.ITEMS)
    trials = Trials("drivers killed", "spark")
    for number in range(1, 12):
        _begin_again(place)
        died = live_once("spark", Death(number, 0.0), place, flows.ITEMS)
        assert died.signal, died.told()
        finished = live_once("spark", NEVER, place, flows.ITEMS)
        assert not finished.error, finished.told()
        trials.add(f"at step {number}", judge(run_here("spark", place), expected, ()))
    assert not trials.report(), trials.report()


def test_a_driver_that_is_paused(place, expected):
    check_paused(place, expected, seeds=range(2), times=3)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_driver_that_is_paused_often(place, expected):
    check_paused(place, expected, seeds=range(100), times=8)


def check_paused(place, expected, seeds, times):
    trials = Trials("drivers paused", "local")
    for seed in seeds:
        _begin_again(place)
        ended = run_in_child(place, nullcontext, meanwhile=paused(random.Random(seed), times, 0.02))
        trials.add(f"seed {seed}", judge(ended, expected, ()))
    assert not trials.report(), trials.report()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_workers_of_spark_die(tmp_path):
    """Executors of a cluster are killed in `tests/spark/test_cluster.py`."""
    trials = Trials("workers killed", "spark")
    died: list[int] = []
    for seed in range(10):
        place, expected = make_place(tmp_path / str(seed), 12, 24)
        ended = run_here("spark", place, dying_workers(random.Random(seed), 0.3, died), items=24)
        trials.add(f"seed {seed}", judge(ended, expected, ()))
    assert len(died) >= 30
    assert not trials.report(), trials.report()


def _begin_again(place):
    shutil.rmtree(place.work, ignore_errors=True)
    place.work.mkdir()
