"""What controllers may want: made by name, frozen, and nothing else than what engines know."""

import copy
import dataclasses
import pickle

import pytest

import penstock as ps
from penstock.elasticity.changes import AdmitRows, SetExecutors, SetHelping, SetReplicas, SetThreads

BY_NAME = [
    (ps.Change("threads", "", 1, 2, "busy"), SetThreads(before=1, after=2, reason="busy")),
    (ps.Change("replicas", "op", 1, 2, "busy"), SetReplicas("op", before=1, after=2, reason="busy")),
    (ps.Change("helping", "a > b", 0.0, 0.2, "full"), SetHelping("a", "b", before=0.0, after=0.2, reason="full")),
    (ps.Change("executors", "", 2, 4, "late"), SetExecutors(before=2, after=4, reason="late")),
    (ps.Change("rows", "", 1000, 500, "late"), AdmitRows(before=1000, after=500, reason="late")),
]


@pytest.mark.parametrize(("named", "made"), BY_NAME)
def test_a_change_is_made_by_name_or_as_its_class(named, made):
    assert isinstance(named, ps.Change)
    assert type(named) is type(made)
    assert named == made


def test_fields_may_be_named():
    change = ps.Change(what="replicas", operator="op", before=1, after=3, reason="busy")
    assert change == SetReplicas("op", before=1, after=3, reason="busy")


@pytest.mark.parametrize(
    ("change", "what", "operator", "measured"),
    [
        (BY_NAME[0][0], "threads", "", ""),
        (BY_NAME[1][0], "replicas", "op", "op"),
        (BY_NAME[2][0], "helping", "a > b", "b"),
        (BY_NAME[3][0], "executors", "", ""),
        (BY_NAME[4][0], "rows", "", ""),
    ],
)
def test_the_journal_is_told_of_what_and_whose(change, what, operator, measured):
    assert (change.what, change.operator, change.measured) == (what, operator, measured)


@pytest.mark.parametrize("change", [named for named, _ in BY_NAME])
def test_changes_are_frozen_values(change):
    with pytest.raises(dataclasses.FrozenInstanceError):
        change.after = 3
    assert copy.deepcopy(change) == pickle.loads(pickle.dumps(change)) == change
    assert len({change, copy.copy(change)}) == 1
    assert dataclasses.replace(change, after=7).after == 7


def test_there_are_no_others():
    with pytest.raises(ps.FlowError, match="a ps.Change is of one of 'threads', .* not of 'speed'"):
        ps.Change("speed", "op", 1, 2, "faster")


def test_in_a_message_it_is_a_few_words():
    assert str(BY_NAME[0][0]) == "threads from 1 to 2"
    assert str(BY_NAME[2][0]) == "helping of 'a > b' from 0.0 to 0.2"
