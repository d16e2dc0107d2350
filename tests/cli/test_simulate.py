"""`penstock simulate`, and what `penstock run --profile` gives it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FLOW = """
import penstock as ps

flow = ps.Flow("shop")
stream = flow.read(ps.sources.items(range(2000)), name="in").map(lambda x: x + 1, name="work")
stream.write(ps.sinks.json("never-written"), name="out")

endless = ps.Flow("endless")
endless.read(ps.sources.generate(lambda n: n, rate=100), name="in").map(str, name="work").write(ps.sinks.null())
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(FLOW)
    costs = {"work": {"seconds": 0.01, "released": 0.0, "outputs": 1.0}, "gone": {"seconds": 1.0}}
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    return tmp_path


def penstock(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def rows(result):
    """Cores, tuples a second and what holds the flow up, of each line of the table."""
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    return [(int(line[0]), float(line[1].replace(",", "")), line[-2:]) for line in lines if line[1] != "cores:"]


def test_more_cores_are_faster_until_something_else_holds_the_flow_up(folder):
    found = rows(penstock(folder, "simulate", "shop:flow", "--costs", "costs.json", "--cores", "1,4,16"))
    assert [cores for cores, _, _ in found] == [1, 4, 16]
    assert [throughput for _, throughput, _ in found] == pytest.approx([100, 400, 1600], rel=0.2)
    assert found[0][2] == ["the", "cores"]
    assert not (folder / "never-written").exists()


def test_the_gil_and_the_input_hold_it_up(folder):
    arguments = ("simulate", "shop:flow", "--costs", "costs.json", "--cores", "8")
    (with_gil,) = rows(penstock(folder, *arguments, "--gil"))
    assert with_gil[1:] == (pytest.approx(80, rel=0.25), ["the", "GIL"])
    (at_a_rate,) = rows(penstock(folder, *arguments, "--input-rate", "50"))
    assert at_a_rate[1:] == (pytest.approx(50, rel=0.1), ["the", "input"])


def test_policies_are_ranked_and_drawn(folder):
    arguments = ("--costs", "costs.json", "--cores", "1,2", "--policy", "random,max-queue", "--plot", "plot.png")
    result = penstock(folder, "simulate", "shop:flow", *arguments)
    assert len(rows(result)) == 4
    assert "best policy by throughput" in result.stdout
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_profile_says_what_operators_cost(folder):
    result = penstock(folder, "run", "shop:flow", "--engine", "local", "--profile", "measured.json")
    assert result.returncode == 0, result.stderr
    measured = json.loads((folder / "measured.json").read_text())
    assert set(measured) == {"in", "work", "out"}
    assert 0 < measured["work"]["seconds"] < 0.001
    assert measured["work"]["outputs"] == 1.0
    assert rows(penstock(folder, "simulate", "shop:flow", "--costs", "measured.json", "--cores", "2"))


def test_costs_are_measured_where_none_are_given(folder):
    result = penstock(folder, "simulate", "shop:flow", "--cores", "1")
    assert rows(result)
    assert "measuring what each operator costs" in result.stderr


def test_an_endless_flow_needs_an_end(folder):
    result = penstock(folder, "simulate", "shop:endless", "--costs", "costs.json")
    assert result.returncode == 2
    assert "source 'in' may never end: give --seconds" in result.stderr
    arguments = ("--costs", "costs.json", "--cores", "1,2", "--seconds", "20")
    found = rows(penstock(folder, "simulate", "shop:endless", *arguments))
    assert [throughput for _, throughput, _ in found] == pytest.approx([100, 100], rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cores", "two"), "numbers from 1 up, with commas between them"),
        (("--policy", "best"), "there is no policy 'best'"),
        (("--input-rate", "spikes:1"), "rate 'spikes:1'"),
        (("--input-rate", "nowhere.csv"), "trace nowhere.csv: No such file"),
    ],
)
def test_what_is_wrong_is_said(folder, arguments, message):
    result = penstock(folder, "simulate", "shop:flow", "--costs", "costs.json", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
