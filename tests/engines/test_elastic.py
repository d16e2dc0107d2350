"""Flows whose threads, replicas and helpers change by themselves: always the sequential output."""

import itertools
import json
import threading

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.elasticity.threads import Trend
from penstock.engines.live_meter import Gauge
from penstock.observe.journal import read_journal
from penstock.runtime.step_times import Timing
from penstock.runtime.virtual import Virtual
from tests.conftest import shuffled
from tests.spark.flows import FLOWS, collected


def decided(report, what):
    return [(one.operator, one.before, one.after) for one in report.decisions if one.signals.get("what") == what]


class Restless(ps.Controller):
    """Wants another number in every period: of threads, or of the replicas of each operator in turn."""

    name = "restless"

    def __init__(self, what, numbers):
        self.what = what
        self.numbers = itertools.cycle(numbers)
        self.decided = 0

    def __deepcopy__(self, memo):
        return self

    def decide(self, signals):
        after = next(self.numbers)
        self.decided += 1
        if self.what == "threads":
            return [ps.Change("threads", "", signals.threads, after, "restless")]
        return [
            ps.Change("replicas", one.name, one.replicas, min(after, one.most_replicas), "restless")
            for one in signals.operators.values()
            if one.most_replicas > 1
        ]


@pytest.mark.parametrize("name", FLOWS)
def test_all_flows_give_the_same_while_everything_changes(name):
    """In every look another number: replicas of all operators, and in every other one the number of threads."""

    def found(engine):
        flow, sinks = collected(FLOWS[name], 500)
        report = flow.run(engine)
        return [sink.items for sink in sinks], report

    expected, _ = found("sequential")
    elastic = ps.Elastic(
        threads=Restless("threads", [3, 1, 4, 2]), replicas=Restless("replicas", [2, 4, 1, 3]), period=1e-8
    )
    outputs, report = found(shuffled(7, workers=3, elastic=elastic, queue_size=32))
    assert outputs == expected
    assert decided(report, "threads") or decided(report, "replicas")


# On virtual cores


def word_count(rate):
    flow = ps.Flow("words")
    sink = ps.sinks.collect()
    sentences = flow.read(ps.sources.generate(lambda n: n, rate=rate, count=3000), name="in")
    words = sentences.flat_map(lambda n: range(n * 5, n * 5 + 5), name="split")
    words.key_by(lambda word: word % 97).count(name="count").write(sink, name="out")
    return flow, sink


PREDICTIVE = ps.Elastic(threads="fixed", replicas="predictive", period=1.0)


def test_predictive_finds_the_right_number_in_one_decision():
    costs = {"split": 1 / 10.5, "count": 1 / 105}
    flow, sink = word_count(100)
    report = flow.run("simulated", cores=40, costs=costs, elastic=PREDICTIVE)
    counted = decided(report, "replicas")[:2]
    assert counted == [("split", 1, 10), ("count", 1, 5)]
    assert {one.time for one in report.decisions[:2]} == {report.decisions[0].time}
    expected_flow, expected = word_count(None)
    expected_flow.run("sequential")
    assert sink.items == expected.items


def test_trend_finds_the_threads_that_have_work():
    flow = ps.Flow("chain")
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    for number in range(4):
        stream = stream.map(lambda n: n, name=f"busy{number}")
    stream.write(ps.sinks.null())
    elastic = ps.Elastic(threads="trend", replicas="fixed", helping=False, period=0.5)
    report = flow.run(
        "simulated",
        cores=32,
        costs={f"busy{number}": 0.001 for number in range(4)},
        seconds=10,
        fuse=False,
        queue_size=32,
        elastic=elastic,
    )
    (change,) = decided(report, "threads")
    assert change[1] == 32
    assert 4 <= change[2] <= 7


