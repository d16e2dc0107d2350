"""Many batches by several processes, with failures and retries, against a plain dict."""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import chains as chains_module
from penstock.state.buckets import BucketId, Cache, TaskStates
from penstock.state.files import Files
from penstock.state.manifests import Manifest, Manifests

BUCKETS = [BucketId(operator, bucket) for operator in ("count", "total") for bucket in range(3)]
KEYS = [*range(12), *(f"key {number}" for number in range(12)), None, (1, "x"), 2.5]

ATTEMPT = st.fixed_dictionaries(
    {
        "process": st.integers(0, 2),
        "seed": st.integers(0, 2**32),
        "buckets": st.sets(st.sampled_from(BUCKETS), min_size=1, max_size=4),
        "most_keys": st.sampled_from([1, 1, 2, 5, 25]),
        "end": st.sampled_from(["abandon", "lose", "commit in vain", "commit"]),
    }
)
BATCH = st.tuples(st.lists(ATTEMPT, max_size=2), ATTEMPT, st.booleans())


class Model:
    """What the states should be, and the processes that should find them."""

    def __init__(self, root, cache_bytes):
        self.files = Files(root)
        self.caches = [Cache(cache_bytes) for _ in range(3)]
        self.logs = [Manifests(self.files) for _ in range(3)]
        self.truth = {bucket_id: {} for bucket_id in BUCKETS}
        self.segments = set()
        self.fill()

    def fill(self):
        """Give some buckets a large base, so that changes to them are merged before there is another base."""
        task = TaskStates(self.files, "q", {}, Cache())
        for bucket_id in BUCKETS[::2]:
            task.change(bucket_id, {"ballast": ["x" * 2000]})
            self.truth[bucket_id] = {"ballast": ["x" * 2000]}
        assert self.logs[0].write(Manifest(0, "local", "q", {}, 3, {}, task.commit(), {}))

    def work(self, attempt):
        """Change some states as a user's function does, in place, and return the task and what should come of it."""
        choose = random.Random(attempt["seed"])
        task = TaskStates(self.files, "q", self.logs[attempt["process"]].chains(), self.caches[attempt["process"]])
        truth = copy.deepcopy(self.truth)
        for bucket_id in sorted(attempt["buckets"]):
            assert dict(task.items(bucket_id)) == truth[bucket_id]
            states, deleted = {}, []
            for key in choose.sample(KEYS, choose.randint(0, attempt["most_keys"])):
                state = task.get(bucket_id, key, None)
                assert state == truth[bucket_id].get(key)
                if state is not None and choose.random() < 0.3:
                    deleted.append(key)
                    del truth[bucket_id][key]
                    continue
                state = [] if state is None else state
                state.append(choose.randint(0, 9))
                states[key] = state
                truth[bucket_id][key] = list(state)
            if states or deleted:
                task.change(bucket_id, states, deleted)
        return task, truth

    def run(self, number, failed, done, is_swept):
        for attempt in failed:
            task, _ = self.work(attempt)
            if attempt["end"] == "abandon":
                task.abandon()
            elif attempt["end"] != "lose":
                task.commit()
        task, truth = self.work(done)
        log = self.logs[done["process"]]
        assert log.write(Manifest(number, "local", "q", {}, 3, {}, task.commit(), {}))
        self.truth = truth
        self.segments.update(segment for chain in log.latest().chains.values() for segment in chain)
        if is_swept:
            needed = log.forget(number)
            for name in self.files.names("state"):
                if name not in needed:
                    self.files.delete(name)

    def check(self):
        fresh = Manifests(self.files)
        for cache, log in [*zip(self.caches, self.logs), (Cache(), fresh)]:
            task = TaskStates(self.files, "q", log.chains(), cache)
            assert {bucket_id: dict(task.items(bucket_id)) for bucket_id in BUCKETS} == self.truth


@given(batches=st.lists(BATCH, min_size=1, max_size=40), cache_bytes=st.sampled_from([0, 1000, 1 << 20]))
@settings(max_examples=60)
def test_states_are_what_the_manifests_say(batches, cache_bytes):
    play("mock:///checkpoint", batches, cache_bytes)


@pytest.mark.parametrize("seed", range(6))
def test_long_histories_of_small_changes(tmp_path, seed):
    """Enough batches for merges of merges and full manifests, which hypothesis rarely draws."""
    choose = random.Random(seed)

    def attempt():
        return {
            "process": choose.choice([0, 0, 1, 2]),
            "seed": choose.getrandbits(32),
            "buckets": set(choose.sample(BUCKETS, choose.choice([1, 1, 6]))),
            "most_keys": choose.choice([1, 1, 1, 3]),
            "end": choose.choice(["abandon", "lose", "commit in vain"]),
        }

    batches = [([attempt()] if choose.random() < 0.2 else [], attempt(), choose.random() < 0.1) for _ in range(160)]
    model = play(
        str(tmp_path) if seed == 0 else "mock:///checkpoint", batches, cache_bytes=choose.choice([4000, 1 << 20])
    )
    assert sum(bool(segment.upto and segment.is_base) for segment in model.segments) > 5
    assert sum(bool(segment.upto and not segment.is_base) for segment in model.segments) > 5


@pytest.fixture(autouse=True, scope="module")
def _many_compactions():
    """Merge from four segments on, so that short histories have merges too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains_module, "_MOST_SEGMENTS", 4)
        patch.setattr(chains_module, "_KEPT_CHANGES", 3)
        yield


def play(root, batches, cache_bytes):
    model = Model(root, cache_bytes)
    for number, (failed, done, is_swept) in enumerate(batches, start=1):
        model.run(number, failed, done, is_swept)
    model.check()
    return model
