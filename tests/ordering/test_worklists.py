"""The tuples of a bucket are worked on in order, by one worker at a time; a bucket that is held keeps no other back."""

import random
from dataclasses import dataclass

import pytest

from penstock.ordering.worklists import HybridQueue, PartitionedQueue, SharedQueue


@dataclass(frozen=True)
class Piece:
    serial: int
    bucket: int
    size: int = 1

    def __len__(self):
        return self.size


@pytest.mark.parametrize("make", [HybridQueue, SharedQueue, PartitionedQueue])
@pytest.mark.parametrize("seed", range(15))
def test_theorem_4_1_each_key_once_in_order_and_by_one_worker(make, seed):
    chance = random.Random(seed)
    worklist, workers = make(), chance.randint(1, 4)
    held: dict[int, list[Piece]] = {}
    added: dict[int, list[int]] = {}
    done: dict[int, list[int]] = {}
    serial = 0
    while serial < 60 or held or any(worklist.has_work(worker, workers) for worker in range(workers)):
        worker = chance.randrange(workers)
        if serial < 60 and chance.random() < 0.4:
            buckets = chance.sample(range(5), chance.randint(1, 3))
            worklist.add([Piece(serial, bucket, chance.randint(1, 3)) for bucket in buckets])
            for bucket in buckets:
                added.setdefault(bucket, []).append(serial)
            serial += 1
        elif worker in held:
            parts = held.pop(worker)
            for part in parts:
                done.setdefault(part.bucket, []).append(part.serial)
            worklist.done(parts)
        else:
            promised = worklist.has_work(worker, workers)
            parts = worklist.take(chance.randint(1, 6), worker, workers)
            assert bool(parts) == promised
            busy = {part.bucket for others in held.values() for part in others}
            assert not busy & {part.bucket for part in parts}, "two workers in one bucket"
            if parts:
                held[worker] = parts
    assert done == added


def test_a_hot_bucket_keeps_nobody_from_the_others():
    worklist = HybridQueue()
    worklist.add([Piece(0, bucket=1)])
    hot = worklist.take(10, 0, 2)
    worklist.add([Piece(1, bucket=1), Piece(1, bucket=2)])
    worklist.add([Piece(2, bucket=1), Piece(2, bucket=3)])
    assert [part.bucket for part in worklist.take(10, 1, 2)] == [2, 3]
    worklist.done(hot)
    assert [(part.serial, part.bucket) for part in worklist.take(10, 0, 2)] == [(1, 1), (2, 1)]


def test_the_oldest_comes_first():
    worklist = HybridQueue()
    for serial, bucket in (0, 7), (1, 3), (2, 5):
        worklist.add([Piece(serial, bucket)])
    assert [worklist.take(1, 0, 1)[0].serial for _ in range(3)] == [0, 1, 2]


def test_in_a_shared_queue_a_held_bucket_stops_all():
    worklist = SharedQueue()
    worklist.add([Piece(0, bucket=1)])
    worklist.take(1, 0, 2)
    worklist.add([Piece(1, bucket=1), Piece(1, bucket=2)])
    assert worklist.take(1, 1, 2) == []


def test_in_a_partitioned_queue_nobody_does_the_work_of_another():
    worklist = PartitionedQueue()
    worklist.add([Piece(0, bucket=0), Piece(0, bucket=2)])
    assert worklist.take(10, 1, 2) == []
    assert [part.bucket for part in worklist.take(10, 0, 2)] == [0, 2]
