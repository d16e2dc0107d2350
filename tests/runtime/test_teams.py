"""Several workers in one operator: who they are, what they take, and how much of it is inside."""

import threading

import pytest

import penstock as ps
from penstock.errors import FlowError
from penstock.flow.nodes import Applies, Node
from penstock.operators.functions import Form
from penstock.ordering.reorder import Ring
from penstock.ordering.worklists import HybridQueue, SharedQueue
from penstock.runtime.cells.tally import Counters, Tally
from penstock.runtime.cells.turn import Turn
from penstock.runtime.failures import Failure
from penstock.runtime.ports import Helped, Port
from penstock.runtime.teams.figures import TeamTally
from penstock.runtime.teams.members import Role, Roster
from penstock.runtime.teams.units import Intake, Unit
from penstock.testing import shuffled

NODE = Node("op", Applies(Form.MAP, abs), (), (), 1, "fail", "here")


class Worker:
    """As much of a member as a roster and a tally see of it."""

    def __init__(self):
        self.number = None
        self.turn = Turn(lambda: None)
        self.tally = Tally([NODE])
        self.notified = 0

    def become(self, number):
        self.number = number

    def has_more(self):
        return True

    def notify(self):
        self.notified += 1
        self.turn.notify()


# Members


def test_members_keep_their_places_when_others_leave_and_come_back():
    made = []
    roster = Roster(lambda: made.append(Worker()) or made[-1])
    roster.resize(3)
    first, second, third = roster.working
    assert [member.number for member in made] == [0, 1, 2]
    roster.resize(1)
    assert roster.working == (first,)
    assert set(roster.of(Role.RETIRED)) == {second, third}
    assert [member.number for member in made] == [0, None, None]
    roster.resize(2)
    assert len(made) == 3
    assert [member.number for member in roster.working] == [0, 1]
    assert sorted(map(id, roster.all)) == sorted(map(id, made))


def test_each_member_is_listed_once_at_any_moment():
    """Others look at them while their number changes: one found twice would let two workers into one cell."""
    seen = []

    def make():
        seen.append(roster.all)
        return Worker()

    roster = Roster(make)
    roster.allow_guests(2)
    for count in 1, 4, 2, 3, 6:
        roster.resize(count)
        seen.append(roster.all)
        roster.claim_for_helper()
        seen.append(roster.all)
    assert [len(set(members)) for members in seen] == [len(members) for members in seen]
    assert len(roster.all) == 8
    assert len(roster.of(Role.GUEST)) == 2


def test_a_guest_that_comes_while_replicas_are_made_waits_until_they_are_there():
    """The list of members is changed by one at a time: none is lost, and none is made in the middle of a change."""
    order = []
    asked = threading.Event()

    def ask():
        asked.set()
        roster.claim_for_helper()

    helper = threading.Thread(target=ask)

    def make():
        if not order:
            helper.start()
            asked.wait()
        order.append("guest" if threading.current_thread() is helper else "replica")
        return Worker()

    roster = Roster(make)
    roster.allow_guests(1)
    roster.resize(3)
    helper.join()
    assert order == ["replica"] * 3 + ["guest"]
    assert len(set(roster.all)) == 4


def test_a_helper_gets_a_place_where_no_worker_is():
    roster = Roster(Worker)
    roster.resize(1)
    assert roster.claim_for_helper() is roster.working[0]
    assert roster.busy == 1
    assert roster.claim_for_helper() is None
    roster.allow_guests(1)
    guest = roster.claim_for_helper()
    assert roster.of(Role.GUEST) == (guest,)
    assert guest.number is None
    assert roster.busy == 2
    guest.turn.release(False)
    assert roster.claim_for_helper() is guest


def test_what_guests_have_done_is_counted_once():
    roster = Roster(Worker)
    roster.resize(2)
    roster.allow_guests(1)
    for member in roster.working:
        member.turn.notify()
        member.turn.claim()
    roster.claim_for_helper()
    for count, member in enumerate(roster.all, start=1):
        member.tally.first.add(Counters(100 * count, 10 * count, busy_seconds=float(count)))
    tally = TeamTally({"op": Counters(received=7, failed=3)}, roster)
    counts = tally.counts()["op"]
    assert (counts.received, counts.emitted, counts.busy_seconds, counts.failed) == (607, 60, 6.0, 3)
    assert tally.passed() == (607, 60)


@pytest.mark.parametrize("helping", [0.0, 0.5, 1.0])
def test_reports_count_every_tuple_once_however_many_help(helping):
    flow, sink = ps.Flow("helped"), ps.sinks.collect()
    numbers = flow.read(ps.sources.items(range(400))).map(lambda n: n, name="one", replicas=1)
    numbers.map(lambda n: n + 1, name="two", replicas=2).write(sink)
    report = flow.run(shuffled(1, workers=4, helping=helping, queue_size=8))
    assert (report.operators["two"].received, report.operators["two"].emitted) == (400, 400)


# Units


class Sent(list):
    is_blocked = False

    def send(self, unit):
        if self.is_blocked:
            return False
        self.append(unit)
        self.intake.sent(unit)
        return True


def intake_of(port, size=4, is_closed=lambda: False):
    sent = Sent()
    sent.intake = Intake(port, Ring(size, sent), lambda: 0.0, is_closed)
    return sent.intake, sent


class Reader:
    def notify(self):
        pass


def port_with(*chunks, capacity=1000):
    port = Port("in", capacity)
    port.reader = Reader()
    for chunk in chunks:
        port.offer(chunk, 0.0)
    return port


