"""Hypothesis draws inputs for every composed operator and compares it with a few lines of plain Python."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ordering.keys import firing_order, key_bytes
from tests.helpers import outputs, run
from tests.properties.engines import engines

keys = st.sampled_from(["a", "b", "c", 1, None])
timed = st.lists(st.tuples(keys, st.integers(0, 60)), max_size=40)


def key(value):
    return value[0]


def time(value):
    return value[1]


def in_firing_order(windows):
    """Windows that are due together, by (end, key hash, key bytes)."""
    return sorted(windows, key=lambda window: (window[2], *firing_order(key_bytes(window[0]))))


def model_windows(values, assign, lateness):
    """Gather (key, start, end) -> values by definition: a list of open windows, a watermark, and nothing else."""
    is_open, watermark, results, late = {}, None, [], []
    for value in values:
        mark = time(value) - lateness
        if watermark is None or mark > watermark:
            watermark = mark
            due = in_firing_order(window for window in is_open if window[2] <= watermark)
            results += [(*window, is_open.pop(window)) for window in due]
        spans = [(key(value), start, end) for start, end in assign(time(value))]
        live = [window for window in spans if window[2] > watermark]
        if spans and not live:
            late.append(value)
        for window in live:
            is_open.setdefault(window, []).append(value)
    return results + [(*window, is_open[window]) for window in in_firing_order(is_open)], late


def check_windows(engine, spec, values, expected, expected_late):
    late = []
    spec = ps.windows.WindowSpec(spec.time, spec.lateness, late.append, spec.length, spec.every)
    result = outputs(engine, lambda s: s.key_by(key).window(spec).collect(), values)
    assert [tuple(window) for window in result] == expected
    assert late == expected_late
    counted = outputs(engine, lambda s: s.key_by(key).window(spec).count(), values)
    assert [tuple(window) for window in counted] == [(*window[:3], len(window[3])) for window in expected]


@given(engines, timed, st.integers(1, 20), st.integers(0, 30))
def test_tumbling_windows(engine, values, length, lateness):
    def assign(t):
        start = t - t % length
        return [(start, start + length)]

    spec = ps.windows.tumbling(length, time=time, lateness=lateness)
    check_windows(engine, spec, values, *model_windows(values, assign, lateness))


@given(engines, timed, st.integers(1, 20), st.integers(1, 20), st.integers(0, 30))
def test_sliding_windows(engine, values, length, every, lateness):
    def assign(t):
        return [
            (start, start + length) for start in range(-100 * every, 100 * every, every) if start <= t < start + length
        ]

    spec = ps.windows.sliding(length, every, time=time, lateness=lateness)
    check_windows(engine, spec, values, *model_windows(values, assign, lateness))


def model_sessions(values, gap, lateness):
    """Sessions by definition: all values of a key that have come and are not closed, cut where the gap is."""
    waiting, watermark, results, late = {}, None, [], []

    def sessions(k):
        found = []
        for t in sorted({time(v) for v in waiting[k]}):
            if found and t < found[-1][1]:
                found[-1][1] = t + gap
            else:
                found.append([t, t + gap])
        return [(k, start, end) for start, end in found]

    def members(window):
        return [v for v in waiting[window[0]] if window[1] <= time(v) < window[2]]

    def close(limit):
        due = in_firing_order(w for k in waiting for w in sessions(k) if limit is None or w[2] <= limit)
        for window in due:
            inside = members(window)
            results.append((*window, inside))
            waiting[window[0]] = [v for v in waiting[window[0]] if v not in inside]

    for value in values:
        mark = time(value) - lateness
        if watermark is None or mark > watermark:
            watermark = mark
            close(watermark)
        mine = waiting.setdefault(key(value), [])
        mine.append(value)
        (window,) = [w for w in sessions(key(value)) if w[1] <= time(value) < w[2]]
        if window[2] <= watermark:
            late.append(mine.pop())
    close(None)
    return results, late


@given(engines, timed, st.integers(1, 10), st.integers(0, 30))
def test_session_windows(engine, values, gap, lateness):
    values = [(*value, place) for place, value in enumerate(values)]
    expected, expected_late = model_sessions(values, gap, lateness)
    check_windows(engine, ps.windows.session(gap, time=time, lateness=lateness), values, expected, expected_late)


@given(engines, timed, timed, st.integers(0, 10), st.sampled_from(["inner", "left", "outer"]))
def test_join(engine, left, right, within, how):
    left = [(*value, "left", place) for place, value in enumerate(left)]
    right = [(*value, "right", place) for place, value in enumerate(right)]
    pairs = [(a, b) for a in left for b in right if key(a) == key(b) and abs(time(a) - time(b)) <= within]
    if how in ("left", "outer"):
        pairs += [(a, None) for a in left if a not in [pair[0] for pair in pairs]]
    if how == "outer":
        pairs += [(None, b) for b in right if b not in [pair[1] for pair in pairs]]
    result = outputs(
        engine, lambda a, b: a.key_by(key).join(b.key_by(key), within=within, time=time, how=how), left, right
    )
    assert Counter(result) == Counter(pairs)


def on_time(values, lateness):
    latest, kept = None, []
    for value in values:
        latest = time(value) if latest is None else max(latest, time(value))
        if time(value) >= latest - lateness:
            kept.append(value)
    return kept


@given(timed, timed, st.integers(0, 10), st.integers(0, 10), st.sampled_from(["inner", "left", "outer"]))
def test_join_with_lateness_is_the_join_of_what_was_on_time(left, right, within, lateness, how):
    left = [(*value, "left", place) for place, value in enumerate(left)]
    right = [(*value, "right", place) for place, value in enumerate(right)]

    def joined(left, right, **options):
        return outputs(
            "sequential",
            lambda a, b: a.key_by(key).join(b.key_by(key), within=within, time=time, how=how, **options),
            left,
            right,
        )

    expected = joined(on_time(left, lateness), on_time(right, lateness))
    assert Counter(joined(left, right, lateness=lateness)) == Counter(expected)


@given(engines, st.lists(st.tuples(keys, st.integers())))
def test_count_reduce_and_dedupe(engine, values):
    def build(stream):
        keyed = stream.key_by(key)
        return keyed.count(), keyed.reduce(lambda a, b: (a[0], a[1] + b[1])), keyed.dedupe()

    counted, reduced, firsts = run(engine, build, values)
    seen = Counter()
    totals = Counter()
    for place, (k, number) in enumerate(values):
        seen[k] += 1
        totals[k] += number
        assert counted[place] == (k, seen[k])
        assert reduced[place] == (k, (k, totals[k]))
    assert firsts == [value for place, value in enumerate(values) if key(value) not in map(key, values[:place])]


@given(engines, st.lists(st.lists(st.integers()), min_size=1, max_size=4))
def test_zip(engine, lists):
    assert outputs(engine, lambda first, *others: first.zip(*others), *lists) == list(zip(*lists, strict=False))


@given(engines, st.lists(st.lists(st.integers()), min_size=1, max_size=4))
def test_merge(engine, lists):
    tagged = [[(place, value) for value in values] for place, values in enumerate(lists)]
    merged = outputs(engine, lambda first, *others: first.merge(*others), *tagged)
    for place, values in enumerate(lists):
        assert [value for source, value in merged if source == place] == values


@given(engines, st.lists(st.integers()))
def test_branch_then_merge_is_everything_once(engine, values):
    def build(stream):
        even, odd = stream.branch(lambda x: x % 2 == 0)
        return even.merge(odd)

    merged = outputs(engine, build, values)
    assert [x for x in merged if x % 2 == 0] == [x for x in values if x % 2 == 0]
    assert [x for x in merged if x % 2] == [x for x in values if x % 2]


@given(engines, st.lists(st.integers()), st.integers())
def test_scan(engine, values, start):
    result = outputs(engine, lambda s: s.scan(lambda total, x: (total + x, total + x), init=start), values)
    assert result == [start + sum(values[: place + 1]) for place in range(len(values))]


@given(st.lists(st.tuples(keys, st.integers(0, 60))), st.integers(0, 20))
def test_ttl_in_event_time(values, ttl):
    result = outputs(
        "sequential",
        lambda s: s.key_by(key).stateful_map(lambda n, v: (n + 1, n + 1), init=int, ttl=ttl, time=time),
        values,
    )
    states, now, expected = {}, 0, []
    for value in values:
        now = max(now, time(value))
        count, touched = states.get(key(value), (0, now))
        count = 0 if now - touched > ttl else count
        states[key(value)] = (count + 1, now)
        expected.append(count + 1)
    assert result == expected
