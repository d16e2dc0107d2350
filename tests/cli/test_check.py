"""`penstock check`: what it says about flows that keep their promises, break them, or make none."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import penstock as ps
from penstock.cli.check import Guarantee, promised
from penstock.cli.compare import frozen
from penstock.cli.main import cli
from penstock.errors import FlowError, SourceError

FLOWS = """
import itertools
import penstock as ps

runs = itertools.count()

class Print(ps.Operator):
    inputs, outputs = 2, 0

    async def process(self, ctx):
        raise RuntimeError("a check runs no driver loop that only writes")

good = ps.Flow("good")
numbers = good.read(ps.sources.items(list(range(1500))))
numbers.key_by(lambda x: x % 7).count().write(ps.sinks.json("out"), name="counts")
numbers.map(lambda x: x / 3 if x else float("nan")).write(ps.sinks.call(print), name="thirds")
numbers.filter(lambda x: x == 3).write(ps.sinks.console(), name="three")
good.add(Print(), numbers, numbers.filter(lambda x: x % 2), name="printed")

merged = ps.Flow("merged")
numbers, letters = merged.read(ps.sources.items(list(range(60)))), merged.read(ps.sources.items(list("abc" * 30)))
both = numbers.merge(letters)
both.write(ps.sinks.console(), name="both")
letters.write(ps.sinks.console(), name="letters")

differing = ps.Flow("differing")
(differing.read(ps.sources.items(list(range(1000, 2000))))
    .scan(lambda run, x: (run, x if x < 1500 else x + run), init=lambda: next(runs))
    .write(ps.sinks.console(), name="numbers"))

shorter = ps.Flow("shorter")
shorter.read(ps.sources.generate(lambda i: i, count=5)).flat_map(
    lambda x: [x] if x < 4 else [x] * (1 - next(runs))).write(ps.sinks.null(), name="numbers")

differing_sets = ps.Flow("differing-sets")
(differing_sets.read(ps.sources.items([1])).merge(differing_sets.read(ps.sources.items([2])), name="either")
    .map(lambda x: x if x == 1 else x + next(runs)).write(ps.sinks.console(), name="numbers"))

unpromised = ps.Flow("unpromised")
(unpromised.read(ps.sources.items([1])).merge(unpromised.read(ps.sources.items([2])), name="either")
    .scan(lambda run, x: (run, run), init=lambda: next(runs), name="total").write(ps.sinks.console(), name="totals"))

endless = ps.Flow("endless")
endless.read(ps.sources.generate(lambda i: i)).write(ps.sinks.json("out"))

once = ps.Flow("once")
once.read(ps.sources.items(iter([1, 2]))).write(ps.sinks.json("out"))

