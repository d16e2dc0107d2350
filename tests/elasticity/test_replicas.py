"""The controllers of replicas and helpers on scripted signals, rule by rule."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.elasticity.bottleneck import Bottleneck
from penstock.elasticity.helping import Helping
from penstock.elasticity.learning import EdgeShares
from penstock.elasticity.predictive import Predictive
from penstock.elasticity.signals import OperatorSignals, Signals


def flow(*operators, seconds=1.0, **others):
    found = {one.name: one for one in operators}
    return Signals(0.0, seconds, found, **{"cores": 64, "threads": 64, "most_threads": 64, **others})


def source(count):
    return OperatorSignals("in", received=count, emitted=count, is_source=True)


def operator(name, received, cost, before="in", sent=None, emitted=None, **others):
    inputs = {before: received if sent is None else sent}
    given = {"busy_seconds": received * cost, "cpu_seconds": received * cost, "most_replicas": 1000, **others}
    return OperatorSignals(
        name, received=received, emitted=received if emitted is None else emitted, inputs=inputs, **given
    )


def wanted(changes):
    return {change.operator: change.after for change in changes}


# PRESPS


def test_the_worked_example_of_appendix_a():
    """Table 4: 16.6, 25 and 100 ms a tuple, intervals of a second, and what waits is done in the next one."""
    signals = flow(
        source(100),
        # 100 came and 40 waited: 140 were processed. 0.833 of them went on, and so on: theta is 1, 0.833 and 0.625.
        operator("o1", 140, 0.0166, sent=100, queue_length=0),
        operator("o2", 120, 0.025, before="o1", sent=117, queue_length=7),
        operator("o3", 90, 0.1, before="o2", sent=90, queue_length=20),
        offered_rate=100.0,
    )
    found = EdgeShares()
    found.add(signals)
    assert found["o1"] == 1.0
    assert found["o2"] == pytest.approx(117 / 140)  # the paper rounds it to 0.833
    assert found["o3"] == pytest.approx(0.625, abs=0.003)
    controller = Predictive(drain_seconds=1.0)
    changes = controller.decide(signals)
    demands = controller.demands(signals, 100.0)
    assert demands["o1"].tuples == pytest.approx(100)
    assert demands["o2"].tuples == pytest.approx(91, abs=1)  # 84 that come, 7 that wait
    # The paper counts what waits at O3 itself; what waits before O2 comes here too, within the second.
    assert demands["o3"].tuples == pytest.approx(83 + 7 * 0.75, abs=1)
    assert wanted(changes) == {"o1": 2, "o2": 3, "o3": 9}


def test_shares_along_several_ways():
    """Figure 1: O1 sends 0.7 and 0.3 of what it has to O2 and O3, and O4 gets what both send."""
    found = EdgeShares()
    found.add(
        flow(
            source(100),
            operator("o1", 100, 0.001),
            operator("o2", 70, 0.001, before="o1"),
            operator("o3", 30, 0.001, before="o1"),
            OperatorSignals("o4", received=85, inputs={"o2": 70, "o3": 15}),
        )
    )
    assert [found[name] for name in ("in", "o1", "o2", "o3", "o4")] == pytest.approx([1.0, 1.0, 0.7, 0.3, 0.85])


def word_count(offered, split=1, count=1, cost=0.057, words=20, **others):
    """What one period of a throttled word count looks like with so many replicas."""
    done = min(offered, split / cost)
    counted = min(done * words, count / (cost / 10))
    return flow(
        source(int(done)),
        operator("split", int(done), cost, emitted=int(done) * words, replicas=split),
        operator("count", int(counted), cost / 10, before="split", sent=int(done) * words, replicas=count, **others),
        offered_rate=offered,
        cores=100,
    )


@pytest.mark.parametrize("offered", [10.0, 100.0, 172.0, 400.0])
def test_the_best_count_in_one_decision(offered):
    controller = Predictive()
    first = wanted(controller.decide(word_count(offered)))
    best = {"split": math.ceil(offered * 0.057), "count": math.ceil(offered * 20 * 0.0057)}
    assert {"split": 1, "count": 1} | first == best
    assert controller.decide(word_count(offered, **best)) == []


def test_replicas_that_a_hot_key_leaves_nothing_to_are_not_asked_for():
    changes = Predictive().decide(word_count(100.0, hottest_share=0.7))
    assert wanted(changes) == {"split": 6, "count": 2}


def test_what_waits_is_done_in_time():
    one = operator("op", 100, 0.01, replicas=1)
    assert wanted(Predictive(drain_seconds=10).decide(flow(source(100), one, offered_rate=90.0, backlog=0))) == {}
    changes = Predictive(drain_seconds=10).decide(flow(source(100), one, offered_rate=90.0, backlog=2000))
    assert wanted(changes) == {"op": 3}  # 90 a second, and 200 more for ten seconds


def test_fewer_only_after_a_while_and_not_by_a_hair():
    controller = Predictive(grace=3)
    quiet = flow(source(100), operator("op", 100, 0.01, replicas=4), offered_rate=100.0)
    assert controller.decide(quiet) == []
    assert controller.decide(quiet) == []
    assert wanted(controller.decide(quiet)) == {"op": 2}  # one is enough by a hair
    assert (
        Predictive(grace=1).decide(flow(source(100), operator("op", 100, 0.0198, replicas=2), offered_rate=100.0)) == []
    )


def test_dearer_tuples_with_more_replicas_are_counted_on():
    """A tuple costs 1% more with each replica: right in the second decision."""
    controller, replicas = Predictive(), 1

    def cost(count):
        return 0.01 * (1 + 0.01 * (count - 1))

    for _ in range(2):
        one = operator("op", 1000, cost(replicas), replicas=replicas)
        replicas = wanted(controller.decide(flow(source(1000), one, offered_rate=1000.0))).get("op", replicas)
    needed = next(count for count in range(1, 100) if count >= 1000 * cost(count) * 0.98)
    assert needed <= replicas <= needed + 1
    one = operator("op", 1000, cost(replicas), replicas=replicas)
    assert controller.decide(flow(source(1000), one, offered_rate=1000.0)) == []


def test_without_a_rate_all_cores_are_shared_out():
    changes = Predictive().decide(
        flow(source(100), operator("a", 100, 0.001), operator("b", 100, 0.003, before="a"), cores=8)
    )
    assert wanted(changes) == {"a": 2, "b": 6}


def test_the_gil_leaves_one_replica_to_what_computes_and_more_to_what_waits():
    computing = operator("cpu", 100, 0.004, replicas=3)
    waiting = operator("io", 100, 0.02, before="cpu", replicas=1, cpu_seconds=0.01)
    bound = flow(source(100), computing, waiting, offered_rate=400.0, cores=4, has_gil=True, cores_used=1.0)
    assert bound.is_gil_bound
    controller = Predictive(grace=1)
    found = wanted(controller.decide(bound))
    assert found["cpu"] == 1
    assert found["io"] == 8


def test_nobody_is_added_where_nobody_could_work():
    """All threads are busy: one more replica would show nothing, and be taken for useless."""
    one = operator("op", 100, 0.02, full_share=0.5)
    assert wanted(Bottleneck().decide(flow(source(100), one, threads=4, cores=4))) == {"op": 2}
    assert wanted(Bottleneck().decide(flow(source(100), one, threads=2, cores=4))) == {}
    assert wanted(Bottleneck().decide(flow(source(100), one, threads=2, cores=4, has_thread_each=True))) == {"op": 2}


def test_what_waits_has_as_many_replicas_as_there_are_threads_to_wait():
    """Without a rate there is no end to what could be fetched: threads are tried, and replicas follow."""

    def fetching(threads):
        waiting = operator("io", 100, 0.02, cpu_seconds=0.001)
        return wanted(Predictive().decide(flow(source(100), waiting, cores=2, threads=threads)))

    assert [fetching(threads).get("io", 1) for threads in (1, 2, 16)] == [1, 2, 16]


def sized_by(rates):
    """The replicas that there are after each period, for tuples of 0.1 s that come at these rates."""
    controller, replicas, found = Predictive(), 1, []
    for rate in rates:
        one = operator("op", round(rate), 0.1, replicas=replicas)
        replicas = wanted(controller.decide(flow(source(round(rate)), one, offered_rate=rate))).get("op", replicas)
        found.append(replicas)
    return found


def test_noise_changes_nothing():
    drawn = random.Random(5)
    found = sized_by([85 + drawn.uniform(-6, 6) for _ in range(600)])
    assert len(set(found[20:])) == 1
    assert found[-1] in (9, 10)


def test_a_load_that_has_clearly_gone_takes_its_replicas_along_at_once():
    assert sized_by([85.0] * 10 + [25.0] * 2)[-3:] == [9, 3, 3]


def test_a_load_that_is_a_little_less_is_waited_for():
    """Nine replicas can do it, but not by 5%; eight could only do it if nothing more came."""
    assert set(sized_by([85.0] * 10 + [82.0] * 10)) == {9}


def test_a_forecast_only_raises():
    controller = Predictive(grace=1)
    for rate in (300.0, 250.0, 200.0, 150.0, 100.0):
        one = operator("op", int(rate), 0.01, replicas=3)
        controller.decide(flow(source(int(rate)), one, offered_rate=rate))
    assert controller.expected_rate(flow(source(100), offered_rate=100.0)) == 100.0


@given(
    st.floats(1, 5000),
    st.floats(1e-5, 0.1),
    st.integers(1, 64),
    st.integers(0, 100_000),
    st.floats(0, 1),
)
def test_wishes_are_bounded(rate, cost, replicas, waiting, hottest):
    one = operator(
        "op", int(rate), cost, replicas=replicas, most_replicas=16, queue_length=waiting, hottest_share=hottest
    )
    for change in Predictive().decide(flow(source(int(rate)), one, offered_rate=rate)):
        assert 1 <= change.after <= 16


@given(st.floats(1, 2000), st.floats(1, 2000), st.floats(1e-4, 0.05))
def test_more_load_never_wants_fewer(one_rate, other_rate, cost):
    low, high = sorted([one_rate, other_rate])
    found = []
    for rate in (low, high):
        one = operator("op", int(rate), cost)
        found.append(wanted(Predictive().decide(flow(source(int(rate)), one, offered_rate=rate))).get("op", 1))
    assert found[0] <= found[1]


@given(st.floats(1, 2000), st.floats(1e-4, 0.02))
def test_at_its_fixed_point_it_is_idle(rate, cost):
    controller = Predictive()
    replicas = 1
    for _ in range(5):
        one = operator("op", int(rate), cost, replicas=replicas)
        replicas = wanted(controller.decide(flow(source(int(rate)), one, offered_rate=rate))).get("op", replicas)
    one = operator("op", int(rate), cost, replicas=replicas)
    assert controller.decide(flow(source(int(rate)), one, offered_rate=rate)) == []


# C-Stream, algorithm 9


def pipeline(full_first=0.0, full_second=0.0, throughput=100, **first):
    return flow(
        source(throughput),
        operator("first", throughput, 0.001, full_share=full_first, **first),
        operator("second", throughput, 0.001, before="first", full_share=full_second),
    )


@pytest.mark.parametrize(
    ("full_first", "full_second", "found"),
    [(0.0, 0.0, None), (0.5, 0.0, "first"), (0.5, 0.5, "second"), (0.0, 0.5, "second"), (0.009, 0.0, None)],
)
def test_the_bottleneck_is_congested_and_those_after_it_are_not(full_first, full_second, found):
    one = Bottleneck().detect(pipeline(full_first, full_second))
    assert (one and one.name) == found


def test_a_replica_that_does_not_pay_is_taken_back_and_its_operator_left_alone():
    controller = Bottleneck()
    assert wanted(controller.decide(pipeline(0.5, throughput=100))) == {"first": 2}
    assert wanted(controller.decide(pipeline(0.5, throughput=150, replicas=2))) == {"first": 3}
    assert wanted(controller.decide(pipeline(0.5, throughput=151, replicas=3))) == {"first": 2}
    assert controller.decide(pipeline(0.5, throughput=150, replicas=2)) == []


def test_a_replica_pays_by_what_its_own_operator_does():
    """Those before it fall back to its pace when its queue is full: that is not the replica's fault."""

    def two(first, second, replicas):
        return flow(
            source(first),
            operator("first", first, 0.001),
            operator("second", second, 0.001, before="first", full_share=0.5, replicas=replicas),
        )

    controller = Bottleneck()
    assert wanted(controller.decide(two(first=400, second=100, replicas=1))) == {"second": 2}
    assert wanted(controller.decide(two(first=200, second=200, replicas=2))) == {"second": 3}