def test_one_thread_where_the_gil_is_the_limit():
    flow = ps.Flow("python")
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    for number in range(3):
        stream = stream.map(lambda n: n, name=f"busy{number}")
    stream.write(ps.sinks.null())
    report = flow.run(
        "simulated",
        cores=4,
        gil=True,
        costs={f"busy{number}": 0.0005 for number in range(3)},
        seconds=20,
        fuse=False,
        elastic=ps.Elastic(period=0.5),
    )
    assert next(one.controller for one in report.decisions) == "gil"
    assert decided(report, "threads") == [("", 4, 1)]
    assert decided(report, "replicas") == []


def test_functions_in_one_loop_get_their_replicas_together():
    flow = ps.Flow("fused")
    sink = ps.sinks.collect()
    stream = flow.read(ps.sources.items(range(20_000)), name="in").map(lambda n: n + 1, name="a")
    stream.map(lambda n: n * 2, name="b").key_by(lambda n: n % 10).count(name="c").write(sink, name="out")
    costs = {"a": 0.001, "b": 0.001, "c": 0.0001}
    report = flow.run("simulated", cores=8, costs=costs, elastic=ps.Elastic(threads="fixed", helping=False))
    assert decided(report, "replicas")[0][0] == "a"
    assert report.operators["a"].replicas == report.operators["b"].replicas > 4
    assert report.elapsed_seconds < 20_000 * 0.0021 / 4
    assert len(sink.items) == 20_000


@pytest.mark.parametrize("helping", [True, False])
def test_who_has_time_helps_who_has_not(helping):
    """A thread for each operator: compute has two and little to do, exclaim one and much."""
    flow = ps.Flow("words")
    sink = ps.sinks.collect()
    stream = flow.read(ps.sources.items(range(20_000)), name="word").map(lambda n: n, name="compute", replicas=2)
    stream.map(lambda n: -n, name="exclaim").map(lambda n: n * 10, name="again").write(sink, name="out")
    report = flow.run(
        "simulated",
        cores=8,
        threading="dedicated",
        queue_size=256,
        costs={"word": 1e-5, "compute": 0.0005, "exclaim": 0.001, "again": 0.0001},
        elastic=ps.Elastic(replicas="fixed", helping=helping, period=0.1),
    )
    assert sink.items == [-n * 10 for n in range(20_000)]
    if helping:
        assert decided(report, "helping")[0] == ("compute > exclaim", 0.0, pytest.approx(0.5, abs=0.02))
        assert report.elapsed_seconds < 0.8 * 20
    else:
        assert report.elapsed_seconds > 0.98 * 20


def test_what_would_it_have_done():
    flow, _ = word_count(100)
    elastic = ps.Elastic(threads="fixed", apply=False)
    report = flow.run("simulated", cores=40, costs={"split": 0.1, "count": 0.01}, seconds=10, elastic=elastic)
    assert report.operators["split"].replicas == 1
    assert decided(report, "replicas")[0] == ("split", 1, 13)
    assert not any(one.is_applied for one in report.decisions)


def test_numbers_that_a_user_gives_stay():
    flow = ps.Flow("fixed")
    stream = flow.read(ps.sources.generate(lambda n: n, rate=100), name="in")
    stream.map(lambda n: n, name="mine", replicas=2).map(lambda n: n, name="yours").write(ps.sinks.null())
    elastic = ps.Elastic(threads="fixed", most_replicas=4)
    report = flow.run("simulated", cores=40, costs={"mine": 0.1, "yours": 0.1}, seconds=20, elastic=elastic)
    assert report.operators["mine"].replicas == 2
    assert report.operators["yours"].replicas <= 4
    assert decided(report, "replicas") == [("yours", 1, 3)]  # two of "mine" do no more than 20 a second


