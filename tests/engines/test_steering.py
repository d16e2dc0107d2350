"""The loop of elasticity on a plant that only writes down what it is asked for."""

import json

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.elasticity.signals import OperatorSignals, Signals
from penstock.engines.steering import Periods, Steering


class Plant:
    """Ten tuples a second, whatever is changed; does what it can, and says what it was asked for."""

    def __init__(self, can=lambda change: True):
        self.periods, self.asked, self.can = 0, [], can

    def signals(self):
        self.periods += 1
        operators = {
            "in": OperatorSignals("in", emitted=10, is_source=True),
            "op": OperatorSignals("op", received=10, busy_seconds=0.5, most_replicas=8, inputs={"in": 10}),
        }
        return Signals(float(self.periods), 1.0, operators, threads=2, most_threads=8, cores=8)

    def apply(self, change):
        self.asked.append(change)
        return self.can(change)


class Wants(ps.Controller):
    def __init__(self, *changes):
        self.changes = changes

    name = "wants"

    def decide(self, signals):
        return self.changes


MORE = ps.Change("replicas", "op", 1, 3, "there is work for three")
HELP = ps.Change("helping", "in > op", 0.0, 0.2, "it asks for help")


def steered(plant, *changes, periods=2, **options):
    decisions = []
    elastic = ps.Elastic(replicas=Wants(*changes), threads="fixed", helping=False, **options)
    steering = Steering(plant, elastic, decisions)
    for _ in range(periods):
        steering.step()
    return decisions


def test_what_is_wanted_is_applied_and_written_down():
    plant = Plant()
    (decision,) = steered(plant, MORE)
    assert plant.asked == [MORE]
    assert (decision.time, decision.controller, decision.operator) == (2.0, "wants", "op")
    assert (decision.before, decision.after, decision.reason) == (1, 3, "there is work for three")
    assert decision.is_applied
    assert decision.signals["what"] == "replicas"
    assert decision.signals["received"] == 10
    assert decision.signals["threads"] == 2


def test_the_plant_is_measured_in_every_period_and_only_then():
    plant = Plant()
    steered(plant, periods=5)
    assert plant.periods == 5


def test_of_a_pair_the_figures_of_the_helped_one_are_kept():
    (decision,) = steered(Plant(), HELP)
    assert decision.operator == "in > op"
    assert decision.signals["what"] == "helping"
    assert decision.signals["busy_seconds"] == 0.5


def test_what_can_t_be_done_is_not_written_down():
    plant = Plant(can=lambda change: change != MORE)
    decisions = steered(plant, MORE, HELP)
    assert plant.asked == [MORE, HELP]
    assert [one.operator for one in decisions] == ["in > op"]


def test_without_applying_the_plant_is_not_asked():
    plant = Plant()
    (decision,) = steered(plant, MORE, apply=False)
    assert plant.asked == []
    assert not decision.is_applied


def test_a_plant_that_fails_names_the_controller_and_what_it_wanted():
    def fail(change):
        raise KeyError("nothing")

    with pytest.raises(ps.PolicyError, match="controller 'wants' wants what can't be done, replicas of 'op' from 1"):
        steered(Plant(can=fail), MORE)


def test_the_journal_has_a_line_for_each_decision(tmp_path):
    path = tmp_path / "journal.jsonl"
    steered(Plant(), MORE, HELP, periods=4, journal=str(path))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["signals"]["what"], one["operator"], one["before"], one["after"]) for one in found] == [
        ("replicas", "op", 1, 3),
        ("helping", "in > op", 0.0, 0.2),
    ] * 2
    assert set(found[0]) == {"time", "controller", "operator", "before", "after", "reason", "signals", "is_applied"}


def test_periods_are_on_a_grid():
    clock = FakeClock(start=3.0)
    periods = Periods(2.0, clock.now)
    over = []
    for time in (4.9, 5.0, 6.9, 7.4, 8.9, 9.0, 14.0, 14.9, 15.0):
        clock.move_to(time)
        if periods.is_over():
            over.append(time)
    assert over == [5.0, 7.4, 9.0, 14.0, 15.0]
