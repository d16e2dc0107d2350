"""States of a task: what a commit keeps, what a cache may and may not show, and what is found out when it is read."""

import itertools
import pickle
import threading

import pytest

from penstock.errors import CheckpointError
from penstock.state.buckets import BucketId, Cache, Segment, TaskStates
from penstock.state.chains import steps
from penstock.state.files import Blob, Files

BUCKET = BucketId("count", 7)
OTHER = BucketId("total", 7)


class CountingFiles(Files):
    """Real files that remember how much was read."""

    def __init__(self, root, key=None):
        super().__init__(root, key)
        self.read_bytes = 0

    def fetch(self, blob, what):
        data = super().fetch(blob, what)
        self.read_bytes += len(data)
        return data


def size_of(files, name):
    """How long a file of states is, whose name ends with its digest."""
    return len(files.fetch(Blob(name, name.rpartition("/")[2]), "states"))


@pytest.fixture(params=["path", "another file system"])
def files(request, tmp_path):
    return CountingFiles(str(tmp_path) if request.param == "path" else "mock:///ab")


def commit(files, chains, cache, changes, deleted=(), bucket_id=BUCKET):
    task = TaskStates(files, "query", chains, cache)
    task.change(bucket_id, changes, deleted)
    return {**chains, **task.commit()}


def filled(count, letter="x"):
    """Some states of 100 bytes each."""
    return {key: f"{key:03}".ljust(100, letter) for key in range(count)}


def states(files, chains, cache=None, bucket_id=BUCKET):
    return dict(TaskStates(files, "query", chains, cache or Cache()).items(bucket_id))


def bytes_read(files, action):
    before = files.read_bytes
    action()
    return files.read_bytes - before


def test_all_changes_of_a_task_are_one_file_and_no_changes_are_none(files):
    task = TaskStates(files, "query", {}, Cache())
    assert task.get(BUCKET, "a", "none") == "none"
    assert task.commit() == {}
    assert files.names("state") == []
    task.change(BUCKET, {})
    assert task.commit() == {}
    assert files.names("state") == []
    task.change(BUCKET, {"a": 1, "b": 2})
    task.change(BUCKET, {"c": 3}, deleted=["a"])
    task.change(OTHER, {"a": [1]})
    assert task.get(BUCKET, "a", "none") == "none"
    chains = task.commit()
    assert len(files.names("state")) == 1
    assert states(files, chains) == {"b": 2, "c": 3}
    assert states(files, chains, bucket_id=OTHER) == {"a": [1]}


def test_a_key_that_is_deleted_and_comes_back_is_there(files):
    chains = commit(files, {}, Cache(), filled(100))
    task = TaskStates(files, "query", chains, Cache())
    task.change(BUCKET, {}, deleted=[1])
    task.change(BUCKET, {1: 2})
    chains = {**chains, **task.commit()}
    assert len(chains[BUCKET]) == 2
    assert states(files, chains) == {**filled(100), 1: 2}


def test_states_may_be_changed_while_they_are_gone_through(files):
    chains = commit(files, {}, Cache(), filled(10))
    task = TaskStates(files, "query", chains, Cache())
    for key, state in task.items(BUCKET):
        task.change(BUCKET, {f"new {key}": state}, deleted=[key])
    chains = {**chains, **task.commit()}
    assert states(files, chains) == {f"new {key}": state for key, state in filled(10).items()}


def test_where_everything_has_changed_it_is_written_once(files):
    cache = Cache()
    chains = commit(files, {}, cache, filled(100))
    first = chains[BUCKET]
    chains = commit(files, chains, cache, filled(100, "y"))
    for [segment] in (first, chains[BUCKET]):
        assert segment.is_base
        assert segment.length == size_of(files, segment.file)
    assert states(files, chains) == filled(100, "y")


