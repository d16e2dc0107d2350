"""The keyed join of two streams."""

from datetime import datetime, timedelta

import pytest

import penstock as ps
from tests.helpers import outputs, run


def at(value):
    return value[1]


def joined(engine, left, right, within=5, **options):
    def build(a, b):
        by_key = b.key_by(lambda v: v[0])
        return a.key_by(lambda v: v[0]).join(by_key, within=within, time=at, **options)

    return outputs(engine, build, left, right)


def test_inner(engine):
    left = [("a", 0), ("a", 10), ("b", 11)]
    right = [("a", 4), ("c", 5), ("b", 16), ("a", 16)]
    assert set(joined(engine, left, right)) == {(("a", 0), ("a", 4)), (("b", 11), ("b", 16))}


def test_every_pair_counts(engine):
    left, right = [("a", 0, 1), ("a", 0, 2)], [("a", 0, 3), ("a", 1, 4)]
    assert len(joined(engine, left, right)) == 4


def test_left_and_outer_give_none_for_the_missing_side(engine):
    left, right = [("a", 0), ("a", 100)], [("a", 3), ("b", 4)]
    assert set(joined(engine, left, right, how="left")) == {(("a", 0), ("a", 3)), (("a", 100), None)}
    assert set(joined(engine, left, right, how="outer")) == {
        (("a", 0), ("a", 3)),
        (("a", 100), None),
        (None, ("b", 4)),
    }


def test_nothing_is_late_unless_lateness_is_given(engine):
    left, right = [("a", 100), ("a", 0)], [("a", 50), ("a", 1)]
    assert joined(engine, left, right) == [(("a", 0), ("a", 1))]


@pytest.mark.in_process
def test_late_tuples_go_to_on_late(engine):
    late = []
    left, right = [("a", 100), ("a", 94), ("a", 96)], [("a", 94), ("a", 96)]
    pairs = joined(engine, left, right, within=0, lateness=5, on_late=late.append)
    assert pairs == [(("a", 96), ("a", 96))]
    assert late == [("a", 94)]


def test_unmatched_tuples_come_out_when_no_partner_can_come_any_more():
    """Long before the end: the state of a join stays small."""
    order = []
    flow = ps.Flow("test")
    left = flow.read(ps.sources.items([("a", t) for t in range(0, 100, 10)])).inspect(lambda v: order.append(v[1]))
    right = flow.read(ps.sources.items([("b", t) for t in range(0, 100, 10)]))
    pairs = left.key_by(lambda v: v[0]).join(right.key_by(lambda v: v[0]), within=5, time=at, how="left", lateness=0)
    pairs.write(ps.sinks.call(lambda pair: order.append(pair)))
    flow.run("sequential")
    assert order.index((("a", 0), None)) < order.index(30)


def test_each_side_may_have_its_own_time(engine):
    def build(a, b):
        return a.key_by(lambda v: 0).join(b.key_by(lambda v: 0), within=1, time=(lambda v: v, lambda v: v["t"]))

    assert outputs(engine, build, [5], [{"t": 6}]) == [(5, {"t": 6})]


def test_datetimes_and_timedeltas(engine):
    noon = datetime(2026, 3, 1, 12)
    left, right = [("a", noon)], [("a", noon + timedelta(minutes=5)), ("a", noon + timedelta(minutes=6))]
    assert joined(engine, left, right, within=timedelta(minutes=5)) == [(left[0], right[0])]


def test_a_stream_joined_with_itself(engine):
    def build(stream):
        by_key = stream.key_by(lambda v: v[0])
        return [by_key.join(by_key, within=0, time=at)]

    assert run(engine, build, [("a", 1), ("a", 2)])[0] == [(("a", 1), ("a", 1)), (("a", 2), ("a", 2))]


@pytest.mark.parametrize("how", ["right", None])
def test_how_is_checked(how):
    with pytest.raises(ps.FlowError, match="how= is 'inner', 'left' or 'outer'"):
        joined("sequential", [], [], how=how)


def test_an_endless_join_must_say_how_late_tuples_may_be():
    def build(lateness):
        flow = ps.Flow("test")
        endless = flow.read(ps.sources.generate(lambda i: ("a", i))).key_by(lambda v: v[0])
        other = flow.read(ps.sources.items([])).key_by(lambda v: v[0])
        endless.join(other, within=1, time=at, lateness=lateness).write(ps.sinks.null())
        return flow

    with pytest.raises(ps.FlowError, match="'generate' is endless.*lateness="):
        build(None).validate()
    build(0).validate()
