"""`penstock journal`: what a run has decided, as a table and as a drawing."""

import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.journal import journal

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The journal of a run in which a load goes and comes back."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    flow = ps.Flow("shop")
    orders = flow.read(ps.sources.generate(lambda n: n, rate=ps.rates.steps((0, 86), (20, 8), (40, 86))), name="orders")
    orders.map(lambda n: n, name="score").write(ps.sinks.null(), name="out")
    elastic = ps.Elastic(threads="fixed", replicas="predictive", period=1.0, journal=path)
    flow.run("simulated", cores=32, costs={"score": 0.1}, seconds=60, queue_size=1000, elastic=elastic)
    return path


def told(*arguments):
    return CliRunner().invoke(journal, [*map(str, arguments)])


def test_a_line_for_each_decision(written):
    result = told(written)
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["seconds", "controller", "what", "operator", "from", "to", "why"]
    numbers = [int(line.split()[5]) for line in lines]
    assert numbers[0] == numbers[-1] == 9
    assert min(numbers) == 1
    assert all("replicas' work" in line for line in lines)


def test_only_what_was_asked_for(written):
    assert told(written, "--operator", "out").stdout == "nothing was decided\n"
    assert told(written, "--operator", "score").stdout == told(written).stdout


def test_a_drawing(written, tmp_path):
    plot = tmp_path / "journal.png"
    assert told(written, "--plot", plot).exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_what_would_have_been_done_is_in_brackets(tmp_path):
    path = tmp_path / "journal.jsonl"
    flow = ps.Flow("shop")
    orders = flow.read(ps.sources.generate(lambda n: n, rate=ps.rates.constant(40)), name="orders")
    orders.map(lambda n: n, name="score").write(ps.sinks.null())
    elastic = ps.Elastic(threads="fixed", helping=False, apply=False, journal=path)
    flow.run("simulated", cores=8, costs={"score": 0.1}, seconds=5, queue_size=1000, elastic=elastic)
    assert "(demand)" in told(path).stdout
    assert told(path).stdout.endswith("in brackets: what would have been done\n")


def test_what_is_no_journal_is_said_to_be_none(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n")
    result = told(path)
    assert result.exit_code != 0
    assert "each line is a JSON object that tells a decision" in f"{result.output}{result.exception}"
