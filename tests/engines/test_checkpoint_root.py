"""A checkpoint's folder: whose it is, which version wrote it, and how much stays in it."""

import os

import pytest

import penstock as ps
from penstock.state import files as files_module
from tests.conftest import shuffled


def run(tmp_path, count=10, **options):
    flow = ps.Flow("root")
    sink = ps.sinks.collect()
    keyed = flow.read(ps.sources.items(list(range(count)))).key_by(lambda x: x % 5)
    keyed.stateful_map(lambda s, x: (s + 1, x), init=int, name="count").write(sink)
    flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / "checkpoint", **options))
    return sink.items


def test_what_others_may_write_is_refused(tmp_path):
    run(tmp_path)
    for mode in (0o720, 0o702, 0o777):
        os.chmod(tmp_path / "checkpoint", mode)
        with pytest.raises(ps.CheckpointError, match=r"can be written by other users \(mode 7.*chmod go-w"):
            run(tmp_path)
    os.chmod(tmp_path / "checkpoint", 0o755)
    assert run(tmp_path, 12) == list(range(12))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_belongs_to_another_user_is_refused(tmp_path):
    run(tmp_path)
    os.chown(tmp_path / "checkpoint", 12345, -1)
    with pytest.raises(ps.CheckpointError, match=r"belongs to another user \(id 12345\)"):
        run(tmp_path)


def test_a_folder_that_is_made_is_for_nobody_else(tmp_path):
    before = os.umask(0)
    try:
        run(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o700


def test_a_checkpoint_of_a_newer_version_says_so(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "FORMAT", 99)
        run(tmp_path)
    with pytest.raises(ps.CheckpointError, match=r"has format 99, and this version of Penstock reads format 3"):
        run(tmp_path)


def test_a_checkpoint_from_before_there_were_seals_is_refused(tmp_path):
    (tmp_path / "checkpoint").mkdir(mode=0o700)
    (tmp_path / "checkpoint" / "penstock.json").write_text('{"flow": "root", "query": "ab", "buckets": 1}')
    with pytest.raises(ps.CheckpointError, match=r"penstock.json is damaged"):
        run(tmp_path)


def test_a_start_that_fails_lets_go_of_the_checkpoint(tmp_path):
    run(tmp_path)
    run(tmp_path, 12)
    (tmp_path / "checkpoint" / "manifests" / "0000000002").mkdir()
    with pytest.raises(ps.CheckpointError, match="0000000002"):
        run(tmp_path, 13)
    (tmp_path / "checkpoint" / "manifests" / "0000000002").rmdir()
    assert run(tmp_path, 14) == list(range(14))


@pytest.mark.parametrize("path", ["", " ", 5, "a\0b"])
@pytest.mark.parametrize("engine", [ps.engines.Local, ps.engines.Spark])
def test_what_is_no_path_is_refused(engine, path):
    with pytest.raises(ps.FlowError, match=r"checkpoint= is the path of a directory"):
        engine(checkpoint=path)


def test_what_stays_does_not_grow_with_the_number_of_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engines.durable.checkpoint._GRACE_SECONDS", -1.0)
    flow = ps.Flow("many")
    sink = ps.sinks.collect()
    keyed = flow.read(ps.sources.items(iter(range(700)))).key_by(lambda x: x % 5)
    keyed.stateful_map(lambda s, x: (s + 1, x), init=int, name="count").write(sink)
    report = flow.run(shuffled(1, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0))
    assert len(report.batches) > 600, "a checkpoint for each tuple"
    assert sink.items == list(range(700))
    kept = {
        folder.name: len(list(folder.iterdir())) for folder in (tmp_path / "checkpoint").iterdir() if folder.is_dir()
    }
    assert kept["manifests"] <= 150
    assert kept["state"] <= 150
    assert kept["outputs"] + kept["collected"] <= 150
    assert run_again(tmp_path, range(700, 705)) == list(range(705))


def run_again(tmp_path, numbers):
    flow = ps.Flow("many")
    sink = ps.sinks.collect()
    keyed = flow.read(ps.sources.items(iter(numbers))).key_by(lambda x: x % 5)
    keyed.stateful_map(lambda s, x: (s + 1, x), init=int, name="count").write(sink)
    flow.run(ps.engines.Local(checkpoint=tmp_path / "checkpoint"))
    return sink.items