def test_replicas_go_when_the_load_has_gone():
    controller = Bottleneck()
    quiet = pipeline(throughput=100, replicas=4)
    found = [wanted(controller.decide(quiet)) for _ in range(3)]
    assert found == [{}, {}, {"first": 3}]


# Leron


def stages(full_helped=0.0, full_helper=0.0, ratio=0.0, full_after=0.0, **helped):
    """Compute has two threads and takes half as long as exclaim, which has one."""
    return flow(
        source(100),
        operator("compute", 100, 0.005, full_share=full_helper, replicas=2),
        operator("exclaim", 100, 0.01, before="compute", full_share=full_helped, **{"can_be_helped": True, **helped}),
        operator("again", 100, 0.001, before="exclaim", full_share=full_after, can_be_helped=True),
        has_thread_each=True,
        helping={("compute", "exclaim"): ratio} if ratio else {},
    )


def test_help_is_as_much_as_makes_both_equally_busy():
    """(2 * 10 - 1 * 5) / (10 * 3): 2 threads do 5 + 0.5 * 10 ms for a tuple, 1 does 0.5 * 10 ms."""
    assert wanted(Helping().decide(stages(full_helped=0.5))) == {"compute > exclaim": 0.5}


def test_a_ratio_is_trimmed_until_it_has_turned_often_enough():
    controller = Helping()
    controller.decide(stages(full_helped=0.5))
    ratio, found = 0.5, []
    for number in range(40):
        full = {"full_helped": 0.5} if ratio < 0.51 else {"full_helper": 0.5}
        changes = wanted(controller.decide(stages(ratio=ratio, **full)))
        ratio = changes.get("compute > exclaim", ratio)
        found += [number] if changes else []
    assert 0.5 < ratio <= 0.515
    assert len(found) < 10  # and then it rests


