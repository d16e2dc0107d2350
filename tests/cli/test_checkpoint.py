"""`penstock checkpoint`: what is in one, whether it is sound, copies, and flows that have changed."""

import os
import shlex

import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.checkpoint import checkpoint as command


def run(tmp_path, count, make, at="checkpoint"):
    flow = ps.Flow("shop")
    sink = ps.sinks.collect()
    make(flow, count).write(sink, name="result")
    flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / at))
    return sink.items


def orders(flow, count, name="orders"):
    return flow.read(ps.sources.items(range(count)), name=name)


def counted(name="count"):
    return lambda flow, n: (
        orders(flow, n).key_by(lambda x: x % 3).stateful_map(lambda s, x: (s + 1, (x, s)), init=int, name=name)
    )


def told(*arguments, code=0):
    result = CliRunner().invoke(command, [*map(str, arguments)])
    if code == 0 and result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def follow(message):
    """Do what an error says: the first command that it names."""
    (line,) = [part for part in message.split("`") if part.startswith("penstock checkpoint")][:1]
    told(*shlex.split(line)[2:])


def test_show(tmp_path):
    run(tmp_path, 7, counted())
    lines = told("show", tmp_path / "checkpoint").splitlines()
    assert lines[0].split() == ["flow", "shop"]
    assert any(line.startswith("last batch 0, on local,") and "its output is out" in line for line in lines)
    assert 'read       orders: {"items": 7}' in lines
    assert any(line.startswith("knows      count (state by key function): 3 keys, ") for line in lines)