missing = ps.Flow("missing")
missing.read(ps.sources.text("nowhere.txt")).write(ps.sinks.json("out"))
"""
TWO = ("--engine", "sequential", "--engine", "local")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "flows_to_check.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def check(flow: str, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["check", f"flows_to_check.py:{flow}", *arguments], env=environment)


def test_the_same_on_all_three_engines_and_nothing_is_written(folder):
    result = check("good", "-o", "spark.parallelism=3", "-o", "spark.rows_per_batch=700")
    assert result.stdout.splitlines() == [
        "counts: 1,500 tuples, the same on sequential, local, spark",
        "thirds: 1,500 tuples, the same on sequential, local, spark",
        "three: 1 tuple, the same on sequential, local, spark",
        "printed: 1,500 tuples, the same on sequential, local, spark",
        "printed-input-1: 750 tuples, the same on sequential, local, spark",
    ]
    assert result.exit_code == 0
    assert "good on spark: " in result.stderr
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["flows_to_check.py"]


def test_what_merge_interleaves_is_compared_as_a_set(folder):
    result = check("merged")
    engines = "sequential, local, spark"
    assert result.stdout.splitlines() == [
        f"both: 150 tuples, the same on {engines} (compared as a set, because 'merge' interleaves its inputs in "
        "arrival order)",
        f"letters: 90 tuples, the same on {engines}",
    ]
    assert result.exit_code == 0


def test_the_first_difference_is_shown_with_what_came_before_it(folder):
    result = check("differing", *TWO)
    assert result.stdout.splitlines() == [
        "numbers: the first difference is at position 500",
        "  sequential, 1,000 tuples",
        "      498: 1498",
        "      499: 1499",
        "    > 500: 1500",
        "  local, 1,000 tuples",
        "      498: 1498",
        "      499: 1499",
        "    > 500: 1501",
    ]
    assert result.exit_code == 1


def test_an_output_that_ends_early_is_a_difference(folder):
    result = check("shorter", *TWO)
    assert result.stdout.splitlines()[-3:] == ["      2: 2", "      3: 3", "    > 4: has ended"]
    assert result.exit_code == 1


def test_a_difference_between_sets(folder):
    result = check("differing_sets", *TWO)
    assert result.stdout.splitlines() == [
        "numbers: not the same (compared as a set, because 'either' interleaves its inputs in arrival order)",
        "  only on sequential, and not on local: 1 tuple, the first at position 1: 2",
        "  only on local, and not on sequential: 1 tuple, the first at position 1: 3",
    ]
    assert result.exit_code == 1


def test_a_difference_that_no_promise_forbids(folder):
    result = check("unpromised", *TWO)
    assert result.stdout.splitlines() == [
        "totals: not the same on sequential, local, which is allowed, because 'total' depends on the order of its "
        "input, and 'either' interleaves its inputs in arrival order"
    ]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ("endless", "source 'generate' may never end, and then neither would a check; check the flow on a sample"),
        ("once", "source 'items' can be read only once, and a check reads it once on each engine; give it a list"),
    ],
)
def test_sources_that_a_check_can_t_read(folder, flow, message):
    result = check(flow)
    assert isinstance(result.exception, FlowError)
    assert message in str(result.exception)
    assert not (folder / "out").exists()


def test_a_flow_that_fails_is_an_error_and_no_difference(folder):
    result = check("missing", *TWO)
    assert isinstance(result.exception, SourceError)
    assert result.stdout == ""


def test_the_program_itself_exits_with_1(folder):
    command = [sys.executable, "-m", "penstock", "check", "flows_to_check:differing"]
    variables = {"PENSTOCK_CHECK_ENGINE": "sequential local", "PENSTOCK_CHECK_OPTION": "local.threads=2"}
    result = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=240)
    assert result.returncode == 1
    assert "numbers: the first difference is at position 500" in result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "local"], "a check compares at least two engines"),
        ([*TWO, "-o", "threads=2"], "'threads=2' names no engine of this check: say sequential.threads"),
        ([*TWO, "-o", "spark.parallelism=2"], "names no engine of this check: say sequential.parallelism"),
        ([*TWO, "-o", "local.threads"], "--option takes NAME=VALUE, not 'local.threads'"),
    ],
)
def test_wrong_commands(folder, arguments, message):
    result = check("good", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_options_go_to_their_engine(folder):
    result = check("good", *TWO, "-o", "local.threads=0")
    assert isinstance(result.exception, FlowError)
    assert "threads" in str(result.exception)


# What is promised, by what is upstream


class Pairs(ps.Operator):
    inputs = 2

    async def process(self, ctx: Any) -> None:
        while await ctx.wait_any():
            for port in ctx.inputs:
                await ctx.emit_many(port.pop_all())


class Echo(ps.Operator):
    controls = 1

    async def process(self, ctx: Any) -> None:
        async for value in ctx.inputs[0]:
            await ctx.emit(value)


def with_a_way_back(a: ps.Stream[Any], b: ps.Stream[Any]) -> ps.Stream[Any]:
    echoed = a.flow.add(Echo(), a)
    a.flow.connect(echoed, "Echo", control=0)
    return echoed


def time_of(x: Any) -> float:
    return float(x)


def joined(a: ps.Stream[Any], b: ps.Stream[Any], **options: Any) -> ps.Stream[Any]:
    return a.key_by(abs).join(b.key_by(abs), 1, time_of, **options)


@pytest.mark.parametrize(
    ("build", "guarantee", "because"),
    [
        (lambda a, b: a.map(abs).scan(max, 0).key_by(abs).count(), Guarantee.ORDER, ""),
        (lambda a, b: a.zip(b), Guarantee.ORDER, ""),
        (lambda a, b: a.key_by(abs).window(ps.windows.tumbling(5, time_of)).count(), Guarantee.ORDER, ""),
        (lambda a, b: a.merge(b).map(abs).filter(abs), Guarantee.SET, "'merge' interleaves"),
        (lambda a, b: a.map(abs, ordered=False).map(abs), Guarantee.SET, "'abs' has ordered=False"),
        (lambda a, b: joined(a, b).map(abs), Guarantee.SET, "'join' is a join"),
        (lambda a, b: a.flow.add(Pairs(), a, b), Guarantee.SET, "'Pairs' is a driver loop with several inputs"),
        (with_a_way_back, Guarantee.SET, "'Echo' is a driver loop with several inputs"),
        (lambda a, b: joined(a.merge(b), b), Guarantee.SET, "'merge' interleaves"),
        (lambda a, b: joined(a.merge(b), b, lateness=5), Guarantee.NOTHING, "'join' depends on the order of its input"),
        (lambda a, b: a.merge(b).zip(b), Guarantee.NOTHING, "'zip' depends on the order of its input, and 'merge'"),
        (lambda a, b: a.merge(b).key_by(abs).count(), Guarantee.NOTHING, "'count' depends on the order of its input"),
        (lambda a, b: a.merge(b).key_by(abs).count().map(abs), Guarantee.NOTHING, "'count' depends"),
        (
            lambda a, b: a.key_by(abs).stateful_map(max, init=int, ttl=5, name="brief"),
            Guarantee.NOTHING,
            "'brief' forgets by the clock",
        ),
    ],
)
def test_what_is_promised_of_a_sink(build: Callable[..., Any], guarantee: Guarantee, because: str):
    flow = ps.Flow("promises")
    build(flow.read(ps.sources.items([1])), flow.read(ps.sources.items([1]))).write(ps.sinks.null(), name="sink")
    promise = promised(flow.validate())["sink"]
    assert (promise.guarantee, because in promise.because) == (guarantee, True), promise


class Plain:
    def __init__(self, content: Any) -> None:
        self.content = content


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        (float("nan"), float("nan"), True),
        ({"a": [1, {2}]}, {"a": [1, {2}]}, True),
        (Plain([1]), Plain([1]), True),
        (Plain([1]), Plain([2]), False),
        (Path("a"), Path("a"), True),
        (bytearray(b"a"), bytearray(b"a"), True),
        (bytearray(b"a"), bytearray(b"b"), False),
        (1, True, False),
        (1, 1.0, False),
        ([1], (1,), False),
        ({"a": 1}, {"a": True}, False),
        (None, 0, False),
        (len, abs, False),
    ],
)
def test_what_the_same_means(left, right, is_same):
    assert (frozen(left) == frozen(right)) is is_same
