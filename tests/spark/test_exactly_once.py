"""A driver that is killed at any step, and restarted, writes every tuple once and in order."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.clock import SystemClock
from penstock.engines.durable import steps
from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.spark.admission import Admission, BatchLimits
from penstock.state.files import Blob
from tests.killed_flow import check_written, write_input, written
from tests.spark import kill_script

SCRIPT = Path(kill_script.__file__)
STEPS = ("admitted", "planned", "processed", "manifest", "published")


@pytest.fixture
def folder(tmp_path):
    write_input(tmp_path)
    return tmp_path


def run_script(folder, call):
    root = str(SCRIPT.parents[2])
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {root!r}); from pathlib import Path; "
            f"from tests.spark.kill_script import die_anywhere, main; folder = Path({str(folder)!r}); {call}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def check_after(folder, step, batch):
    killed = run_script(folder, f"main(folder, {step!r}, {batch})")
    assert killed.returncode == -9, killed.stderr[-2000:]
    check_finished(folder)


def check_finished(folder):
    finished = run_script(folder, "main(folder, 'never', 0)")
    assert finished.returncode == 0, finished.stderr[-2000:]
    check_written(folder)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [pytest.param("processed", marks=pytest.mark.long), "manifest"])
def test_killed_and_restarted(folder, step):
    check_after(folder, step, 1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step(folder, step, batch):
    check_after(folder, step, batch)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_random_three_times(folder, seed):
    deaths = [run_script(folder, f"die_anywhere(folder, {seed * 3 + life})").returncode for life in range(3)]
    assert deaths[0] == -9
    check_finished(folder)


def test_a_second_run_goes_on_where_the_first_stopped(tmp_path):
    def run(values):
        flow = ps.Flow("going-on")
        result = ps.sinks.collect()
        counted = flow.read(ps.sources.items(values)).key_by(lambda x: x % 2)
        counted.stateful_map(lambda s, x: (s + 1, (x, s)), init=int, name="counted").write(result)
        flow.run("spark", checkpoint=str(tmp_path / "checkpoint"))
        return result.items

    assert run([1, 2, 3]) == [(1, 0), (2, 0), (3, 1)]
    assert run([1, 2, 3, 4, 5]) == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)]


def test_windows_are_kept_open_for_the_next_run(tmp_path):
    def run(values, **options):
        flow = ps.Flow("open-windows")
        timed = flow.read(ps.sources.items(values)).key_by(lambda x: "all")
        windows = timed.window(ps.windows.tumbling(10, time=float)).count(name="per-ten")
        windows.map(lambda w: {"start": w.start, "count": w.value}).write(
            ps.sinks.json(tmp_path / "out", mode="append")
        )
        flow.run("spark", checkpoint=str(tmp_path / "checkpoint"), **options)
        return [json.loads(line) for line in written(tmp_path, "out")]

    assert run([1, 2, 11]) == [{"start": 0.0, "count": 2}]
    assert run([1, 2, 11, 12, 13], at_end="close") == [{"start": 0.0, "count": 2}, {"start": 10.0, "count": 3}]
    with pytest.raises(ps.FlowError, match="has ended"):
        run([1, 2, 11, 12, 13, 14])


def test_a_batch_that_failed_is_processed_by_the_next_run(tmp_path):
    def run(divisor):
        flow = ps.Flow("mended")
        result = ps.sinks.collect()
        numbers = flow.read(ps.sources.items([1, 2, 3])).map(lambda x: x / divisor, name="divided")
        numbers.key_by(lambda x: 0).count(name="counted").write(result)
        flow.run("spark", checkpoint=str(tmp_path / "checkpoint"), at_end="close")
        return result.items

    with pytest.raises(ps.OperatorError, match="'divided'"):
        run(0)
    assert run(1) == [(0, 1), (0, 2), (0, 3)]


def test_output_of_the_last_batch_is_published_by_the_next_run(tmp_path, monkeypatch):
    """The driver dies between the manifest and the publication of a run's only batch."""

    def run():
        flow = ps.Flow("unpublished")
        flow.read(ps.sources.items([1, 2, 3])).write(ps.sinks.text(tmp_path / "out"))
        flow.run("spark", checkpoint=str(tmp_path / "checkpoint"))

    def die(step):
        if step == "manifest":
            raise RuntimeError("died")

    with monkeypatch.context() as patch:
        patch.setattr(steps, "observer", die)
        with pytest.raises(ps.PenstockError, match="died"):
            run()
    assert written(tmp_path, "out") == []
    run()
    assert written(tmp_path, "out") == ["1", "2", "3"]


def test_every_life_admits_what_the_one_before_has_left(tmp_path):
    """A batch that takes part of a chunk notes the offset of that part: no tuple is lost or read twice."""
    values = list(range(25))
    flow = ps.Flow("lives")
    flow.read(ps.sources.items(values)).write(ps.sinks.null())
    graph, seen = flow.validate(), []
    for life in range(6):
        checkpoint = Checkpoint(str(tmp_path), graph, "spark", 1)
        commits = Commits(checkpoint, graph)
        commits.open()
        admission = Admission(graph, checkpoint, SystemClock(), BatchLimits(rows=4), closes=False)
        for _ in range(2):
            admitted = admission.admit({"items": 2})
            if admitted is None:
                continue
            if life == 1:  # it dies before the batch is done: what was admitted is admitted again
                break
            parts = [part for task in admission.take().tasks for part in task]
            blobs = [Blob(*part.spool) for part in parts]
            seen += [value for blob in blobs for value in pickle.loads(checkpoint.files.fetch(blob, "values"))]
            commits.commit(admitted.number, admitted.offsets, {}, {}, closed=False)
        checkpoint.leave()
    assert seen == values