CHANGES = {
    "a window's length": (
        lambda keyed: keyed.window(ps.windows.tumbling(4, time=int)).count(name="op"),
        lambda keyed: keyed.window(ps.windows.tumbling(10, time=int)).count(name="op"),
    ),
    "how often windows begin": (
        lambda keyed: keyed.window(ps.windows.tumbling(4, time=int)).count(name="op"),
        lambda keyed: keyed.window(ps.windows.sliding(4, every=2, time=int)).count(name="op"),
    ),
    "what a window makes": (
        lambda keyed: keyed.window(ps.windows.session(4, time=int)).count(name="op"),
        lambda keyed: keyed.window(ps.windows.session(4, time=int)).collect(name="op"),
    ),
    "what a key remembers": (lambda keyed: keyed.dedupe(name="op"), lambda keyed: keyed.count(name="op")),
    "a count that was a function": (
        lambda keyed: keyed.stateful_map(lambda s, x: (s + x, s), init=int, name="op"),
        lambda keyed: keyed.count(name="op"),
    ),
    "the clock of a ttl": (
        lambda keyed: keyed.stateful_map(lambda s, x: (s, x), init=int, ttl=5, time=int, name="op"),
        lambda keyed: keyed.stateful_map(lambda s, x: (s, x), init=int, ttl=5, name="op"),
    ),
    "how far a join looks": (
        lambda keyed: keyed.join(keyed, within=3, time=int, name="op"),
        lambda keyed: keyed.join(keyed, within=9, time=int, name="op"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_operator_of_the_same_name_is_refused_and_the_named_command_lets_it_begin_anew(tmp_path, change):
    before, after = (
        lambda flow, n, make=make: make(orders(flow, n).key_by(lambda x: x % 3)) for make in CHANGES[change]
    )
    run(tmp_path, 5, before)
    with pytest.raises(ps.CheckpointError, match="'op' was .* and is ") as refused:
        run(tmp_path, 9, after)
    follow(str(refused.value))
    run(tmp_path, 9, after)


def test_commands_in_messages_can_be_copied_from_paths_with_spaces(tmp_path):
    run(tmp_path, 5, counted(), at="my flows")
    with pytest.raises(ps.CheckpointError, match="my flows") as refused:
        run(tmp_path, 9, counted("it's"), at="my flows")
    follow(str(refused.value))
    run(tmp_path, 9, counted("it's"), at="my flows")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_may_have_planted_is_not_copied(tmp_path):
    run(tmp_path, 5, counted())
    os.chown(tmp_path / "checkpoint", 12345, -1)
    assert "belongs to another user (id 12345)" in str(
        CliRunner().invoke(command, ["copy", str(tmp_path / "checkpoint"), str(tmp_path / "mine")]).exception
    )
    assert not (tmp_path / "mine").exists()


def test_verify_finds_every_damaged_file(tmp_path):
    run(tmp_path, 7, counted())
    run(tmp_path, 9, counted())
    assert " 0 not sound" in told("verify", tmp_path / "checkpoint")
    root = tmp_path / "checkpoint"
    for folder, _, names in os.walk(root):
        for name in names:
            if name == "lock":
                continue
            path = os.path.join(folder, name)
            with open(path, "r+b") as file:
                data = bytearray(file.read())
                data[len(data) // 2] ^= 1
                file.seek(0)
                file.write(data)
            if "outputs" in folder or "state" in folder:
                output = CliRunner().invoke(command, ["verify", str(root)]).output
                is_needed = " 0 not sound" not in output
                assert not is_needed or name in output
            else:
                assert name in told("verify", root, code=1)
            with open(path, "r+b") as file:
                data[len(data) // 2] ^= 1
                file.write(data)
    assert " 0 not sound" in told("verify", root)


def test_there_must_be_one(tmp_path):
    for words in (["show"], ["verify"], ["rewind"], ["rename", "--drop", "x"]):
        with pytest.raises(ps.CheckpointError, match="there is no checkpoint in"):
            told(words[0], tmp_path / "none", *words[1:])
    assert not (tmp_path / "none").exists()


def test_a_renamed_operator_goes_on(tmp_path):
    assert run(tmp_path, 3, counted()) == [(0, 0), (1, 0), (2, 0)]
    with pytest.raises(ps.CheckpointError, match="'tally' .* has the place of 'count'") as error:
        run(tmp_path, 6, counted("tally"))
    follow(str(error.value))
    assert run(tmp_path, 6, counted("tally"))[3:] == [(3, 1), (4, 1), (5, 1)]
    with pytest.raises(ps.CheckpointError, match="'count' .* has the place of 'tally'"):
        run(tmp_path, 6, counted())


def test_an_operator_is_dropped_on_purpose(tmp_path):
    run(tmp_path, 3, counted())
    plain = lambda flow, n: orders(flow, n).map(lambda x: (x, None))  # noqa: E731
    with pytest.raises(ps.CheckpointError, match="'count' .* is gone") as error:
        run(tmp_path, 6, plain)
    follow(str(error.value))
    assert run(tmp_path, 6, plain)[3:] == [(3, None), (4, None), (5, None)]


def test_an_operator_that_is_new_begins_empty(tmp_path):
    plain = lambda flow, n: orders(flow, n).map(lambda x: (x, None))  # noqa: E731
    run(tmp_path, 3, plain)
    with pytest.raises(ps.CheckpointError, match="'count' .* is new") as error:
        run(tmp_path, 6, counted())
    follow(str(error.value))
    assert run(tmp_path, 6, counted())[3:] == [(3, 0), (4, 0), (5, 0)]
    assert run(tmp_path, 8, counted())[6:] == [(6, 1), (7, 1)]


def test_an_operator_that_is_another_one_now_begins_again(tmp_path):
    run(tmp_path, 3, counted())
    other = lambda flow, n: orders(flow, n).scan(lambda s, x: (s + x, s + x), 0, name="count")  # noqa: E731
    with pytest.raises(ps.CheckpointError, match="'count' was state by key function and is state by no key") as error:
        run(tmp_path, 5, other)
    follow(str(error.value))
    assert run(tmp_path, 5, other)[3:] == [3, 7]


def test_sources_come_and_go(tmp_path):
    def two(flow, n):
        return orders(flow, n).merge(orders(flow, 2, name="returns"))

    assert sorted(run(tmp_path, 3, orders)) == [0, 1, 2]
    with pytest.raises(ps.CheckpointError, match="'returns' .* is new") as error:
        run(tmp_path, 4, two)
    told("rename", tmp_path / "checkpoint", "--add", "returns", "--add", "merge")
    assert "--add returns" in str(error.value)
    assert sorted(run(tmp_path, 4, two)) == [0, 0, 1, 1, 2, 3]
    with pytest.raises(ps.CheckpointError, match="'returns' .* is gone"):
        run(tmp_path, 5, orders)
    told("rename", tmp_path / "checkpoint", "--drop", "returns", "--drop", "merge")
    assert sorted(run(tmp_path, 5, orders)) == [0, 0, 1, 1, 2, 3, 4]


def test_what_is_not_there_is_not_renamed(tmp_path):
    run(tmp_path, 3, counted())
    for words in (["nothing", "new"], ["--drop", "nothing"]):
        with pytest.raises(ps.CheckpointError, match=r"knows nothing of 'nothing'; it knows .*count"):
            told("rename", tmp_path / "checkpoint", *words)
    with pytest.raises(ps.CheckpointError, match="has a 'orders' already"):
        told("rename", tmp_path / "checkpoint", "count", "orders")
    assert "give pairs" in told("rename", tmp_path / "checkpoint", "count", code=2)
    assert run(tmp_path, 6, counted())[3:] == [(3, 1), (4, 1), (5, 1)]


def test_a_copy_goes_on_by_itself(tmp_path):
    run(tmp_path, 3, counted())
    told("copy", tmp_path / "checkpoint", tmp_path / "copy")
    for at in ("copy", "checkpoint", "copy"):
        assert run(tmp_path, 6, counted(), at)[3:] == [(3, 1), (4, 1), (5, 1)]
    with pytest.raises(ps.CheckpointError, match="is not empty"):
        told("copy", tmp_path / "checkpoint", tmp_path / "copy")


def test_nobody_changes_a_checkpoint_that_is_in_use(tmp_path):
    run(tmp_path, 3, counted())
    flow = ps.Flow("shop")
    counted()(flow, 10**9).write(ps.sinks.null(), name="result")
    job = flow.start(ps.engines.Local(threads=1, checkpoint=tmp_path / "checkpoint"))
    try:
        with pytest.raises(ps.CheckpointError, match="is in use by another run"):
            told("rename", tmp_path / "checkpoint", "count", "tally")
        assert "flow       shop" in told("show", tmp_path / "checkpoint")
    finally:
        job.stop(drain=False)


@pytest.mark.parametrize(
    "words", [["count", "x", "orders", "x"], ["count", "x", "--drop", "count"], ["count", "x", "--add", "x"]]
)
def test_a_name_is_told_one_thing(tmp_path, words):
    run(tmp_path, 3, counted())
    with pytest.raises(ps.CheckpointError, match="each name can be told one thing only"):
        told("rename", tmp_path / "checkpoint", *words)
    for bad in ("../x", ""):
        with pytest.raises(ps.FlowError):
            told("rename", tmp_path / "checkpoint", "count", bad)
    with pytest.raises(ps.CheckpointError, match="'result' is a sink"):
        told("rename", tmp_path / "checkpoint", "--add", "result")
    assert run(tmp_path, 6, counted())[3:] == [(3, 1), (4, 1), (5, 1)]