def test_equal_keys_are_one_key(files):
    chains = commit(files, {}, Cache(), {1: "one", "x": 0})
    chains = commit(files, chains, Cache(), {True: "true"})
    assert TaskStates(files, "query", chains, Cache()).get(BUCKET, 1.0, None) == "true"
    assert len(states(files, chains)) == 2


def test_nothing_is_visible_before_the_chain_is_known(files):
    chains = commit(files, {}, Cache(), {"a": 1, "b": 1})
    commit(files, chains, Cache(), {"a": 2})
    assert states(files, chains) == {"a": 1, "b": 1}


def test_an_abandoned_attempt_leaves_nothing_behind(files):
    cache = Cache()
    chains = commit(files, {}, cache, {"a": [1]})
    attempt = TaskStates(files, "query", chains, cache)
    attempt.get(BUCKET, "a", None).append(2)
    attempt.abandon()
    assert states(files, chains, cache) == {"a": [1]}


def test_an_attempt_that_is_merely_lost_leaves_nothing_behind(files):
    cache = Cache()
    chains = commit(files, {}, cache, {"a": [1]})
    TaskStates(files, "query", chains, cache).get(BUCKET, "a", None).append(2)
    assert states(files, chains, cache) == {"a": [1]}


def test_two_attempts_at_once_never_share_an_object(files):
    cache = Cache()
    chains = commit(files, {}, cache, {"a": [1]})
    one, two = (TaskStates(files, "query", chains, cache) for _ in range(2))
    one.get(BUCKET, "a", None).append(2)
    assert two.get(BUCKET, "a", None) == [1]


def test_a_commit_that_did_not_count_is_not_read_from_the_cache(files):
    cache = Cache()
    chains = commit(files, {}, cache, {"a": 1, "b": 1})
    commit(files, chains, cache, {"a": "lost", "c": "lost"})
    chains = commit(files, chains, Cache(), {"b": 2})
    assert states(files, chains, cache) == {"a": 1, "b": 2}


def test_an_equal_change_of_another_history_is_not_taken_for_this_one(files):
    """Both processes end with the same change, but one has another before it."""
    cache = Cache()
    base = commit(files, {}, cache, filled(100))
    lost = commit(files, base, cache, {1: "lost"})
    commit(files, lost, cache, {2: "same"})
    chains = commit(files, commit(files, base, Cache(), {3: "kept"}), Cache(), {2: "same"})
    assert states(files, chains, cache) == {**filled(100), 2: "same", 3: "kept"}


def test_another_query_sees_nothing_of_this_one(files):
    cache = Cache()
    chains = commit(files, {}, cache, {"a": 1})
    assert list(TaskStates(files, "other", {}, cache).items(BUCKET)) == []
    assert states(files, chains, cache) == {"a": 1}


def test_what_is_cached_is_not_read(files):
    cache = Cache()
    chains = commit(files, {}, cache, filled(100))
    assert bytes_read(files, lambda: commit(files, chains, cache, {1: 1})) == 0
    task = TaskStates(files, "query", chains, cache)
    assert bytes_read(files, lambda: task.get(BUCKET, 1, None)) > 10_000, "not the chain that was cached"
    task.commit()
    task = TaskStates(files, "query", chains, cache)
    assert bytes_read(files, lambda: task.get(BUCKET, 1, None)) == 0, "a bucket that was only read goes back"


