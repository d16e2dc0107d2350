"""The log: one manifest per batch, checked when it is read; a sweep takes only what nobody needs."""

import pytest

from penstock.errors import CheckpointError
from penstock.state.buckets import Cache, Place, TaskStates
from penstock.state.files import Files
from penstock.state.manifests import Manifest, Manifests

LATER = 1e12
PLACES = [Place("count", bucket) for bucket in range(3)]


@pytest.fixture(params=["path", "another file system"])
def files(request, tmp_path):
    return Files(str(tmp_path) if request.param == "path" else "mock:///ab")


def manifest(batch, chains=None, **fields):
    plain = {"fingerprint": {"flow": "f"}, "buckets": 3, "offsets": {"in": batch}, "outputs": {"out": [batch]}}
    return Manifest(batch=batch, chains=chains or {}, **{**plain, "closed": False, **fields})


def run(files, log, batches, cache=None):
    """So many batches, each changing one of 20 keys in one bucket."""
    cache = cache or Cache()
    for batch in batches:
        task = TaskStates(files, "q", log.chains(), cache)
        task.change(PLACES[batch % 3], {batch % 20: batch})
        assert log.write(manifest(batch, task.commit()))


def all_states(files, chains):
    task = TaskStates(files, "q", chains, Cache())
    return {place: dict(task.items(place)) for place in PLACES}


def test_a_manifest_comes_back_as_it_was_written(files):
    log = Manifests(files)
    assert log.latest() is None
    assert log.chains() == {}
    run(files, log, range(7))
    written = manifest(7, {PLACES[1]: log.chains()[PLACES[1]], PLACES[2]: log.chains()[PLACES[2]][:1]}, closed=True)
    assert log.write(written)
    for reader in (log, Manifests(files)):
        assert reader.latest() == reader.read(7) == written
        assert reader.read(8) is None
        assert reader.read(3).chains.keys() == {PLACES[0]}


def test_a_batch_is_done_once(files):
    one, two = Manifests(files), Manifests(files)
    assert one.write(manifest(0, offsets={"in": "first"}))
    assert not two.write(manifest(0, offsets={"in": "second"}))
    assert not one.write(manifest(0, offsets={"in": "third"}))
    assert one.latest().offsets == two.latest().offsets == Manifests(files).latest().offsets == {"in": "first"}


def test_the_loser_of_a_race_goes_on_from_what_the_winner_wrote(files):
    one, two = Manifests(files), Manifests(files)
    run(files, one, range(5))
    assert two.latest().batch == 4
    run(files, one, range(5, 8))
    run(files, two, range(8, 10))
    assert one.chains() == two.chains() == Manifests(files).chains()


def test_a_reader_finds_the_chains_from_the_last_full_manifest_on(files):
    log = Manifests(files)
    run(files, log, range(125))
    for batch in range(50):
        files.delete(f"manifests/{batch:010d}.json")
    assert Manifests(files).chains() == log.chains()
    assert [batch for batch, _ in Manifests(files).outputs()] == list(range(50, 125))


def test_a_missing_manifest_is_noticed(files):
    run(files, Manifests(files), range(8))
    files.delete("manifests/0000000005.json")
    with pytest.raises(CheckpointError, match=r"0000000006.json follows batch 5, whose manifest is missing"):
        Manifests(files).chains()


def test_batches_may_have_gaps(files):
    log = Manifests(files)
    run(files, log, [3, 7, 8, 200])
    assert Manifests(files).chains() == log.chains()
    assert not log.write(manifest(5))
    assert log.read(5) is None


def test_outputs_are_those_of_all_batches_in_order(files):
    run(files, Manifests(files), range(12))
    assert list(Manifests(files).outputs()) == [(batch, {"out": [batch]}) for batch in range(12)]


def test_one_flipped_bit_anywhere_is_found(tmp_path):
    files = Files(str(tmp_path))
    run(files, Manifests(files), range(2))
    data = files.read("manifests/0000000001.json")
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        files.write("manifests/0000000001.json", bytes(flipped))
        with pytest.raises(CheckpointError, match=r"0000000001.json .* is damaged"):
            Manifests(files).latest()
    for cut in (0, 10, len(data) - 1):
        files.write("manifests/0000000001.json", data[:cut])
        with pytest.raises(CheckpointError, match="is damaged"):
            Manifests(files).latest()


def test_a_manifest_under_another_name_or_key_is_refused(tmp_path):
    files = Files(str(tmp_path), key=b"secret")
    run(files, Manifests(files), range(2))
    with pytest.raises(CheckpointError, match="written with another key"):
        Manifests(Files(str(tmp_path))).latest()
    files.write("manifests/0000000002.json", files.read("manifests/0000000001.json"))
    with pytest.raises(CheckpointError, match="renamed"):
        Manifests(files).latest()


@pytest.mark.parametrize("keep_from", [130, 120, 60, 49, 0, -1])
def test_a_sweep_deletes_exactly_what_nothing_from_there_on_needs(keep_from):
    files = Files("mock:///ab")
    log, history = Manifests(files), {}
    for batch in range(131):
        run(files, log, [batch], Cache())
        history[batch] = log.chains()
    expected = {batch: all_states(files, chains) for batch, chains in history.items() if batch >= keep_from}
    files.write("state/never-committed", b"of a batch that failed")
    before = set(files.names("state"))
    swept = log.sweep(keep_from, now=LATER)
    needed = {segment.file for batch in expected for chain in history[batch].values() for segment in chain}
    assert set(files.names("state")) == needed
    assert set(swept) == before - needed
    assert log.sweep(keep_from, now=LATER) == []
    for batch, states in expected.items():
        assert all_states(files, history[batch]) == states
    fresh = Manifests(files)
    assert fresh.chains() == history[130]
    for batch in range(max(keep_from, 0), 131, 7):
        assert fresh.read(batch).chains == {PLACES[batch % 3]: history[batch][PLACES[batch % 3]]}
    assert [batch for batch, _ in fresh.outputs()] == list(range(131))


def test_a_sweep_spares_what_is_not_an_hour_old(tmp_path):
    files = Files(str(tmp_path))
    log = Manifests(files)
    files.write("state/never-committed", b"")
    (tmp_path / "state" / ".half").write_bytes(b"of a process that died")
    written = max(files.modified("state/never-committed"), (tmp_path / "state" / ".half").stat().st_mtime)
    assert log.sweep(0, now=written + 3590) == []
    assert log.sweep(0, now=written + 3610) == ["state/never-committed", "state/.half"]
    assert files.names("state") == files.names("state", temporary=True) == []


def test_old_manifests_lose_their_chains_and_nothing_else(files):
    log = Manifests(files)
    run(files, log, range(120))
    size = len(files.read("manifests/0000000010.json"))
    log.sweep(110, now=LATER)
    assert len(files.read("manifests/0000000010.json")) < size
    assert log.read(10) == manifest(10)
    run(files, log, range(120, 125))
    assert Manifests(files).chains() == log.chains()
    assert list(Manifests(files).outputs()) == [(batch, {"out": [batch]}) for batch in range(125)]