def test_micro_batches_get_executors_when_they_need_them():
    flow = ps.Flow("batches")
    rate = ps.rates.steps((0, 100), (60, 900), (180, 100))
    stream = flow.read(ps.sources.generate(lambda n: n, rate=rate), name="in")
    stream.map(lambda n: n, name="work").write(ps.sinks.null())
    report = flow.run(
        "simulated",
        like="spark",
        cores=1,
        costs={"work": 0.005},
        trigger=2.0,
        seconds=300,
        elastic=ps.Elastic(most_threads=16, drain_seconds=60.0),
    )
    asked = decided(report, "executors")
    assert 6 <= max(after for _, _, after in asked) <= 9
    assert asked[-1][2] <= 2
    steady = [batch.seconds for batch in report.batches if batch.number > 100]
    assert max(steady[-10:]) < 2.0


# For real


class WithoutVeto(ps.engines.Local):
    """Threads and replicas are not taken away because of the GIL."""

    has_gil = False


def test_threads_and_replicas_change_while_a_real_flow_runs():
    """The input ends when everything has changed often enough."""
    threads, replicas = Restless("threads", [3, 1, 2]), Restless("replicas", [3, 1, 2])
    read = []

    def numbers():
        while replicas.decided < 6 and len(read) < 10_000_000:
            block = range(len(read), len(read) + 1000)
            read.extend(block)
            yield from block

    def summed(values):
        flow, sink = ps.Flow("real"), ps.sinks.collect()
        keyed = flow.read(ps.sources.items(values), name="in").map(lambda n: n + 1, name="a").key_by(lambda n: n % 7)
        keyed.stateful_map(lambda total, n: (total + n, (n, total)), init=int, name="sum").write(sink, name="out")
        return flow, sink

    flow, sink = summed(numbers())
    report = flow.run(WithoutVeto(threads=2, elastic=ps.Elastic(threads=threads, replicas=replicas, period=0.01)))
    expected_flow, expected = summed(read)
    expected_flow.run("sequential")
    assert sink.items == expected.items
    assert len(decided(report, "replicas")) >= 6


class WaitingClock(FakeClock):
    """Time that is slept on is waited for, and no core is used."""

    used = 0.0

    def compute(self, seconds):
        self.used += seconds
        self.sleep(seconds)

    def thread_cpu(self):
        return self.used

    def process_cpu(self):
        return self.used


class OnTwoCores(ps.engines.Local):
    """With the GIL, and hardly any others on the machine."""

    def gauge(self, clock):
        return Gauge(2, system_cpu=lambda: 0.1, has_gil=True)


def test_what_waits_for_others_gets_more_threads_than_cores():
    """As from a service that answers after 4 ms, however many ask."""
    clock = WaitingClock()

    def fetch(n):
        clock.compute(0.00001)
        clock.sleep(0.004)
        return n + 1

    flow = ps.Flow("fetching")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(4000)), name="in").map(fetch, name="fetch").write(sink, name="out")
    report = flow.run(
        OnTwoCores(
            clock=clock,
            driver=lambda clock: Virtual(2, clock, Timing()),
            queue_size=64,
            elastic=ps.Elastic(helping=False, period=0.1),
        )
    )
    assert sink.items == list(range(1, 4001))
    assert max(after for _, _, after in decided(report, "threads")) > 2
    assert report.operators["fetch"].replicas > 2
    assert report.elapsed_seconds < 4000 * 0.004 / 2


def test_the_journal_is_a_file(tmp_path):
    flow, _ = word_count(100)
    path = tmp_path / "journal.jsonl"
    elastic = ps.Elastic(threads="fixed", helping=False, journal=str(path))
    report = flow.run("simulated", cores=40, costs={"split": 0.1, "count": 0.01}, seconds=10, elastic=elastic)
    assert tuple(read_journal(path)) == tuple(report.decisions)
    first = json.loads(path.read_text().splitlines()[0])
    assert first["controller"] == "demand"
    assert first["reason"].startswith("100 tuples/s come")
    assert first["signals"]["busy_seconds"] > 0


