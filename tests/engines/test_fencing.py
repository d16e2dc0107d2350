"""Output is never written twice: not by an older copy of a checkpoint, nor by two copies that go on."""

import os
import random
import shlex
import shutil
from contextlib import suppress

import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.checkpoint import checkpoint as command
from penstock.engines.durable.claims import Claims
from penstock.state.files import Files
from tests.durable_flows import write_numbers
from tests.killed_flow import written


def run(tmp_path, upto, checkpoint="checkpoint", out="out", mode="error"):
    flow = ps.Flow("fenced")
    numbers = flow.read(ps.sources.text(write_numbers(tmp_path / "in", upto)), name="numbers")
    numbers.write(ps.sinks.text(tmp_path / out, mode=mode), name="files")
    flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / checkpoint))
    return [int(line) for line in written(tmp_path, out) if line != "mine"]


def told(*arguments):
    result = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_an_older_checkpoint_is_refused_until_the_output_is_rolled_back(tmp_path):
    assert run(tmp_path, 100) == list(range(100))
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    assert run(tmp_path, 200) == list(range(200))
    assert run(tmp_path, 300) == list(range(300))
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "older", tmp_path / "checkpoint")
    with pytest.raises(ps.CheckpointError, match=r"batch 2 is out, and the checkpoint ends with batch 0.*rewind"):
        run(tmp_path, 400)
    assert "files: 2 files deleted" in told("rewind", tmp_path / "checkpoint")
    assert written(tmp_path, "out") == [str(n) for n in range(100)]
    assert run(tmp_path, 400) == list(range(400))
    assert run(tmp_path, 500) == list(range(500))


def test_of_two_copies_only_one_goes_on(tmp_path):
    run(tmp_path, 100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "twin")
    run(tmp_path, 200)
    with pytest.raises(ps.CheckpointError, match="is ahead of this checkpoint"):
        run(tmp_path, 200, "twin")
    flow = ps.Flow("fenced")  # the twin has a batch of its own, written elsewhere
    numbers = flow.read(ps.sources.text(tmp_path / "in"), name="numbers")
    numbers.write(ps.sinks.text(tmp_path / "elsewhere"), name="files")
    flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / "twin"))
    with pytest.raises(ps.CheckpointError, match="another copy of this checkpoint"):
        run(tmp_path, 300, "twin")
    assert run(tmp_path, 300) == list(range(300))


def test_a_copy_made_on_purpose_writes_elsewhere(tmp_path):
    run(tmp_path, 100)
    told("copy", tmp_path / "checkpoint", tmp_path / "copy")
    with pytest.raises(ps.SinkError, match="already holds output"):
        run(tmp_path, 200, "copy")
    assert run(tmp_path, 200, "copy", out="other") == list(range(100, 200))
    assert run(tmp_path, 300) == list(range(300))
    assert run(tmp_path, 300, "copy", out="other") == list(range(100, 300))


def test_output_that_is_gone_is_noticed(tmp_path):
    run(tmp_path, 100)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    with pytest.raises(ps.SinkError, match="no longer knows what this checkpoint has written"):
        run(tmp_path, 200)
    assert run(tmp_path, 200, out="moved") == list(range(200))  # where it was moved to, it goes on
    shutil.rmtree(tmp_path / "moved" / ".penstock")
    with pytest.raises(ps.SinkError, match="no longer knows"):
        run(tmp_path, 300, out="moved")
    told("rewind", tmp_path / "checkpoint")
    assert run(tmp_path, 300, out="moved") == list(range(300))


def test_two_flows_append_to_one_directory(tmp_path):
    found = []
    for number in range(4):
        for checkpoint in ("one", "two"):
            found = run(tmp_path, 100 * (number + 1), checkpoint, mode="append")
    assert sorted(found) == sorted(2 * list(range(400)))
    assert found == [n for start in range(0, 400, 100) for _ in range(2) for n in range(start, start + 100)]


def test_what_overwrites_takes_a_directory_from_its_owner(tmp_path):
    run(tmp_path, 100)
    assert run(tmp_path, 200, "other", mode="overwrite") == list(range(200))
    with pytest.raises(ps.SinkError, match="no longer knows"):
        run(tmp_path, 300)
    flow = ps.Flow("plain")
    flow.read(ps.sources.items([7])).write(ps.sinks.text(tmp_path / "out", mode="overwrite"))
    flow.run("local")
    with pytest.raises(ps.SinkError, match="no longer knows"):
        run(tmp_path, 300, "other", mode="overwrite")
    assert written(tmp_path, "out") == ["7"]


