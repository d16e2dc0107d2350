"""stateful_map, stateful_flat_map, reduce, count, dedupe, ttl."""

import math

import pytest

import penstock as ps
from penstock.clock import FakeClock
from tests.helpers import outputs


def first_letter(word):
    return word[0]


def test_stateful_map_has_a_state_per_key(engine):
    def numbered(count, word):
        return count + 1, f"{word}{count}"

    words = ["ant", "bee", "asp", "bug", "ape"]
    result = outputs(engine, lambda s: s.key_by(first_letter).stateful_map(numbered, init=int), words)
    assert result == ["ant0", "bee0", "asp1", "bug1", "ape2"]


def test_states_made_by_the_factory_are_not_shared(engine):
    def remember(seen, word):
        seen.append(word)
        return seen, list(seen)

    result = outputs(engine, lambda s: s.key_by(first_letter).stateful_map(remember, init=list), ["a1", "b1", "a2"])
    assert result == [["a1"], ["b1"], ["a1", "a2"]]


def test_stateful_flat_map(engine):
    def pairs(last, word):
        return word, [] if last is None else [(last, word)]

    words = ["a1", "b1", "a2", "b2", "a3"]
    result = outputs(engine, lambda s: s.key_by(first_letter).stateful_flat_map(pairs, init=lambda: None), words)
    assert result == [("a1", "a2"), ("b1", "b2"), ("a2", "a3")]


def test_reduce_starts_with_the_first_value(engine):
    result = outputs(engine, lambda s: s.key_by(lambda x: x % 2).reduce(max), [3, 2, 1, 8, 5])
    assert result == [(1, 3), (0, 2), (1, 3), (0, 8), (1, 5)]


def test_reduce_accepts_none_as_a_value(engine):
    result = outputs(engine, lambda s: s.key_by(lambda x: 0).reduce(lambda a, b: (a, b)), [None, 1])
    assert result == [(0, None), (0, (None, 1))]


def test_count(engine):
    assert outputs(engine, lambda s: s.key_by(first_letter).count(), ["a", "b", "a"]) == [("a", 1), ("b", 1), ("a", 2)]


def test_dedupe(engine):
    assert outputs(engine, lambda s: s.key_by(str.lower).dedupe(), ["a", "B", "A", "b", "c"]) == ["a", "B", "c"]


def test_equal_keys_of_different_types_are_one_key(engine):
    assert outputs(engine, lambda s: s.key_by(lambda x: x).count(), [1, 1.0, True]) == [(1, 1), (1.0, 2), (True, 3)]


def test_nan_is_one_key(engine):
    result = outputs(engine, lambda s: s.key_by(lambda x: x).count(), [math.nan, float("nan")])
    assert [count for _, count in result] == [1, 2]


def test_key_by_columns(engine):
    rows = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2}]
    assert outputs(engine, lambda s: s.key_by("a").count(), rows) == [(1, 1), (1, 2), (1, 3)]
    assert outputs(engine, lambda s: s.key_by("a", "b").count(), rows) == [((1, 2), 1), ((1, 3), 1), ((1, 2), 2)]


def test_ttl_in_event_time_forgets_what_was_left_alone():
    def count(state, _value):
        return state + 1, state + 1

    times = [0, 5, 14, 15, 26, 20]  # 26 is more than 10 after 15; 20 comes late, when the time is 26
    result = outputs(
        ps.engines.Sequential(),
        lambda s: s.key_by(lambda t: "k").stateful_map(count, init=int, ttl=10, time=lambda t: t),
        times,
    )
    assert result == [1, 2, 3, 4, 1, 2]


def test_ttl_by_the_clock():
    clock = FakeClock()

    def count(state, seconds):
        return state + 1, state + 1

    result = outputs(
        ps.engines.Sequential(clock=clock),
        lambda s: s.inspect(clock.sleep).key_by(lambda t: "k").stateful_map(count, init=int, ttl=10),
        [0, 10, 11, 1],
    )
    assert result == [1, 2, 1, 2]


def test_ttl_keeps_only_what_it_must():
    from penstock.operators.state import StateTable
    from penstock.operators.times import Span

    table = StateTable(init=int, ttl=Span(10))
    for time in range(1000):
        table.put(time, time, now=time)
        table.get(time, now=time)
    assert len(table) == 11


def test_init_must_be_a_factory():
    with pytest.raises(ps.FlowError, match="init=lambda: 0"):
        outputs("sequential", lambda s: s.key_by(first_letter).stateful_map(lambda a, b: (a, b), init=0), [])
