"""Executors that are asked for come later, or not at all: what controllers are told meanwhile. No Spark is needed."""

import pytest

from penstock.clock import FakeClock
from penstock.engines.spark.adjustable import AdjustableSpark


class Cluster:
    """Executors of two slots each; they come when a test says so."""

    slots_each = 2

    def __init__(self, there=1, most_slots=None, why_fixed=None):
        self.there, self.most_slots, self._why_fixed, self.wanted = there, most_slots, why_fixed, there

    def why_fixed(self):
        return self._why_fixed

    def slots(self):
        return self.there * self.slots_each

    def request(self, total):
        self.wanted = total
        return True

    def release(self, total):
        self.wanted = total
        return ["one"] * (self.there - total)

    def come(self):
        self.there = self.wanted


def adjustable(cluster):
    clock = FakeClock()
    return AdjustableSpark(clock, cluster, batches=None, admission=None), clock


def told(spark):
    supply = spark.slots()
    return supply.now, supply.least, supply.most, supply.awaited, supply.each


def test_executors_are_awaited_until_they_have_come():
    cluster = Cluster(most_slots=16)
    spark, clock = adjustable(cluster)
    assert told(spark) == (2, 1, 16, 0, 2)
    assert spark.set_slots(7)  # whole executors
    assert cluster.wanted == 4
    assert told(spark) == (2, 1, 16, 6, 2)
    clock.sleep(10)
    cluster.come()
    assert told(spark) == (8, 1, 16, 0, 2)


def test_executors_that_do_not_come_are_more_than_there_are():
    spark, clock = adjustable(Cluster(most_slots=16))
    spark.set_slots(8)
    clock.sleep(89)
    assert told(spark) == (2, 1, 16, 6, 2)
    clock.sleep(2)
    assert told(spark) == (2, 1, 2, 0, 2)


def test_executors_are_awaited_until_they_have_gone():
    cluster = Cluster(there=4)
    spark, _ = adjustable(cluster)
    assert spark.set_slots(4)
    assert cluster.wanted == 2
    assert told(spark) == (8, 1, 8, 4, 2)
    cluster.come()
    assert told(spark) == (4, 1, 8, 0, 2)


def test_none_is_given_back_while_one_works():
    class Busy(Cluster):
        def release(self, total):
            return []

    spark, _ = adjustable(Busy(there=4))
    assert not spark.set_slots(4)
    assert told(spark) == (8, 1, 8, 0, 2)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_master_without_executors_has_the_slots_that_it_has(count):
    spark, _ = adjustable(Cluster(most_slots=16, why_fixed="there is one process"))
    assert not spark.set_slots(count)
    assert told(spark) == (2, 2, 2, 0, 2)
