"""What cells are composed of: whose turn it is, what goes out, what a chunk costs, what it does."""

import pytest

from penstock.clock import FakeClock
from penstock.flow.nodes import Applies, Node, Remembers
from penstock.operators.functions import Form
from penstock.runtime.cells.budget import Budget
from penstock.runtime.cells.chains import ChainKernel
from penstock.runtime.cells.kernel import BatchKernel
from penstock.runtime.cells.outbox import PortOutbox, with_help
from penstock.runtime.cells.turn import Turn
from penstock.runtime.chain import compile_chain, make_part
from penstock.runtime.failures import Failure
from penstock.runtime.ports import Helped, Port


def node(name, fn, form=Form.MAP, on_error="fail"):
    return Node(name, Applies(form, fn), (), (), 1, on_error, "here")


# Turns


def turn_and_list():
    ready = []
    turn = Turn(lambda: ready.append(turn))
    return turn, ready


def test_a_cell_is_listed_once_however_often_it_is_notified():
    turn, ready = turn_and_list()
    turn.notify()
    turn.notify()
    assert ready == [turn]
    assert turn.claim(from_list=True)
    assert not turn.claim()
    assert turn.is_taken


def test_what_is_notified_while_a_worker_is_in_it_is_queued_again():
    turn, ready = turn_and_list()
    turn.notify()
    turn.claim(from_list=True)
    turn.notify()
    assert len(ready) == 1
    turn.release(has_more=False)
    assert len(ready) == 2
    assert turn.is_queued


def test_a_cell_that_was_claimed_out_of_the_list_keeps_its_entry():
    """A worker that goes on with a reader claims it where it is: the entry that is left must not be doubled."""
    turn, ready = turn_and_list()
    turn.notify()
    assert turn.claim()
    turn.release(has_more=True)
    assert len(ready) == 1
    assert turn.claim(from_list=True)
    turn.release(has_more=True)
    assert len(ready) == 2


def test_an_idle_cell_is_claimed_without_the_list():
    turn, ready = turn_and_list()
    assert turn.claim_idle()
    assert not turn.claim_idle()
    turn.release(has_more=False)
    assert turn.is_idle
    assert ready == []


def test_one_that_has_just_become_idle_may_look_again():
    news = [True]
    ready = []
    turn = Turn(lambda: ready.append("listed"), has_more=lambda: news.pop() if news else False)
    turn.claim_idle()
    turn.release(has_more=False)
    assert turn.is_queued
    assert ready == ["listed"]


def test_a_cell_that_has_ended_is_never_run_again():
    turn, ready = turn_and_list()
    turn.claim_idle()
    turn.end()
    turn.release(has_more=True)
    turn.notify()
    assert turn.is_at_rest
    assert ready == []


# Budgets


def learnt(cost, largest=1000, **options):
    budget = Budget(0.001, largest, **options)
    budget.learn(cost)
    return budget


def test_a_chunk_is_a_millisecond_of_work_or_four_where_much_is_waiting():
    budget = learnt(1e-5)
    assert budget.tuples(waiting=1) == budget.tuples(waiting=200) == 100
    assert budget.tuples(waiting=1000) == 500  # in equal shares of about four chunks
    assert budget.tuples(waiting=100_000) == 400
    assert learnt(1e-5, chunks_when_busy=8).tuples(waiting=100_000) == 800


def test_a_chunk_has_at_least_one_tuple_and_no_more_than_the_largest():
    assert learnt(3.0).tuples(waiting=1000) == 1
    assert learnt(1e-9).tuples(waiting=10**9) == 1000


def test_before_anything_is_known_chunks_are_small():
    assert Budget(0.001, 1000).tuples(waiting=1000) == 16
    assert Budget(0.001, 4).tuples(waiting=1000) == 4


def test_what_a_tuple_costs_is_learnt_on_a_running_average():
    budget = Budget(0.001, 1000)
    for seconds in 0.1, 0.2:
        budget.account(seconds, seconds / 2, processed=100)
    assert budget.seconds_per_tuple == pytest.approx(0.7 * 0.001 + 0.3 * 0.002)
    assert (budget.total_seconds, budget.cpu_seconds) == (pytest.approx(0.3), pytest.approx(0.15))


# Outboxes


