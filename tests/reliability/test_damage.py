"""A file of a checkpoint was damaged, lost, exchanged or planted: a `CheckpointError` that names it, or no harm."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.reliability.damage import (
    Snapshot,
    damages,
    damages_of_folders,
    files_by_kind,
    halfway,
    snapshots,
    try_damage,
)
from tests.reliability.figures import Trials
from tests.reliability.trials import RIGHT, judge, run

KEY = "PENSTOCK_CHECKPOINT_KEY"


def half_finished(engine, place, expected, folder) -> list[Snapshot]:
    """What a run leaves that dies at a step, for every step."""
    shutil.rmtree(place.work, ignore_errors=True)
    place.work.mkdir()
    taken, ended = snapshots(engine, place, folder)
    assert judge(ended, expected, ()).outcome == RIGHT, ended
    return taken


def kinds_of(snapshot: Snapshot) -> set[str]:
    return set(files_by_kind(snapshot.folder))


def check_damages(engine, place, expected, marker, cases):
    trials = Trials("damage", engine)
    for snapshot, damage in cases:
        verdict = try_damage(engine, place, expected, snapshot, damage, marker)
        trials.add(f"at {snapshot}, {damage}", verdict)
    assert not trials.report(), f"on {engine}:\n{trials.report()}"


def in_turn(cases):
    """Each damage of each kind of file once, at one of the steps: there a run takes seconds."""
    same = {}
    for snapshot, damage in cases:
        same.setdefault((damage.kind, re.sub(r"\d+", "", damage.name)), []).append((snapshot, damage))
    return [steps[number % len(steps)] for number, steps in enumerate(same.values())]


def tell_workers(key, monkeypatch):
    """A session that is already there has given its environment to its workers; new ones get this."""
    from pyspark.sql import SparkSession

    monkeypatch.setitem(SparkSession.active().sparkContext.environment, KEY, key)


def last_step_before_publication(taken: list[Snapshot]) -> Snapshot:
    """There is output to be published, input to be read, and states to go on with."""
    candidates = halfway(taken)
    return candidates[-2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("key", ["", "secret"])
def test_some_damages_of_every_kind_of_file(key, place, expected, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, key)
    taken = half_finished("local", place, expected, tmp_path / "taken")
    snapshot = last_step_before_publication(taken)
    cases = [(snapshot, one) for one in damages(snapshot, taken[len(taken) // 3], tmp_path / "marker", per_kind=1)]
    cases += [(snapshot, one) for one in damages_of_folders(snapshot, taken[len(taken) // 3])]
    check_damages("local", place, expected, tmp_path / "marker", cases[::2] if key else cases[1::3])


@pytest.mark.timeout(600)
def test_some_damages_on_spark(place, expected, tmp_path):
    """To the files that only Spark's checkpoints have: the others are damaged above."""
    local = {kind for one in halfway(half_finished("local", place, expected, tmp_path / "l")) for kind in kinds_of(one)}
    taken = half_finished("spark", place, expected, tmp_path / "taken")
    cases = {}
    for snapshot in halfway(taken):
        for one in damages(snapshot, taken[0], tmp_path / "marker", per_kind=1):
            if one.name == "a pickle in its place" and one.kind not in local and not one.kind.endswith(".crc"):
                cases.setdefault(one.kind, (snapshot, one))
    check_damages("spark", place, expected, tmp_path / "marker", cases.values())


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("key", ["", "secret"])
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_every_damage(engine, key, place, expected, tmp_path, monkeypatch):
    twins = {}
    if key:
        twins = {str(one): one for one in half_finished(engine, place, expected, tmp_path / "twins")}
    monkeypatch.setenv(KEY, key)
    if key and engine == "spark":
        tell_workers(key, monkeypatch)
    taken = half_finished(engine, place, expected, tmp_path / "taken")
    marker, older = tmp_path / "marker", taken[len(taken) // 3]
    cases = []
    for snapshot in halfway(taken):
        found = damages(snapshot, older, marker, 3 if engine == "local" else 1, twins.get(str(snapshot)))
        cases += [(snapshot, one) for one in (*found, *damages_of_folders(snapshot, older))]
    check_damages(engine, place, expected, marker, cases if engine == "local" else in_turn(cases))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_copy_of_any_step_is_gone_on_with(engine, place, expected, tmp_path):
    """As if the process had died there: a copy of what it has left behind, without its lock."""
    trials = Trials("copied at a step", engine)
    for snapshot in half_finished(engine, place, expected, tmp_path / "taken"):
        snapshot.restore(place)
        trials.add(str(snapshot), judge(run(engine, place), expected, ()))
    assert not trials.report(), trials.report()


@pytest.mark.parametrize(("made_with", "read_with"), [("secret", "other"), ("secret", ""), ("", "secret")])
def test_another_key(made_with, read_with, place, expected, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, made_with)
    taken = half_finished("local", place, expected, tmp_path / "taken")
    last_step_before_publication(taken).restore(place)
    monkeypatch.setenv(KEY, read_with)
    verdict = judge(run("local", place), expected, ("key", KEY), ("CheckpointError",))
    assert verdict.outcome == "refused", verdict


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tasks_of_spark_seal_with_the_drivers_key(place, expected, tmp_path, monkeypatch):
    """Workers that were started before the key was set either get it from the driver, or the run is refused."""
    assert judge(run("spark", place), expected, ()).outcome == RIGHT  # there are workers now
    shutil.rmtree(place.work)
    place.work.mkdir()
    monkeypatch.setenv(KEY, "secret")
    taken, ended = snapshots("spark", place, tmp_path / "taken")
    verdict = judge(ended, expected, ("key",))
    if verdict.outcome == "refused":
        return
    assert verdict.outcome == RIGHT, verdict
    last_step_before_publication(taken).restore(place)
    tell_workers("secret", monkeypatch)
    verdict = judge(run("spark", place), expected, ())
    assert verdict.outcome == RIGHT, verdict
