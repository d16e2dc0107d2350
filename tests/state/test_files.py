"""Files: whole or not at all, one winner, and nothing outside the root."""

import multiprocessing
import os
import pickle
import stat

import pytest

from penstock.errors import CheckpointError
from penstock.state.files import Files


@pytest.fixture(params=["path", "file URI", "another file system"])
def files(request, tmp_path):
    """A local folder by its path and by its URI, and one that only pyarrow reaches, as an object store."""
    local = tmp_path / "a b"
    return Files({"path": str(local), "file URI": local.as_uri(), "another file system": "mock:///ab"}[request.param])


def test_what_is_written_is_read(files):
    files.write("state/one", b"0123456789")
    assert files.read("state/one") == b"0123456789"
    assert files.read("state/one", 3) == b"3456789"
    assert files.read("state/one", 3, 4) == b"3456"
    assert files.read("state/one", 8, 4) == b"89"
    assert files.read("state/one", 20) == b""
    files.write("state/one", b"new")
    assert files.read("state/one") == b"new"
    assert files.modified("state/one") > 0


def test_only_the_first_creates(files):
    assert files.create("log/a/1", b"first")
    assert not files.create("log/a/1", b"second")
    assert files.read("log/a/1") == b"first"


def test_names_are_those_of_whole_files_directly_in_the_folder(files):
    assert files.names("log") == []
    for name in ("log/b", "log/a", "log/deep/c", "logs/d"):
        files.write(name, b"")
    assert files.names("log") == ["log/a", "log/b"]
    assert files.names("log", temporary=True) == []


def test_what_is_gone_is_gone(files):
    files.write("log/a", b"")
    files.write("log/deep/b", b"")
    files.delete("log/a")
    files.delete("log/a")
    assert files.names("log") == []
    files.delete_folder("log")
    files.delete_folder("log")
    for read in (files.read, files.modified):
        with pytest.raises(FileNotFoundError):
            read("log/deep/b")


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/passwd", "", "a\\..\\b", "a\0b"])
def test_no_name_leads_out_of_the_root(files, name):
    for use in (files.read, files.names, files.modified, files.delete, files.delete_folder):
        with pytest.raises(CheckpointError, match="not a name inside"):
            use(name)
    for use in (files.write, files.create):
        with pytest.raises(CheckpointError, match="not a name inside"):
            use(name, b"")


def test_no_other_user_may_enter(tmp_path):
    Files(str(tmp_path / "new" / "root")).write("deep/er/file", b"")
    for folder in ("new", "new/root", "new/root/deep", "new/root/deep/er"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_what_cannot_be_written_is_one_clear_sentence(tmp_path):
    (tmp_path / "root").write_text("a file where the folder should be")
    with pytest.raises(CheckpointError, match=r"can't write .*/root/log/1: .*; the checkpoint must be a folder that"):
        Files(str(tmp_path / "root")).write("log/1", b"")
    with pytest.raises(CheckpointError, match=r"can't open the checkpoint at nosuch://place"):
        Files("nosuch://place")


def test_a_failed_write_leaves_nothing(tmp_path):
    files = Files(str(tmp_path))
    (tmp_path / "log" / "taken").mkdir(parents=True)
    with pytest.raises(CheckpointError):
        files.write("log/taken", b"a file can't replace a folder")
    assert os.listdir(tmp_path / "log") == ["taken"]


def test_files_travel_to_other_processes(tmp_path):
    files = Files(str(tmp_path), key=b"secret")
    files.write("log/1", b"data")
    arrived = pickle.loads(pickle.dumps(files))
    assert arrived.read("log/1") == b"data"
    assert arrived.digest(b"data") == files.digest(b"data") != Files(str(tmp_path)).digest(b"data")


def test_the_key_may_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_KEY", "secret")
    assert Files(str(tmp_path)).digest(b"data") == Files(str(tmp_path), key=b"secret").digest(b"data")


def claim(files, rounds, me, start):
    made = []
    for number in rounds:
        start.wait()
        made.append(files.create(f"log/{number}", f"{me} {number} ".encode() * 1000))
    return made


def test_of_several_processes_one_creates_each_file(tmp_path):
    files, rounds, processes = Files(str(tmp_path)), range(40), 4
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(processes) as pool:
        start = manager.Barrier(processes)
        claims = pool.starmap(claim, [(files, rounds, me, start) for me in range(processes)], chunksize=1)
    for number in rounds:
        winners = [me for me in range(processes) if claims[me][number]]
        assert len(winners) == 1
        assert files.read(f"log/{number}") == f"{winners[0]} {number} ".encode() * 1000
    assert files.names("log", temporary=True) == []
