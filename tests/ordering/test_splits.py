"""Which replica gets which unit."""

from penstock.ordering.splits import Lanes, LeastLoaded, RoundRobin


def test_round_robin_goes_on_when_the_number_changes():
    split = RoundRobin()
    assert [split.choose(2, 0.1) for _ in range(3)] == [0, 1, 0]
    assert [split.choose(3, 0.1) for _ in range(3)] == [1, 2, 0]
    assert [split.choose(1, 0.1) for _ in range(2)] == [0, 0]


def test_the_least_loaded_gets_the_next_unit_and_its_load_grows():
    """PRESPS, algorithm 2, lines 1 to 6 and 10."""
    split = LeastLoaded()
    split.new_interval([0.9, 0.3, 0.5])
    assert [split.choose(3, 0.25) for _ in range(4)] == [1, 2, 1, 2]
    split.new_interval([0.0, 0.9, 0.9])
    assert split.choose(3, 0.25) == 0


def test_where_all_are_loaded_it_goes_round():
    """PRESPS, algorithm 2, lines 7 and 8."""
    split = LeastLoaded()
    split.new_interval([1.0, 1.0])
    assert [split.choose(2, 0.25) for _ in range(4)] == [0, 1, 0, 1]


def test_new_replicas_have_no_load():
    split = LeastLoaded()
    split.new_interval([0.5])
    assert [split.choose(2, 0.1), split.choose(1, 0.1)] == [1, 0]


def test_nothing_is_lost_when_replicas_leave():
    lanes = Lanes(RoundRobin())
    lanes.resize(3)
    for unit in range(9):
        lanes.add(unit, 0.1)
    lanes.resize(2)
    assert (lanes.has_work(0), lanes.has_work(1), lanes.has_work(2)) == (True, True, False)
    found = [[lanes.take(replica) for _ in range(6)] for replica in range(2)]
    assert sorted(unit for lane in found for unit in lane if unit is not None) == list(range(9))