def test_a_file_of_somebody_else_is_never_overwritten(tmp_path):
    run(tmp_path, 100)
    (tmp_path / "out" / "part-00000002-00000.txt").write_text("mine\n")
    run(tmp_path, 200)  # the number is taken, so it uses another
    assert written(tmp_path, "out").count("mine") == 1
    assert run(tmp_path, 300) == list(range(300))


def test_the_log_of_claims_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engines.durable.claims._KEPT", 10)
    claims = Claims(tmp_path)
    assert claims.make("other", 0, "o", seen=claims.all())
    for batch in range(50):
        assert claims.make("mine", batch, f"m{batch}", seen=claims.all())
    assert len(claims.all()) <= 12
    assert claims.last("other").batch == 0
    assert claims.last("mine").batch == 49
    assert claims.make("mine", 50, "late", seen=[0, 1]) is None, "a look at the log from long ago"


@pytest.mark.parametrize("seed", range(20))
def test_no_history_of_runs_copies_and_returns_writes_anything_twice(tmp_path, seed):
    """Drawn histories: each run either adds just what was missing, or is refused."""
    chance = random.Random(seed)
    upto, copies = 0, ["checkpoint"]
    for step in range(8):
        name = chance.choice(copies)
        action = chance.choice(["run", "run", "run", "copy", "rewind"])
        if action == "copy" and (tmp_path / name).exists():
            copies.append(f"copy-{step}")
            shutil.copytree(tmp_path / name, tmp_path / copies[-1])
        elif action == "rewind" and (tmp_path / name).exists():
            with suppress(ps.CheckpointError):  # where an older copy was rewound to before
                told("rewind", tmp_path / name)
        else:
            upto += chance.choice([0, 100])
            try:
                found = run(tmp_path, max(upto, 100), name)
            except (ps.CheckpointError, ps.SinkError):
                found = list(map(int, written(tmp_path, "out")))
            else:
                assert found == list(range(max(upto, 100)))
            assert found == list(range(len(found)))


def test_sinks_come_and_go_and_have_other_names(tmp_path):
    def run(count, **sinks):
        flow = ps.Flow("sinks")
        numbers = flow.read(ps.sources.items(range(count)), name="numbers")
        for name, directory in sinks.items():
            numbers.write(ps.sinks.text(tmp_path / directory), name=name)
        flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / "checkpoint"))
        return {directory: list(map(int, written(tmp_path, directory))) for directory in sinks.values()}

    assert run(2, one="a") == {"a": [0, 1]}
    assert run(3, two="a", one="b") == {"a": [0, 1, 2], "b": [2]}
    assert run(4, one="b") == {"b": [2, 3]}
    assert run(5, one="b") == {"b": [2, 3, 4]}
    assert run(6, three="a", one="b") == {"a": [0, 1, 2, 5], "b": [2, 3, 4, 5]}
    with pytest.raises(ps.FlowError, match="sinks 'one' and 'two' both write to"):
        run(7, one="a", two="a")