def test_help_stays_where_the_helper_is_full_and_the_helped_has_work():
    """A source that can be read at any speed keeps the helper's input full, however much it helps."""
    controller = Helping()
    controller.decide(stages(full_helped=0.5))
    assert controller.decide(stages(ratio=0.5, full_helper=1.0, queue_length=50, queue_capacity=100)) == []
    assert wanted(controller.decide(stages(ratio=0.5, full_helper=1.0, queue_length=0, queue_capacity=100)))


def test_a_ratio_that_is_trimmed_is_not_set_anew_because_help_is_cheaper():
    """What a helped tuple costs on average falls as more is helped with."""
    controller = Helping()
    controller.decide(stages(full_helped=0.5))
    ratio = 0.5
    for cost in (0.009, 0.008, 0.0075, 0.007):
        signals = flow(
            source(100),
            operator("compute", 100, 0.005, replicas=2),
            operator("exclaim", 100, cost, before="compute", full_share=0.5, can_be_helped=True),
            has_thread_each=True,
            helping={("compute", "exclaim"): ratio},
            seconds=30.0,
        )
        changed = wanted(controller.decide(signals))["compute > exclaim"]
        assert changed == pytest.approx(ratio + 0.005)
        ratio = changed


def test_a_ratio_follows_what_tuples_cost():
    controller = Helping()
    controller.decide(stages(full_helped=0.5))
    dearer = flow(
        source(100),
        operator("compute", 100, 0.005, replicas=2),
        operator("exclaim", 100, 0.1, before="compute", full_share=0.9, can_be_helped=True),
        has_thread_each=True,
        helping={("compute", "exclaim"): 0.5},
        seconds=30.0,
    )
    assert wanted(controller.decide(dearer)) == {"compute > exclaim": pytest.approx(0.65, abs=0.01)}