class Side:
    """A cell beside a port."""

    def __init__(self, name="side", depth=0.0):
        self.name, self.depth = name, depth
        self.turn = Turn(lambda: None)
        self.notified = 0

    def notify(self):
        self.notified += 1

    def helped(self, values, born):
        return Helped(values, "done") if values else None


def outbox_to(*capacities, helped=0):
    """An outbox of a cell with one output that so many ports read."""
    clock, writer = [0.0], Side("writer")
    outbox = PortOutbox(writer, lambda: clock[0], lambda: None, lambda *_: helped)
    ports = [Port(f"port {number}", capacity) for number, capacity in enumerate(capacities)]
    for port in ports:
        port.reader = Side("reader", depth=1.0)
    outbox.connect([ports])
    return outbox, ports, clock


def test_every_reader_gets_what_is_given():
    outbox, ports, _ = outbox_to(10, 10)
    outbox.give(0, [1, 2], 5.0)
    outbox.give(0, [], 5.0)
    assert not outbox.is_empty
    assert outbox.flush()
    assert outbox.is_empty
    assert [port.take(10) for port in ports] == [([1, 2], 5.0)] * 2


def test_a_single_chunk_is_handed_over_as_it_is():
    outbox, (port,), _ = outbox_to(10)
    values = [1, 2, 3]
    outbox.give(0, values, 0.0)
    outbox.flush()
    assert port.take(10)[0] is values
    assert port.reader.notified == 1


def test_what_does_not_fit_stays_and_the_writer_is_told_when_there_is_room():
    outbox, (port,), clock = outbox_to(2)
    outbox.give(0, [1, 2, 3], 0.0)
    assert not outbox.flush()
    assert outbox.blocked_on is port
    assert port.writer.notified == 0
    clock[0] = 2.0
    assert port.take(2)[0] == [1, 2]
    assert port.writer.notified == 1
    assert outbox.flush()
    assert outbox.blocked_on is None
    assert outbox.blocked_seconds == 2.0
    assert port.take(2)[0] == [3]


def test_one_full_reader_does_not_keep_the_others_waiting():
    outbox, (small, large), _ = outbox_to(1, 10)
    outbox.give(0, [1, 2], 0.0)
    assert not outbox.flush()
    assert outbox.blocked_on is small
    assert large.take(10)[0] == [1, 2]


def test_all_readers_that_are_full_are_known_as_full():
    outbox, ports, clock = outbox_to(1, 1)
    outbox.give(0, [1, 2], 0.0)
    assert not outbox.flush()
    clock[0] = 3.0
    for port in ports:
        port.take(1)
    assert outbox.flush()
    assert [port.full_seconds for port in ports] == [3.0, 3.0]


def test_chunks_keep_their_order_while_a_port_is_full():
    outbox, (port,), _ = outbox_to(2)
    for chunk in [1], [2, 3], [4]:
        outbox.give(0, chunk, 0.0)
    found = []
    while not outbox.flush():
        found += port.take(1)[0]
    while len(port):
        found += port.take(1)[0]
    assert found == [1, 2, 3, 4]


def test_the_only_chunk_is_handed_to_a_reader_that_no_worker_is_in():
    outbox, (port,), _ = outbox_to(10)
    outbox.give(0, [1], 0.0)
    assert outbox.hand_over() is port.reader
    assert outbox.is_empty
    assert port.reader.turn.is_taken
    assert port.reader.notified == 0
    outbox.give(0, [2], 0.0)
    assert outbox.hand_over() is None  # a worker is in it


def test_a_reader_further_up_is_not_gone_on_with():
    outbox, (port,), _ = outbox_to(10)
    port.reader = Side("control", depth=0.0)
    outbox.give(0, [1], 0.0)
    assert outbox.hand_over() is None


def test_the_last_part_of_a_chunk_is_processed_for_a_busy_reader():
    outbox, (port,), _ = outbox_to(10, helped=2)
    outbox.give(0, [1, 2, 3, 4], 0.0)
    outbox.help_readers()
    outbox.flush()
    first, _ = port.take(10)
    second, _ = port.take(10)
    assert (first, second) == ([1, 2], [3, 4])
    assert isinstance(second, Helped)
    assert second.done == "done"


def test_what_was_helped_with_is_not_helped_with_again():
    _, (port,), _ = outbox_to(10)
    done = Helped([1, 2], "done")
    assert with_help("writer", port, done, 0.0, lambda *_: 1) == [done]
    assert with_help("writer", port, [1, 2], 0.0, lambda *_: 0) == [[1, 2]]


