"""Files: whole or not at all, one winner, and nothing outside the root."""

import multiprocessing
import os
import pickle
import stat
from dataclasses import replace

import pytest

from penstock.errors import CheckpointError
from penstock.state.files import Blob, Files, Sealed


@pytest.fixture(params=["path", "file URI", "another file system"])
def files(request, tmp_path):
    """A local folder by its path and by its URI, and one that only pyarrow reaches, as an object store."""
    local = tmp_path / "a b"
    return Files({"path": str(local), "file URI": local.as_uri(), "another file system": "mock:///ab"}[request.param])


def test_what_is_sealed_is_unsealed(files):
    for body in (b"0123456789", b"", b"new"):
        seal = files.seal("state/one", body)
        assert files.unseal("state/one") == Sealed(body, seal)
    assert files.modified("state/one") > 0


def test_blobs_are_known_by_their_bytes(files):
    blob = files.keep("state/", b"0123456789")
    assert files.fetch(blob, "digits") == b"0123456789"
    assert files.keep("state/", b"0123456789") == blob
    part = Blob(blob.file, files.digest(b"3456"), 3, 4)
    assert files.fetch(part, "digits") == b"3456"
    files.check(blob, "digits")
    for wrong in (replace(part, offset=4), replace(part, length=5), replace(part, offset=20)):
        with pytest.raises(CheckpointError, match="with digits, is damaged"):
            files.fetch(wrong, "digits")
    with pytest.raises(CheckpointError, match="state/none, with digits, is missing"):
        files.fetch(Blob("state/none", blob.digest), "digits")
    with pytest.raises(CheckpointError, match="state/none, with digits, is missing"):
        files.check(Blob("state/none", blob.digest), "digits")


def test_a_large_blob_is_checked_whole(tmp_path):
    files = Files(str(tmp_path))
    data = bytearray(os.urandom(2_500_000))
    blob = files.keep("state/", bytes(data))
    files.check(blob, "noise")
    data[-1] ^= 1
    (tmp_path / blob.file).write_bytes(data)
    with pytest.raises(CheckpointError, match="is damaged"):
        files.check(blob, "noise")


@pytest.mark.parametrize("key", [b"", b"secret"])
def test_one_flipped_bit_anywhere_is_found(tmp_path, key):
    files = Files(str(tmp_path), key=key)
    files.seal("one", b"some words")
    data = (tmp_path / "one").read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (tmp_path / "one").write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"/one (is damaged|has format)"):
            files.unseal("one")
    for cut in range(len(data)):
        (tmp_path / "one").write_bytes(data[:cut])
        with pytest.raises(CheckpointError, match="is damaged"):
            files.unseal("one")


def test_what_is_sealed_has_one_name_and_one_key(tmp_path):
    files = Files(str(tmp_path), key=b"secret")
    files.seal("one", b"some words")
    with pytest.raises(CheckpointError, match="another key"):
        Files(str(tmp_path), key=b"").unseal("one")
    (tmp_path / "one").rename(tmp_path / "two")
    with pytest.raises(CheckpointError, match="swapped"):
        files.unseal("two")
    with pytest.raises(FileNotFoundError):
        files.unseal("one")


def test_a_file_of_another_format_says_so(tmp_path):
    (tmp_path / "one").write_bytes(b"penstock 99 " + b"0" * 64 + b"\n{}")
    with pytest.raises(CheckpointError, match="has format 99, and this version of Penstock reads format 3"):
        Files(str(tmp_path)).unseal("one")


def test_only_the_first_creates(files):
    assert files.create("log/a/1", b"first")
    assert not files.create("log/a/1", b"second")
    assert files.unseal("log/a/1").body == b"first"


def test_names_are_those_of_whole_files_directly_in_the_folder(files):
    assert files.names("log") == []
    for name in ("log/b", "log/a", "log/deep/c", "logs/d"):
        files.seal(name, b"")
    assert files.names("log") == ["log/a", "log/b"]
    assert files.names("log", temporary=True) == []


def test_what_is_gone_is_gone(files):
    files.seal("log/a", b"")
    files.seal("log/deep/b", b"")
    files.delete("log/a")
    files.delete("log/a")
    assert files.names("log") == []
    files.delete_folder("log")
    files.delete_folder("log")
    for read in (files.unseal, files.modified):
        with pytest.raises(FileNotFoundError):
            read("log/deep/b")


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/passwd", "", "a\\..\\b", "a\0b"])
def test_no_name_leads_out_of_the_root(files, name):
    for use in (files.unseal, files.names, files.modified, files.delete, files.delete_folder):
        with pytest.raises(CheckpointError, match="not a name inside"):
            use(name)
    for use in (files.seal, files.create):
        with pytest.raises(CheckpointError, match="not a name inside"):
            use(name, b"")


def test_no_other_user_may_enter(tmp_path):
    Files(str(tmp_path / "new" / "root")).seal("deep/er/file", b"")
    for folder in ("new", "new/root", "new/root/deep", "new/root/deep/er"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_what_cannot_be_written_is_one_clear_sentence(tmp_path):
    (tmp_path / "root").write_text("a file where the folder should be")
    with pytest.raises(CheckpointError, match=r"can't write .*/root/log/1: .*; '.*/root' must be a folder that"):
        Files(str(tmp_path / "root")).seal("log/1", b"")
    with pytest.raises(CheckpointError, match=r"can't open the checkpoint at nosuch://place"):
        Files("nosuch://place")


def test_a_failed_write_leaves_nothing(tmp_path):
    files = Files(str(tmp_path))
    (tmp_path / "log" / "taken").mkdir(parents=True)
    with pytest.raises(CheckpointError):
        files.seal("log/taken", b"a file can't replace a folder")
    assert os.listdir(tmp_path / "log") == ["taken"]


def test_files_travel_to_other_processes(tmp_path):
    files = Files(str(tmp_path), key=b"secret")
    files.seal("log/1", b"data")
    arrived = pickle.loads(pickle.dumps(files))
    assert arrived.unseal("log/1").body == b"data"
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
        assert files.unseal(f"log/{number}").body == f"{winners[0]} {number} ".encode() * 1000
    assert files.names("log", temporary=True) == []


def test_what_is_written_is_on_the_disk_where_that_is_asked_for(tmp_path, monkeypatch):
    """Only the kernel knows what is on a disk: here, that it was told to put every file and every name there."""
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    files = Files(str(tmp_path))
    files.seal("log/one", b"")
    assert synced == []
    monkeypatch.setenv("PENSTOCK_FSYNC", "1")
    for write in (lambda: files.seal("log/two", b"x"), lambda: files.create("log/three", b"x")):
        synced.clear()
        write()
        file, folder = synced
        assert os.path.dirname(file) == folder == str(tmp_path / "log")