def test_nothing_is_helped_that_cannot_write_on():
    """Its queue is full because its reader's is: that one is to be helped."""
    changes = wanted(Helping().decide(stages(full_helped=0.5, full_after=0.5)))
    assert list(changes) == ["exclaim > again"] or changes == {}
    assert "compute > exclaim" not in changes


def test_sources_do_not_help():
    signals = flow(source(100), operator("op", 100, 0.01, full_share=0.9, can_be_helped=True), has_thread_each=True)
    assert Helping().decide(signals) == []


def test_any_thread_goes_where_work_is_in_a_pool():
    signals = stages(full_helped=0.5)
    assert Helping().decide(replace(signals, has_thread_each=False)) == []


def test_who_is_helped_helps_nobody():
    def three(full_first, full_second, **ratios):
        return flow(
            source(100),
            operator("a", 100, 0.001, can_be_helped=True),
            operator("b", 100, 0.005, before="a", full_share=full_first, can_be_helped=True),
            operator("c", 100, 0.02, before="b", full_share=full_second, can_be_helped=True),
            has_thread_each=True,
            helping={tuple(pair): share for pair, share in ratios.items()},
        )

    assert list(wanted(Helping().decide(three(0.0, 0.5)))) == ["b > c"]
    assert list(wanted(Helping().decide(three(0.5, 0.5, bc=0.2)))) == ["b > c"]  # and not a > b