def test_a_user_s_own_controller_is_told_frozen_figures():
    told = []

    class Mine(Trend):
        def __deepcopy__(self, memo):
            return self

        def decide(self, signals):
            told.append(signals)
            return super().decide(signals)

    flow = ps.Flow("mine")
    stream = flow.read(ps.sources.generate(lambda n: n), name="in").map(lambda n: n, name="op")
    stream.write(ps.sinks.null(), name="out")
    elastic = ps.Elastic(threads=Mine(), replicas="fixed", helping=False)
    flow.run("simulated", cores=2, costs={"op": 0.001}, seconds=5, elastic=elastic)
    one = told[0].operators["op"]
    assert one.busy_seconds == pytest.approx(1.0, rel=0.1)
    assert list(one.inputs) == ["in"]
    with pytest.raises(AttributeError):
        one.received = 0


def test_idle_engines_end_at_once():
    """Watching keeps nobody from ending."""
    before = threading.active_count()
    flow = ps.Flow("short")
    sink = ps.sinks.collect()
    flow.read(ps.sources.items(range(10))).write(sink)
    job = flow.start(ps.engines.Local(elastic=ps.Elastic(period=60.0)))
    assert job.wait(timeout=20)
    assert sink.items == list(range(10))
    assert threading.active_count() <= before


class Looks(ps.Controller):
    """Decides nothing, and keeps what it was shown."""

    def __init__(self, seen):
        self.seen = seen

    def __deepcopy__(self, memo):
        return self

    def decide(self, signals):
        self.seen.append(signals)
        return []


def test_what_an_operator_sends_is_known_before_it_is_in_order():
    """A replica is slow with the first of its tuples; what others make meanwhile counts."""
    flow = ps.Flow("held")
    numbers = flow.read(ps.sources.generate(lambda n: n, rate=ps.rates.constant(20)), name="in")
    many = numbers.flat_map(lambda n: [n] * 20, name="split", replicas=4)
    many.key_by(lambda n: n % 100).count(name="count").write(ps.sinks.null())
    seen = []

    def cost(n):
        return 5.0 if n == 0 else 0.1

    elastic = ps.Elastic(threads="fixed", replicas=Looks(seen), helping=False, period=1.0)
    flow.run("simulated", cores=8, costs={"split": cost}, seconds=4.5, queue_size=1000, elastic=elastic)
    split, count = seen[0].operators["split"], seen[0].operators["count"]
    assert split.emitted == 20 * split.received > 0
    assert count.inputs == {"split": split.emitted}
    assert count.received == 0


def test_a_team_knows_what_a_tuple_costs_from_who_was_there_before():
    """Otherwise each replica would begin with a chunk of sixteen tuples, and the first results would take so long."""
    flow = ps.Flow("dear")
    numbers = flow.read(ps.sources.generate(lambda n: n, rate=ps.rates.constant(10)), name="in")
    numbers.map(lambda n: n, name="op").write(ps.sinks.null(), name="out")
    report = flow.run(
        "simulated",
        cores=16,
        costs={"op": 0.5},
        seconds=20.0,
        queue_size=1000,
        elastic=ps.Elastic(threads="fixed", helping=False, period=1.0),
    )
    assert report.operators["op"].replicas in (5, 6)
    assert report.latency.p99 < 3.0


def test_a_share_of_a_loop_s_time_is_learnt_by_and_by():
    """The first chunks of a loop say little about who of its operators took how long: what is new counts as known."""
    flow = ps.Flow("loop")
    numbers = flow.read(ps.sources.generate(lambda n: n, rate=ps.rates.constant(6.5)), name="in")
    words = numbers.flat_map(lambda n: range(20), name="split")
    words.key_by(lambda n: n).count(name="count").write(ps.sinks.null())
    seen = []
    elastic = ps.Elastic(threads="fixed", replicas=Looks(seen), helping=False, period=1.0)
    flow.run("simulated", cores=8, costs={"split": 1.0, "count": 0.01}, seconds=4, queue_size=1000, elastic=elastic)
    split, count = seen[0].operators["split"], seen[0].operators["count"]
    assert split.busy_seconds == pytest.approx(5 * count.busy_seconds, rel=0.01)
