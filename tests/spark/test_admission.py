"""What the driver admits is cut into parts that are worth a task: by what they have cost, at first by their number."""

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.spark.admission import Admission, BatchLimits

_TASKS = 4


class Batches:
    """Admits batch after batch of one source, and says what was spent on them."""

    def __init__(self, source, folder):
        flow = ps.Flow("parts")
        flow.read(source, name="in").write(ps.sinks.null())
        graph = flow.validate()
        self.clock = FakeClock()
        self.checkpoint = Checkpoint(str(folder), graph, "spark", 1)
        self.commits = Commits(self.checkpoint, graph)
        self.commits.open()
        self.admission = Admission(graph, self.checkpoint, self.clock, BatchLimits(), closes=False)

    def sizes(self, seconds_each, time=0.0):
        """How much each task gets, and then has spent so long on each position."""
        self.clock.move_to(time)
        admitted = self.admission.admit({"in": _TASKS})
        self.admission.take()
        sizes = [sum(part.end - part.start for part in task) for task in admitted.tasks]
        self.commits.commit(admitted.number, admitted.offsets, {}, {}, closed=False)
        self.admission.spent({"in": sum(sizes) * seconds_each})
        return sizes


@pytest.fixture
def rated(tmp_path):
    """4,000 numbers a second, which only the driver can make."""
    batches = Batches(ps.sources.generate(lambda n: n, rate=4000), tmp_path)
    batches.sizes(0.0)  # they begin to come when the first is read
    yield batches
    batches.checkpoint.leave()


def test_the_first_batch_is_cut_by_rows(rated):
    assert rated.sizes(0.004, time=1.0) == pytest.approx([1000] * _TASKS, abs=5)


def test_a_few_rows_are_one_part_as_long_as_nobody_knows_what_they_cost(rated):
    assert len(rated.sizes(0.004, time=0.05)) == 1


def test_dear_rows_are_cut_however_few_they_are(rated):
    rated.sizes(0.004, time=1.0)
    assert rated.sizes(0.004, time=1.1) == pytest.approx([100] * _TASKS, abs=2)


def test_cheap_rows_stay_together(rated):
    for second in (1, 2):
        rated.sizes(1e-6, time=float(second))
    assert len(rated.sizes(1e-6, time=3.0)) == 1


def test_parts_follow_what_rows_cost(rated):
    found = [len(rated.sizes(0.004 if second > 6 else 1e-6, time=float(second))) for second in range(1, 12)]
    assert found[1:6] == [1] * 5
    assert found[-3:] == [_TASKS] * 3


def test_files_are_cut_by_bytes(tmp_path):
    """Where positions are bytes, so is what they cost."""
    text = tmp_path / "lines.txt"
    text.write_text("a line of text\n" * 20_000)  # 300 kB
    batches = Batches(ps.sources.text(str(text)), tmp_path / "checkpoint")
    found = batches.sizes(1e-4)
    batches.checkpoint.leave()
    assert len(found) == _TASKS
    assert sum(found) == 300_000