def test_what_is_not_out_yet_is_not_given_to_another_sink(tmp_path):
    def run(count, sink, name="out", dies=False):
        flow = ps.Flow("formats")
        rows = flow.read(ps.sources.items([{"n": n} for n in range(count)]), name="rows")
        rows.write(ps.sinks.call(lambda row: 1 // (not dies)), name="call")
        rows.write(sink, name=name)
        flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / "checkpoint"))

    with pytest.raises(ps.OperatorError, match="ZeroDivisionError"):
        run(2, ps.sinks.json(tmp_path / "out"), dies=True)
    for sink, name in ((ps.sinks.csv(tmp_path / "out"), "out"), (ps.sinks.collect(), "out")):
        with pytest.raises(ps.CheckpointError, match="made for the JsonSink sink 'out'"):
            run(3, sink, name)
    with pytest.raises(ps.CheckpointError, match="made for the JsonSink sink 'out'"):
        run(3, ps.sinks.json(tmp_path / "out"), "other")
    run(3, ps.sinks.json(tmp_path / "out"))
    assert written(tmp_path, "out") == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_rewinding_leaves_what_is_not_ours_and_hides_no_loss(tmp_path):
    run(tmp_path, 100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    shutil.copytree(tmp_path / "out", tmp_path / "older-out")
    run(tmp_path, 200)
    flow = ps.Flow("plain")
    flow.read(ps.sources.items([7])).write(ps.sinks.text(tmp_path / "out", mode="append"))
    flow.run("sequential")
    told("rewind", tmp_path / "older")
    assert written(tmp_path, "out") == [*map(str, range(100)), "7"]
    shutil.rmtree(tmp_path / "out")
    shutil.move(tmp_path / "older-out", tmp_path / "out")
    with pytest.raises(ps.CheckpointError, match="is missing, and no command can make it again"):
        told("rewind", tmp_path / "checkpoint")


def two_sinks(tmp_path, upto, second):
    flow = ps.Flow("fenced")
    numbers = flow.read(ps.sources.text(write_numbers(tmp_path / "in", upto)), name="numbers")
    numbers.filter(lambda line: int(line) < 100).write(ps.sinks.text(tmp_path / "first"), name="s1")
    numbers.write(ps.sinks.text(tmp_path / second), name="s2")
    flow.run(ps.engines.Local(threads=1, checkpoint=tmp_path / "checkpoint"))
    return [int(line) for line in written(tmp_path, second)]


def test_an_older_state_of_one_of_two_outputs_is_refused_wherever_it_is_put(tmp_path):
    two_sinks(tmp_path, 100, "second")
    shutil.copytree(tmp_path / "second", tmp_path / "backup")
    two_sinks(tmp_path, 200, "second")
    with pytest.raises(ps.CheckpointError, match="is behind this checkpoint"):
        two_sinks(tmp_path, 300, "backup")
    (tmp_path / "second").rename(tmp_path / "moved")
    assert two_sinks(tmp_path, 300, "moved") == list(range(300))


def test_output_in_a_directory_that_an_older_checkpoint_does_not_know_can_be_rolled_back(tmp_path):
    run(tmp_path, 100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    assert run(tmp_path, 200, out="new") == list(range(100, 200))
    with pytest.raises(ps.CheckpointError, match="is ahead of this checkpoint") as refused:
        run(tmp_path, 300, "older", out="new")
    (line,) = [part for part in str(refused.value).split("`") if part.startswith("penstock checkpoint rewind")]
    assert f"{tmp_path / 'new'}: 1 files deleted" in told(*shlex.split(line)[2:])
    assert run(tmp_path, 300, "older", out="new") == list(range(100, 300))
    assert run(tmp_path, 400, "older", out="new") == list(range(100, 400))


def test_output_that_was_moved_is_rolled_back_to_what_the_checkpoint_has_done(tmp_path):
    run(tmp_path, 100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    run(tmp_path, 200)
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(ps.CheckpointError, match="is ahead of this checkpoint") as refused:
        run(tmp_path, 300, "older", out="moved")
    (line,) = [part for part in str(refused.value).split("`") if part.startswith("penstock checkpoint rewind")]
    told(*shlex.split(line)[2:])
    assert written(tmp_path, "moved") == [str(n) for n in range(100)]
    assert run(tmp_path, 300, "older", out="moved") == list(range(300))


def test_output_whose_first_claims_are_forgotten_is_not_rolled_back(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engines.durable.claims._KEPT", 2)
    run(tmp_path, 100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    for upto in range(200, 700, 100):
        run(tmp_path, upto, out="new")
    result = CliRunner().invoke(command, ["rewind", str(tmp_path / "older"), "--directory", str(tmp_path / "new")])
    assert "the checkpoint is too old" in str(result.exception)
    assert written(tmp_path, "new") == [str(n) for n in range(100, 600)]


@pytest.mark.parametrize("body", [b"[1]", b"{{{", b"7", b"[" * 100_000, b'[5, "q", "batch", "lineage"]'])
def test_a_claim_that_was_made_up_is_named(tmp_path, body):
    run(tmp_path, 100)
    Files(str(tmp_path / "out" / ".penstock"), key=b"").create("claims/0000000005", body)
    with pytest.raises(ps.CheckpointError, match=r"claims/0000000005 is damaged"):
        run(tmp_path, 200)


def test_files_with_other_names_are_left_alone(tmp_path):
    run(tmp_path, 100)
    (tmp_path / "out" / ".penstock" / "claims" / "\u00b2").write_text("x")
    (tmp_path / "out" / "part-\u00b2.txt").write_text("mine\n")
    assert run(tmp_path, 200) == list(range(200))


def test_what_runs_have_left_half_written_in_the_output_is_swept_out_in_time(tmp_path):
    run(tmp_path, 100)
    others = tmp_path / "out" / f".{'a' * 32}.tmp"  # a run without a checkpoint may be at work here
    others.write_text("half")
    os.utime(others, (1e9, 1e9))
    left = [tmp_path / "out" / f".{'a' * 32}.staged", tmp_path / "out" / ".penstock" / "claims" / ".0000000001.abc"]
    for path in left:
        path.write_text("half")
    run(tmp_path, 200)
    assert all(path.exists() for path in left), "another run may be writing them"
    for path in left:
        os.utime(path, (1e9, 1e9))
    run(tmp_path, 300)
    assert not any(path.exists() for path in left)
    assert others.exists()
