"""Chains: what is read, and what a compaction leaves."""

from penstock.state.chains import Segment, compacted, first_to_compact, steps


def segment(name, length=10, upto="", is_base=False):
    return Segment("f", 0, length, name, is_base, upto)


BASE = segment("base", 1000, is_base=True)
CHANGES = [segment(f"change {number}") for number in range(40)]


def test_a_merge_keeps_the_changes_for_those_that_catch_up_and_no_others_read_them():
    chain = compacted((BASE, *CHANGES[:20]), 1, segment("merged", 150, upto="change 19"))
    assert chain[2:] == tuple(CHANGES[5:20]), "so many as are not more than what they were merged into"
    assert steps(chain) == chain[:2]
    assert steps((*chain, CHANGES[20]), after="change 12") == tuple(CHANGES[13:21])


def test_a_second_merge_is_not_led_around_by_what_the_first_has_kept():
    first = segment("merged", 1000, upto="change 19")
    chain = (*compacted((BASE, *CHANGES[:20]), 1, first), *CHANGES[20:30])
    second = segment("merged again", 1000, upto="change 29")
    chain = compacted(chain, 2, second)
    assert chain == (BASE, first, second, *CHANGES[20:30])
    assert steps((*chain, CHANGES[30])) == (BASE, first, second, CHANGES[30])
    assert steps(chain, after="change 19") == (second,)


def test_a_new_base_keeps_changes_that_were_merged_before():
    chain = (*compacted((BASE, *CHANGES[:20]), 1, segment("merged", 1000, upto="change 19")), CHANGES[20])
    base = segment("new base", 2000, upto="change 20", is_base=True)
    assert compacted(chain, 0, base) == (base, *CHANGES[5:21])


def test_the_newest_change_is_always_kept_as_the_version():
    base = segment("new base", 5, upto="change 0", is_base=True)
    assert compacted((BASE, CHANGES[0]), 0, base) == (base, CHANGES[0])


def test_what_does_not_fit_the_budget_is_merged_in_part():
    sizes = [100_000, 400, 300, *[10] * 15]
    assert first_to_compact([100_000, 300, 200, *[10] * 15], 10_000) == 1
    assert first_to_compact(sizes, 200) == 3
    assert first_to_compact(sizes, 20) is None