def test_what_the_loop_discards_has_not_happened():
    """The ratio is the engine's, not what this controller once wanted."""
    controller = Helping()
    assert wanted(controller.decide(stages(full_helped=0.5))) == wanted(controller.decide(stages(full_helped=0.5)))


def test_those_with_a_number_of_their_own_are_not_helped():
    assert Helping().decide(stages(full_helped=0.9, can_be_helped=False)) == []


def two_in_sequence(first, second, full_first, full_second, throughput):
    return flow(
        source(100),
        operator("first", 100, 0.001, full_share=full_first, replicas=first),
        operator("second", throughput, 0.001, before="first", full_share=full_second, replicas=second),
    )


def test_a_replica_is_kept_whose_output_is_congested_now():
    """It brought nothing, because the bottleneck has moved on to the next one."""
    controller = Bottleneck()
    assert wanted(controller.decide(two_in_sequence(2, 2, 0.9, 0.0, 1000))) == {"first": 3}
    assert wanted(controller.decide(two_in_sequence(3, 2, 0.9, 0.9, 1000))) == {"second": 3}


def test_an_operator_is_left_alone_for_a_while_only():
    controller, times = Bottleneck(), []
    for second in range(60):
        signals = replace(two_in_sequence(2 + bool(times and times[-1] == second - 1), 2, 0.9, 0.0, 1000), time=second)
        if wanted(controller.decide(signals)) == {"first": 3}:
            times.append(second)
    assert times == [0, 11, 32]  # after ten seconds, then after twenty


def test_with_more_threads_an_operator_is_not_left_alone():
    """What did not pay because no thread had time for it may pay now."""
    controller, of_two = Bottleneck(), replace(two_in_sequence(2, 2, 0.9, 0.0, 1000), threads=4)
    assert wanted(controller.decide(of_two)) == {"first": 3}
    assert wanted(controller.decide(replace(two_in_sequence(3, 2, 0.9, 0.0, 1000), threads=4))) == {"first": 2}
    assert controller.decide(of_two) == []
    assert wanted(controller.decide(replace(of_two, threads=5))) == {"first": 3}
