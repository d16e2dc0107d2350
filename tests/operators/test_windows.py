"""Tumbling, sliding and session windows, with lateness."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

import penstock as ps
from tests.helpers import outputs, run


def at(value):
    return value[1]


def keyed(stream):
    return stream.key_by(lambda value: value[0])


def windowed(engine, spec, values):
    return outputs(engine, lambda s: keyed(s).window(spec).count(), values)


def test_tumbling(engine):
    values = [("a", 1), ("a", 4), ("b", 9), ("a", 12), ("b", 25)]
    assert windowed(engine, ps.windows.tumbling(10, time=at), values) == [
        ("a", 0, 10, 2),
        ("b", 0, 10, 1),
        ("a", 10, 20, 1),
        ("b", 20, 30, 1),
    ]


def test_a_result_is_a_named_tuple(engine):
    (result,) = windowed(engine, ps.windows.tumbling(10, time=at), [("a", 1)])
    assert isinstance(result, ps.WindowResult)
    assert (result.key, result.start, result.end, result.value) == ("a", 0, 10, 1)


def test_windows_close_as_soon_as_the_watermark_reaches_their_end():
    """Seen from a second stream: results come before the tuple that follows the one which closed them."""
    order = []
    flow = ps.Flow("test")
    source = flow.read(ps.sources.items([("a", 1), ("a", 10), ("a", 11)])).inspect(order.append)
    keyed(source).window(ps.windows.tumbling(10, time=at)).count().write(ps.sinks.call(order.append))
    flow.run("sequential")
    assert order == [("a", 1), ("a", 10), ("a", 0, 10, 1), ("a", 11), ("a", 10, 20, 2)]


def test_what_fires_together_is_sorted_by_end_then_hash_then_bytes(engine):
    from penstock.ordering.keys import firing_order, key_bytes

    keys = [f"key-{number}" for number in range(50)]
    values = [(key, 5) for key in keys] + [(key, 15) for key in reversed(keys)] + [("x", 100)]
    result = windowed(engine, ps.windows.tumbling(10, time=at), values)
    expected = sorted(keys, key=lambda key: firing_order(key_bytes(key)))
    assert [r.key for r in result] == [*expected, *expected, "x"]
    assert [r.end for r in result] == [10] * 50 + [20] * 50 + [110]


def test_sliding_windows_overlap(engine):
    assert windowed(engine, ps.windows.sliding(10, 5, time=at), [("a", 7), ("a", 12)]) == [
        ("a", 0, 10, 1),
        ("a", 5, 15, 2),
        ("a", 10, 20, 1),
    ]


def test_hopping_windows_leave_gaps(engine):
    values = [("a", 1), ("a", 6), ("a", 11), ("a", 17)]
    assert windowed(engine, ps.windows.sliding(5, 10, time=at), values) == [("a", 0, 5, 1), ("a", 10, 15, 1)]


def test_session_windows_end_after_a_gap(engine):
    values = [("a", 0), ("a", 4), ("b", 5), ("a", 9), ("a", 30)]
    assert windowed(engine, ps.windows.session(6, time=at), values) == [
        ("b", 5, 11, 1),
        ("a", 0, 15, 3),
        ("a", 30, 36, 1),
    ]


def test_a_tuple_exactly_the_gap_later_begins_a_new_session(engine):
    values = [("a", 0), ("a", 5), ("a", 9)]
    assert windowed(engine, ps.windows.session(5, time=at), values) == [("a", 0, 5, 1), ("a", 5, 14, 2)]


def test_sessions_grow_together(engine):
    values = [("a", 0), ("a", 8), ("a", 4), ("a", 50)]
    spec = ps.windows.session(5, time=at, lateness=10)
    collected = outputs(engine, lambda s: keyed(s).window(spec).collect(), values)
    assert [tuple(result) for result in collected] == [
        ("a", 0, 13, [("a", 0), ("a", 8), ("a", 4)]),  # in the order of the stream, not of time
        ("a", 50, 55, [("a", 50)]),
    ]
    assert windowed(engine, spec, values) == [("a", 0, 13, 3), ("a", 50, 55, 1)]


def test_sessions_merge_accumulators_where_told_how(engine):
    spec = ps.windows.session(5, time=at, lateness=10)

    def build(stream):
        return keyed(stream).window(spec).aggregate(set, lambda s, v: s | {v[1]}, sorted, merge=set.union)

    assert outputs(engine, build, [("a", 0), ("a", 8), ("a", 4)]) == [("a", 0, 13, [0, 4, 8])]


def test_late_tuples_are_dropped_and_counted(engine):
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    source = flow.read(ps.sources.items([("a", 5), ("a", 25), ("a", 9), ("a", 21)]))
    keyed(source).window(ps.windows.tumbling(10, time=at)).count(name="per_ten").write(result)
    report = flow.run(engine)
    assert result.items == [("a", 0, 10, 1), ("a", 20, 30, 2)]
    assert report.operators["per_ten"].late == 1


def test_lateness_holds_windows_open(engine):
    values = [("a", 5), ("a", 19), ("a", 9), ("a", 20), ("a", 8)]
    spec = ps.windows.tumbling(10, time=at, lateness=10)
    # 20 - 10 closes the first window, so only the 8 is late
    assert windowed(engine, spec, values) == [("a", 0, 10, 2), ("a", 10, 20, 1), ("a", 20, 30, 1)]


def test_the_watermark_is_shared_by_all_keys(engine):
    values = [("a", 5), ("b", 30), ("a", 6)]
    assert windowed(engine, ps.windows.tumbling(10, time=at), values) == [("a", 0, 10, 1), ("b", 30, 40, 1)]


@pytest.mark.in_process
def test_late_tuples_can_go_to_a_function(engine):
    late = []
    spec = ps.windows.tumbling(10, time=at, on_late=late.append)
    windowed(engine, spec, [("a", 25), ("a", 5)])
    assert late == [("a", 5)]


def test_late_tuples_can_go_to_the_dead_letters(engine):
    def build(stream):
        counts = keyed(stream).window(ps.windows.tumbling(10, time=at, on_late="dead-letter")).count(name="counts")
        return counts, stream.flow.dead_letters("counts")

    counts, letters = run(engine, build, [("a", 25), ("a", 5)])
    assert counts == [("a", 20, 30, 1)]
    assert [tuple(letter) for letter in letters] == [
        ("counts", ("a", 5), "LateTuple: its time is 5, the watermark 25"),
    ]


def test_datetimes_give_windows_of_datetimes(engine):
    start = datetime(2026, 3, 1, 7, 0)
    values = [("a", start + timedelta(minutes=minutes)) for minutes in (1, 59, 61)]
    assert windowed(engine, ps.windows.tumbling(timedelta(hours=1), time=at), values) == [
        ("a", start, start + timedelta(hours=1), 2),
        ("a", start + timedelta(hours=1), start + timedelta(hours=2), 1),
    ]


def test_aware_datetimes_are_instants_whatever_their_zone(engine):
    east = timezone(timedelta(hours=5, minutes=30))
    values = [("a", datetime(2026, 3, 1, 0, 30, tzinfo=UTC)), ("a", datetime(2026, 3, 1, 6, 15, tzinfo=east))]
    (result,) = windowed(engine, ps.windows.tumbling(3600, time=at), values)
    assert (result.start, result.value) == (datetime(2026, 3, 1, 0, 0, tzinfo=UTC), 2)


def test_times_before_the_epoch(engine):
    assert windowed(engine, ps.windows.tumbling(10, time=at), [("a", -5)]) == [("a", -10, 0, 1)]


@pytest.mark.parametrize("length", [0.1, 0.2, 0.3, 1 / 3])
def test_a_tuple_is_always_inside_its_own_window(engine, length):
    values = [("a", number * length) for number in range(200)]
    results = windowed(engine, ps.windows.tumbling(length, time=at), values)
    assert sum(result.value for result in results) == 200


def test_aggregate(engine):
    def build(stream):
        window = keyed(stream).window(ps.windows.tumbling(10, time=at))
        return window.aggregate(list, lambda times, v: [*times, v[1]], lambda times: sum(times) / len(times))

    assert outputs(engine, build, [("a", 2), ("a", 4), ("a", 12)]) == [("a", 0, 10, 3.0), ("a", 10, 20, 12.0)]


def test_a_time_that_is_no_time_is_an_error(engine):
    with pytest.raises(ps.OperatorError, match="returns seconds .* or a datetime, not 'noon'"):
        windowed(engine, ps.windows.tumbling(10, time=at), [("a", "noon")])


def test_a_failing_add_leaves_the_windows_whole(engine):
    def add(total, value):
        return total + 10 // value[2]

    def build(stream):
        window = keyed(stream).window(ps.windows.sliding(10, 5, time=at))
        return window.aggregate(int, add, on_error="skip")

    values = [("a", 7, 1), ("a", 8, 0), ("a", 30, 0), ("a", 31, 1)]
    assert outputs(engine, build, values) == [("a", 0, 10, 10), ("a", 5, 15, 10), ("a", 25, 35, 10), ("a", 30, 40, 10)]


def test_at_end_keep_leaves_windows_open(engine):
    flow = ps.Flow("test")
    result = ps.sinks.collect()
    source = flow.read(ps.sources.items([("a", 1), ("a", 11)]))
    keyed(source).window(ps.windows.tumbling(10, time=at)).count().write(result)
    flow.run(engine, at_end="keep")
    assert result.items == [("a", 0, 10, 1)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.windows.tumbling(0, time=at), "length=0 is too small"),
        (lambda: ps.windows.tumbling(-1, time=at), "length=-1 is too small"),
        (lambda: ps.windows.tumbling("1m", time=at), "a number of seconds or a timedelta"),
        (lambda: ps.windows.sliding(10, 0, time=at), "every=0 is too small"),
        (lambda: ps.windows.session(float("nan"), time=at), "gap is a number of seconds"),
        (lambda: ps.windows.tumbling(1, time=at, lateness=-1), "lateness=-1 is too small"),
        (lambda: ps.windows.tumbling(1, time="ts"), "time= is a function"),
        (lambda: ps.windows.tumbling(1, time=at, on_late="keep"), "on_late= is"),
    ],
)
def test_wrong_specifications_are_flow_errors(make, message):
    with pytest.raises(ps.FlowError, match=message):
        make()


def test_a_window_that_fails_keeps_no_other_from_closing(engine):
    def finish(count):
        return 1 // (count != 2)

    def failing(stream):
        return (
            keyed(stream)
            .window(ps.windows.tumbling(10, time=at))
            .aggregate(init=int, add=lambda count, _: count + 1, finish=finish, on_error="skip")
        )

    values = [("a", 1), ("a", 2), ("b", 3), ("c", 4), ("c", 11), ("a", 25)]
    assert sorted(outputs(engine, failing, values)) == [
        ("a", 20, 30, 1),
        ("b", 0, 10, 1),
        ("c", 0, 10, 1),
        ("c", 10, 20, 1),
    ]
