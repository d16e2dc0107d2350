"""The plant of flows whose operators all run at once: what is wanted of it is what it tells in the next period."""

import pytest

import penstock as ps


class Once(ps.Controller):
    """Wants something in the first period in which it is asked, and keeps all that it is shown."""

    name = "once"

    def __init__(self, *changes):
        self.changes, self.seen = changes, []

    def __deepcopy__(self, memo):
        return self

    def see(self, signals):
        self.seen.append(signals)

    def decide(self, signals):
        self.seen.append(signals)
        wanted, self.changes = self.changes, ()
        return wanted


def run(*changes, second=None):
    """Five periods of a flow on two virtual cores; the signals of the last one, and what was decided."""
    once, flow = Once(*changes), ps.Flow("live")
    numbers = flow.read(ps.sources.generate(lambda n: n), name="in").map(lambda n: n, name="first", replicas=1)
    numbers.map(lambda n: n, name="second", replicas=second).write(ps.sinks.null(), name="out")
    elastic = ps.Elastic(replicas=once, threads="fixed", helping=False, period=1.0)
    costs = {"first": 0.01, "second": 0.01}
    report = flow.run("simulated", cores=2, costs=costs, fuse=False, seconds=5.5, queue_size=64, elastic=elastic)
    return once.seen[-1], [one.signals["what"] for one in report.decisions if one.controller == "once"]


def test_threads():
    signals, decided = run(ps.Change("threads", "", 2, 1, "a test wants it"))
    assert (signals.threads, decided) == (1, ["threads"])


def test_replicas():
    signals, decided = run(ps.Change("replicas", "second", 1, 3, "a test wants it"))
    assert (signals.operators["second"].replicas, decided) == (3, ["replicas"])


def test_helping_leaves_the_replicas_of_the_helped_as_they_are():
    signals, decided = run(ps.Change("helping", "first > second", 0.0, 0.4, "a test wants it"), second=2)
    assert signals.helping == {("first", "second"): 0.4}
    assert (signals.operators["second"].replicas, decided) == (2, ["helping"])


@pytest.mark.parametrize("what", ["executors", "rows"])
def test_what_belongs_to_batches_is_not_done(what):
    signals, decided = run(ps.Change(what, "", 2, 1, "a test wants it"))
    assert (signals.threads, decided) == (2, [])