def test_units_are_numbered_as_they_are_taken_and_sent_in_that_order():
    intake, sent = intake_of(port_with([1, 2, 3, 4, 5]))
    first, second, third = (intake.cut(2, replica) for replica in (0, 1, 0))
    assert [(unit.serial, unit.values) for unit in (first, second, third)] == [(0, [1, 2]), (1, [3, 4]), (2, [5])]
    assert intake.cut(2, 0) is None
    intake.finished(third)
    intake.finished(second)
    assert sent == []
    assert intake.held() is not None
    assert (intake.inside, intake.unfinished) == (5, 2)
    intake.finished(first)
    assert sent == [first, second, third]
    assert (intake.inside, intake.held()) == (0, None)


def test_no_more_is_taken_than_the_reorder_buffer_holds_and_the_one_refused_is_told():
    intake, _ = intake_of(port_with(list(range(10))), size=2)
    first, second = intake.cut(1, 0), intake.cut(1, 1)
    assert not intake.has_work
    assert intake.cut(1, 0) is None
    assert intake.finished(second) is False
    assert intake.finished(first) is True
    assert intake.has_work
    assert intake.finished(intake.cut(1, 0)) is False


def test_what_was_helped_with_needs_no_work():
    done = Unit(-1, [1], 0.0, 0, 0.0)
    done.give(0, [10], 0.0)
    port = port_with()
    port.offer(Helped([1], done), 0.0)
    intake, _ = intake_of(port)
    unit = intake.cut(1, 0)
    assert unit.is_done
    assert unit.given == [(0, [10], 0.0)]


def test_it_is_through_when_the_input_has_ended_and_all_is_out():
    port = port_with([1])
    intake, _ = intake_of(port)
    unit = intake.cut(1, 0)
    port.close()
    assert not intake.is_through
    assert intake.is_behind
    intake.finished(unit)
    assert intake.is_through
    assert intake.last().serial == 1


def test_nothing_is_taken_while_it_is_closed_for_another_reason():
    closed = [True]
    intake, _ = intake_of(port_with([1]), is_closed=lambda: closed[0])
    assert intake.cut(1, 0) is None
    closed[0] = False
    assert intake.is_open_again()
    assert intake.cut(1, 0).values == [1]


def test_an_error_in_a_unit_is_kept_until_its_turn():
    unit = Unit(0, [1], 0.0, 0, 0.0)
    unit.error = Failure(1.0, FlowError("no"))
    unit.give(0, [], 0.0)
    assert unit.given == []


# Keyed


@pytest.mark.parametrize("worklist", [HybridQueue, SharedQueue])
def test_a_worklist_knows_how_many_tuples_wait_in_it(worklist):
    class Three:
        serial, bucket = 0, 1

        def __len__(self):
            return 3

    queue = worklist()
    queue.add([Three()])
    assert queue.waiting == 3
    queue.take(1, 0, 1)
    assert queue.waiting == 0


@pytest.mark.parametrize("hot", [10, 8, 5])
def test_a_keyed_team_takes_in_no_more_than_it_can_work_on(hot):
    """The workers that find all buckets held leave the rest where it bounds the source."""
    taken, out, inside = [0], [0], [0]

    def key(x):
        taken[0] = max(taken[0], x + 1)  # chunks are taken apart by key in the order in which they come
        return 0 if x % 10 < hot else x

    def leaves(_):
        out[0] += 1
        inside[0] = max(inside[0], taken[0] - out[0])

    queue_size = 1000
    flow = ps.Flow("hot")
    keyed = flow.read(ps.sources.generate(lambda i: i, count=20_000)).key_by(key)
    keyed.stateful_map(lambda n, x: (n + 1, x), init=int, name="op", replicas=2).write(ps.sinks.call(leaves))
    report = flow.run(ps.engines.Simulated(cores=3, queue_size=queue_size, costs={"op": 50e-6}))
    assert out == [20_000]
    assert inside[0] <= 3 * queue_size  # in the team, and before the sink
    # The hot key is worked on all the time.
    assert report.elapsed_seconds < 1.15 * 20_000 * 50e-6 * max(hot / 10, 0.5)


def test_what_a_keyed_team_has_taken_apart_is_reported():
    flow = ps.Flow("reported")
    lengths, insides = [], []
    started = threading.Event()
    job = None

    def work(n, x):
        started.wait(20)
        report = job.metrics()["op"]
        lengths.append(report.queue_length)
        insides.append(report.inside)
        return n, x

    keyed = flow.read(ps.sources.items(range(300))).key_by(lambda _: 0)
    keyed.stateful_map(work, init=int, name="op", replicas=2).write(ps.sinks.null())
    job = flow.start(shuffled(1, queue_size=50))
    started.set()
    job.wait(timeout=30)
    assert 0 < max(insides) <= 100
    assert max(lengths) > 50
    assert (job.metrics()["op"].inside, job.metrics()["op"].queue_length) == (0, 0)


# Lanes

COSTS = {
    "equal": lambda x: 0.001,
    "unequal": lambda x: 0.004 if x % 4 == 0 else 0.0001,
    "a heavy tail": lambda x: 0.1 if x % 97 == 0 else 0.0005,
}


@pytest.mark.parametrize("costs", COSTS)
def test_the_least_loaded_is_not_slower_than_one_after_the_other(costs):
    def seconds(split):
        flow, sink = ps.Flow("split"), ps.sinks.collect()
        flow.read(ps.sources.items(range(1000))).map(lambda x: x, name="op", replicas=4).write(sink)
        report = flow.run(ps.engines.Simulated(cores=4, costs={"op": COSTS[costs]}, split=split))
        assert sink.items == list(range(1000))
        return report.elapsed_seconds

    least_loaded = seconds("least-loaded")
    assert least_loaded <= 1.01 * seconds("round-robin")
    assert least_loaded <= 1.05 * seconds("pull")
