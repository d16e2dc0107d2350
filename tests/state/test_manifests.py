"""The log: one manifest per batch, checked when it is read; what nobody needs is forgotten."""

from dataclasses import replace

import pytest

from penstock.errors import CheckpointError
from penstock.state.buckets import BucketId, Cache, TaskStates
from penstock.state.files import Files
from penstock.state.manifests import Manifest, Manifests, Output

BUCKETS = [BucketId("count", bucket) for bucket in range(3)]


@pytest.fixture(params=["path", "another file system"])
def files(request, tmp_path):
    return Files(str(tmp_path) if request.param == "path" else "mock:///ab")


def manifest(batch, chains=None, **fields):
    plain = {"engine": "local", "query": "q", "operators": {"in": "source"}, "buckets": 3, "offsets": {"in": batch}}
    outputs = {"out": [Output(f"outputs/{batch}", "ab", batch)]}
    return Manifest(batch=batch, chains=chains or {}, outputs=outputs, **{**plain, **fields})


def bare(manifest):
    return replace(manifest, lineage="")


def run(files, log, batches, cache=None):
    """So many batches, each changing one of 20 keys in one bucket."""
    cache = cache or Cache()
    for batch in batches:
        task = TaskStates(files, "q", log.chains(), cache)
        task.change(BUCKETS[batch % 3], {batch % 20: batch})
        assert log.write(manifest(batch, task.commit()))


def all_states(files, chains):
    task = TaskStates(files, "q", chains, Cache())
    return {bucket_id: dict(task.items(bucket_id)) for bucket_id in BUCKETS}


def test_a_manifest_comes_back_as_it_was_written(files):
    log = Manifests(files)
    assert log.latest() is None
    assert log.chains() == {}
    run(files, log, range(7))
    written = manifest(7, {BUCKETS[1]: log.chains()[BUCKETS[1]], BUCKETS[2]: log.chains()[BUCKETS[2]][:1]}, closed=True)
    assert log.write(written)
    for reader in (log, Manifests(files)):
        assert bare(reader.latest()) == written
        assert reader.latest().lineage == files.unseal("manifests/0000000007").seal


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
        files.delete(f"manifests/{batch:010d}")
    assert Manifests(files).chains() == log.chains()


def test_a_missing_manifest_is_noticed(files):
    run(files, Manifests(files), range(8))
    files.delete("manifests/0000000005")
    with pytest.raises(CheckpointError, match=r"0000000006 follows batch 5, and what is there before it is batch 4"):
        Manifests(files).chains()


def test_batches_may_have_gaps(files):
    log = Manifests(files)
    run(files, log, [3, 7, 8, 200])
    assert Manifests(files).chains() == log.chains()
    assert not log.write(manifest(5))


def test_a_manifest_of_another_copy_is_noticed(tmp_path):
    """Two copies that went on differently: the second's last manifest among those of the first."""
    logs = {}
    for copy in ("one", "two"):
        files = Files(str(tmp_path / copy))
        log = logs[copy] = Manifests(files)
        run(files, log, range(3))
        log.write(manifest(3, offsets={"in": copy}))
        log.write(manifest(4))
    assert logs["one"].latest().lineage != logs["two"].latest().lineage
    name = "manifests/0000000004"
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(CheckpointError, match="of this or another copy of the checkpoint"):
        Manifests(Files(str(tmp_path / "one"))).latest()


def test_a_whole_manifest_leaves_nothing_of_what_was_before(files):
    log = Manifests(files)
    run(files, log, range(5))
    only = {BUCKETS[1]: log.chains()[BUCKETS[1]]}
    assert log.write(manifest(5, only), is_whole=True)
    run(files, log, range(6, 8))
    assert Manifests(files).chains() == log.chains()
    assert log.chains().keys() == {BUCKETS[0], BUCKETS[1]}


def test_one_flipped_bit_anywhere_is_found(tmp_path):
    files = Files(str(tmp_path))
    run(files, Manifests(files), range(2))
    path = tmp_path / "manifests" / "0000000001"
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"0000000001 (is damaged|has format)"):
            Manifests(files).latest()


@pytest.mark.parametrize("keep_from", [130, 120, 60, 49, 0, -1])
def test_what_is_needed_from_a_batch_on_is_kept_and_nothing_else(keep_from):
    files = Files("mock:///ab")
    log, history = Manifests(files), {}
    for batch in range(131):
        run(files, log, [batch], Cache())
        history[batch] = log.chains()
    expected = {batch: all_states(files, chains) for batch, chains in history.items() if batch >= keep_from}
    needed = log.forget(keep_from)
    states = {segment.file for batch in expected for chain in history[batch].values() for segment in chain}
    outputs = {f"outputs/{batch}" for batch in expected}
    assert needed == states | outputs
    first = max(0, keep_from // 50 * 50)
    assert files.names("manifests") == [f"manifests/{batch:010d}" for batch in range(first, 131)]
    for name in files.names("state"):
        if name not in needed:
            files.delete(name)
    for batch, states in expected.items():
        assert all_states(files, history[batch]) == states
    fresh = Manifests(files)
    assert fresh.chains() == history[130]
    run(files, fresh, range(131, 135))
    assert Manifests(files).chains() == fresh.chains()