def test_when_it_ends_readers_see_the_end_and_nothing_is_missing():
    outbox, (port,), _ = outbox_to(1)
    outbox.give(0, [1, 2], 0.0)
    outbox.flush()
    outbox.end()
    assert port.closed
    assert port.total_given == port.total_dropped + len(port) == 2


# Kernels


def chain(*nodes):
    parts = [make_part(one, lambda: 0.0) for one in nodes]
    return ChainKernel("flow", 3.0, compile_chain(nodes, parts), FakeClock())


def run(kernel, values):
    given = []
    kernel.run(values, 7.0, lambda port, found, born: given.append((port, list(found), born)))
    return [one for one in given if one[1]]


def test_a_chain_runs_its_functions_and_counts_them():
    kernel = chain(node("a", lambda x: x + 1), node("b", lambda x: x % 2, Form.FILTER), node("c", str))
    assert run(kernel, [0, 1, 2]) == [(0, ["1", "3"], 7.0)]
    counts = kernel.tally.counts()
    assert [(one.received, one.emitted) for one in counts.values()] == [(3, 3), (3, 2), (2, 2)]
    assert kernel.tally.passed() == (3, 2)


def test_a_chain_counts_the_same_whether_it_runs_whole_or_step_by_step():
    """One chunk in so many runs staged, to learn how the time is shared out."""
    kernel = chain(node("a", lambda x: x + 1), node("b", lambda x: x % 2, Form.FILTER))
    for _ in range(70):
        assert run(kernel, [0, 1, 2]) == [(0, [1, 3], 7.0)]
    assert [(one.received, one.emitted) for one in kernel.tally.counts().values()] == [(210, 210), (210, 140)]


def test_a_failure_comes_after_what_was_let_through():
    kernel = chain(node("a", lambda x: 1 // x))
    given = []
    with pytest.raises(Failure, match="failed on 0") as caught:
        kernel.run([1, 0, 1], 7.0, lambda *one: given.append(one))
    assert given == [(0, [1], 7.0)]
    assert caught.value.place == 3.0


@pytest.mark.parametrize("form", [Form.MAP, Form.BATCH])
def test_a_tuple_that_fails_becomes_a_dead_letter(form):
    fn = (lambda x: 1 // x) if form is Form.MAP else (lambda xs: [1 // x for x in xs])
    one = node("a", fn, form, on_error="dead-letter")
    kernel = chain(one) if form is Form.MAP else BatchKernel("flow", 0.0, [one])
    letters, good = sorted(run(kernel, [1, 0, 1]), key=lambda one: -one[0])
    assert (letters[0], letters[1][0].value) == (1, 0)
    assert good == (0, [1, 1], 7.0)
    counters = kernel.tally.counts()["a"]
    assert (counters.received, counters.emitted, counters.failed) == (3, 2, 1)


def test_a_chain_that_is_cut_goes_on_with_its_states_and_counts():
    counting = Node("n", Remembers(lambda n, x: (n + 1, (x, n)), int, None), (), (), 1, "fail", "here")
    kernel = chain(node("a", lambda x: x * 10), counting)
    assert run(kernel, [1, 2]) == [(0, [(10, 0), (20, 1)], 7.0)]
    kernel.tally.charge(4.0, 3.0)
    rest = kernel.cut(1, 3.5)
    assert run(kernel, [3]) == [(0, [30], 7.0)]
    assert run(rest, [30]) == [(0, [(30, 2)], 7.0)]
    first, second = kernel.tally.counts()["a"], rest.tally.counts()["n"]
    assert (first.received, first.emitted, second.received, second.emitted) == (3, 3, 3, 3)
    assert first.busy_seconds + second.busy_seconds == pytest.approx(4.0)
    assert first.cpu_seconds + second.cpu_seconds == pytest.approx(3.0)
    assert rest.snapshots().keys() == {"n"}


def test_a_batch_function_may_change_the_list_that_it_is_given():
    kernel = BatchKernel("flow", 0.0, [node("a", lambda xs: [xs.pop() for _ in range(len(xs))], Form.BATCH)])
    values = [1, 2, 3]
    assert run(kernel, values) == [(0, [3, 2, 1], 7.0)]
    assert values == [1, 2, 3]
