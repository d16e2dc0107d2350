"""merge and zip."""

import pytest

import penstock as ps
from tests.helpers import outputs, run


def test_zip_pairs_in_order_and_ends_with_the_shortest(engine):
    assert outputs(engine, lambda a, b: a.zip(b), [1, 2, 3], "ab") == [(1, "a"), (2, "b")]


def test_zip_of_three(engine):
    assert outputs(engine, lambda a, b, c: a.zip(b, c), [1, 2], "ab", [True, False]) == [
        (1, "a", True),
        (2, "b", False),
    ]


def test_merge_keeps_the_order_of_each_input(engine):
    merged = outputs(engine, lambda a, b: a.merge(b), range(10), range(100, 105))
    assert sorted(merged) == [*range(10), *range(100, 105)]
    assert [x for x in merged if x < 100] == list(range(10))
    assert [x for x in merged if x >= 100] == list(range(100, 105))


def test_merging_both_branches_gives_every_tuple_once(engine):
    def build(stream):
        even, odd = stream.branch(lambda x: x % 2 == 0)
        return even.map(lambda x: x * 10).merge(odd)

    merged = outputs(engine, build, range(5))
    assert [x for x in merged if x % 10 == 0] == [0, 20, 40]
    assert [x for x in merged if x % 10] == [1, 3]


def test_one_tuple_at_a_time_keeps_the_order_of_branches():
    def build(stream):
        even, odd = stream.branch(lambda x: x % 2 == 0)
        return even.map(lambda x: x * 10).merge(odd)

    assert outputs("sequential", build, range(5)) == [0, 1, 20, 3, 40]


def test_forks_that_rejoin(engine):
    def build(stream):
        small, large = stream.branch(lambda x: x < 500)
        return small.zip(large)

    assert outputs(engine, build, range(1000)) == [(x, x + 500) for x in range(500)]


def test_a_stream_zipped_with_itself(engine):
    assert run(engine, lambda s: [s.zip(s)], [1, 2])[0] == [(1, 1), (2, 2)]


def test_a_stream_of_another_flow_is_refused():
    other = ps.Flow("other").read(ps.sources.items([]))
    stream = ps.Flow("this").read(ps.sources.items([]))
    with pytest.raises(ps.FlowError, match="'items' belongs to flow 'other', not to flow 'this'"):
        stream.merge(other)