def test_a_process_catches_up_by_the_changes_alone_also_over_merges_and_new_bases():
    """Two processes in turn, through many compactions: neither reads the base again."""
    files = CountingFiles("mock:///ab")
    caches, model = [Cache(), Cache()], filled(1000)
    chains = commit(files, {}, caches[0], model)
    chains = commit(files, chains, caches[1], {0: "both have the base now"})
    model[0] = "both have the base now"
    base_bytes, segments = chains[BUCKET][0].length, set()
    for batch in range(300):
        changes = {key % 1000: f"{batch}".ljust(100) for key in range(batch * 7, batch * 7 + 7)}
        model |= changes
        before = files.read_bytes
        chains = commit(files, chains, caches[batch // 3 % 2], changes)
        assert files.read_bytes - before < base_bytes / 4
        segments.update(chains[BUCKET])
    assert len([segment for segment in segments if segment.upto and segment.is_base]) > 2
    assert len([segment for segment in segments if segment.upto and not segment.is_base]) > 2
    assert states(files, chains, caches[0]) == states(files, chains, caches[1]) == states(files, chains) == model


def test_a_chain_stays_short_and_its_files_small_however_large_the_base():
    files, cache = Files("mock:///ab"), Cache()
    chains = commit(files, {}, cache, filled(20_000))
    base = chains[BUCKET][0]
    written = 0
    for batch in range(500):
        chains = commit(files, chains, cache, {batch: f"{batch:03}".ljust(100, "y")})
        assert len(chains[BUCKET]) < 45
        written += sum(segment.length for segment in chains[BUCKET] if segment.file == chains[BUCKET][-1].file)
    assert chains[BUCKET][0] == base
    assert written < 500 * 150 * 8, "merging costs what was changed, a few times"


def test_a_bucket_whose_changes_exceed_half_its_base_gets_a_new_base(files):
    cache = Cache()
    chains = commit(files, {}, cache, filled(100))
    old = chains[BUCKET][0]
    chains = commit(files, chains, cache, filled(60, "y"))
    assert chains[BUCKET][0].is_base
    assert chains[BUCKET][0] != old
    assert len(steps(chains[BUCKET])) == 1
    assert states(files, chains) == filled(100) | filled(60, "y")


def test_only_some_of_many_buckets_are_compacted_at_once(files):
    """All become due together: each commit does a few, and after some commits all are done."""
    cache, buckets = Cache(), [BucketId("count", bucket) for bucket in range(50)]
    task = TaskStates(files, "query", {}, cache)
    for bucket_id in buckets:
        task.change(bucket_id, filled(200))
    chains = task.commit()
    old = {bucket_id: chains[bucket_id][0] for bucket_id in buckets}
    compacted = []
    for batch in range(130):
        task = TaskStates(files, "query", chains, cache)
        for bucket_id in buckets:
            task.change(bucket_id, {batch: f"{batch:03}".ljust(100, "y")})
        chains = {**chains, **task.commit()}
        compacted.append(sum(chains[bucket_id][0] != old[bucket_id] for bucket_id in buckets))
    assert compacted[-1] == 50
    assert max(after - before for before, after in itertools.pairwise(compacted)) <= 5


def test_the_cache_forgets_what_was_not_used_for_longest(files):
    task = TaskStates(files, "query", {}, Cache())
    for bucket in range(10):
        task.change(BucketId("count", bucket), {"a": "x" * 1000})
    chains = task.commit()
    cache = Cache(limit_bytes=5000)
    for bucket in (0, 1, 2, 3, 0, 4):
        task = TaskStates(files, "query", chains, cache)
        task.get(BucketId("count", bucket), "a", None)
        task.commit()
    assert len(cache) == 4
    cached = []
    for bucket in range(10):
        task = TaskStates(files, "query", chains, cache)
        if not bytes_read(files, lambda: task.get(BucketId("count", bucket), "a", None)):  # noqa: B023
            cached.append(bucket)
    assert cached == [0, 2, 3, 4]


def test_a_bucket_larger_than_the_cache_works_without_it(files):
    cache = Cache(limit_bytes=10)
    chains = commit(files, {}, cache, {"a": 1})
    assert len(cache) == 0
    assert states(files, commit(files, chains, cache, {"b": 2}), cache) == {"a": 1, "b": 2}


def test_a_state_that_cannot_be_kept_is_named(files):
    cache = Cache()
    chains = commit(files, {}, cache, {"fine": 1})
    task = TaskStates(files, "query", chains, cache)
    task.change(BUCKET, {"fine": 2, "user-7": {"lock": threading.Lock()}})
    with pytest.raises(CheckpointError, match=r"operator 'count' can't keep the state of key 'user-7', .*pickle"):
        task.commit()
    assert len(files.names("state")) == 1
    assert task.get(BUCKET, "fine", None) == states(files, chains, cache)["fine"] == 1


def test_an_engine_may_bring_its_own_way_to_pickle(files):
    seen = []

    def dumps(value):
        seen.append(value)
        return pickle.dumps(value)

    task = TaskStates(files, "query", {}, Cache(), dumps)
    task.change(BUCKET, {"a": 1})
    assert states(files, task.commit()) == {"a": 1}
    assert seen == [({"a": 1}, [])]


def test_one_flipped_bit_anywhere_is_found(tmp_path):
    files = Files(str(tmp_path))
    chains = commit(files, {}, Cache(), {"a": 1, "b": 2})
    [name] = files.names("state")
    data = (tmp_path / name).read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (tmp_path / name).write_bytes(flipped)
        with pytest.raises(CheckpointError, match=rf"{name}, with states of operator 'count', is damaged"):
            states(files, chains)
    (tmp_path / name).write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match="is damaged"):
        states(files, chains)
    files.delete(name)
    with pytest.raises(CheckpointError, match=rf"{name}, with states of operator 'count', is missing"):
        states(files, chains)


def test_without_the_key_nothing_is_unpickled(tmp_path):
    """An intruder who can write files and knows their plain hashes still can't have them unpickled."""
    ours, theirs = Files(str(tmp_path), key=b"secret"), Files(str(tmp_path))
    chains = commit(theirs, {}, Cache(), {"a": 1})
    assert states(theirs, chains) == {"a": 1}
    with pytest.raises(CheckpointError, match="is damaged, .* or was written with another key"):
        states(ours, chains)
    chains = commit(ours, {}, Cache(), {"a": 1})
    assert states(ours, chains) == {"a": 1}


def test_segments_are_plain_lists_in_json():
    segment = Segment("state/ab", 3, 10, "cd", True, "ef", 5)
    assert segment.to_json() == ["state/ab", 3, 10, "cd", 1, "ef", 5]
    assert Segment.from_json(segment.to_json()) == segment


def test_a_change_of_all_that_is_left_names_nothing_that_is_gone(files):
    chains = commit(files, commit(files, {}, Cache(), filled(100)), Cache(), {1: "new"}, deleted=[*range(2, 100), 0])
    (base,) = chains[BUCKET]
    assert base.is_base
    assert base.length < 100
    assert states(files, chains) == {1: "new"}


@pytest.mark.parametrize("staying", [0, 1000])
def test_keys_that_come_and_go_leave_nothing(staying, tmp_path):
    """What is written, needed and kept in memory is the same after a hundred commits as after twenty."""
    files, cache = Files(str(tmp_path)), Cache()
    chains = commit(files, {}, cache, {f"stays {key}": key for key in range(staying)} or {"first": 0})
    sizes = []
    for number in range(120):
        before = set(files.names("state"))
        new = {(number, key): key for key in range(50)}
        chains = commit(files, chains, cache, new, [(number - 1, key) for key in range(50)] if number else ())
        written = sum(size_of(files, name) for name in set(files.names("state")) - before)
        bucket = cache.take("query", BUCKET)
        entries = sum(len(one.states) + len(one.deleted) for one in bucket.changed.values())
        cache.put("query", BUCKET, bucket)
        sizes.append((written, sum(one.length for one in chains[BUCKET]), len(chains[BUCKET]), entries))
    early, late = (map(max, zip(*some, strict=True)) for some in (sizes[10:40], sizes[-30:]))
    assert all(after <= 1.2 * before for before, after in zip(early, late, strict=True))
    assert len(states(files, chains)) == staying + 50 + (not staying)
