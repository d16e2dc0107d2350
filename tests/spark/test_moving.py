"""A flow changes engines at a checkpoint, back and forth, and its output is that of one run on one engine."""

import pytest

import penstock as ps
from penstock.engines.durable import steps
from tests.durable_flows import everything, lines_in, write_numbers

STEP = 300


def engine(name, checkpoint):
    if name == "local":
        return ps.engines.Local(threads=2, checkpoint=checkpoint, checkpoint_seconds=0.2)
    return ps.engines.Spark(checkpoint=str(checkpoint), parallelism=2, buckets=7, bytes_per_batch=500)


def expected(tmp_path, count, at_end="keep"):
    collected = ps.sinks.collect()
    inputs = write_numbers(tmp_path / "expected-in", count)
    everything(tmp_path / "expected", inputs, collected).run("sequential", at_end=at_end)
    return lines_in(tmp_path / "expected"), collected.items


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [["local", "spark", "local"], ["spark", "local", "spark"]])
def test_a_flow_changes_engines_at_a_checkpoint(tmp_path, names):
    for number, name in enumerate(names, start=1):
        is_last = number == len(names)
        inputs = write_numbers(tmp_path / "in", number * STEP)
        collected = ps.sinks.collect()
        flow = everything(tmp_path / "out", inputs, collected)
        flow.run(engine(name, tmp_path / "checkpoint"), at_end="close" if is_last else "keep")
    assert (lines_in(tmp_path / "out"), collected.items) == expected(tmp_path, number * STEP, at_end="close")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dies_at", ["manifest", "processed"])
def test_what_one_engine_left_unfinished_another_finishes(tmp_path, dies_at, monkeypatch):
    inputs = write_numbers(tmp_path / "in", STEP)
    count = 0

    def die(step):
        nonlocal count
        count += step == dies_at
        if count == (1 if name == "local" else 2):
            raise RuntimeError("died")

    name = ""
    for name in ["spark", "local", "spark"]:
        count = 0
        collected = ps.sinks.collect()
        flow = everything(tmp_path / "out", inputs, collected)
        with monkeypatch.context() as patch:
            patch.setattr(steps, "observer", die)
            with pytest.raises((ps.PenstockError, RuntimeError), match="died"):
                flow.run(engine(name, tmp_path / "checkpoint"))
        inputs = write_numbers(tmp_path / "in", STEP + len(list(inputs.iterdir())) * 100)
    everything(tmp_path / "out", inputs, collected).run(engine("local", tmp_path / "checkpoint"))
    upto = len(list(inputs.iterdir())) * 100
    assert (lines_in(tmp_path / "out"), collected.items) == expected(tmp_path, upto)


def test_gzip_is_read_once_by_whichever_engine(tmp_path):
    import gzip

    def run(name, files):
        for number in range(files):
            if not (tmp_path / f"{number}.txt.gz").exists():
                with gzip.open(tmp_path / f"{number}.txt.gz", "wt") as file:
                    file.writelines(f"{number}-{n}\n" for n in range(50))
        flow = ps.Flow("zipped")
        collected = ps.sinks.collect()
        flow.read(ps.sources.text(str(tmp_path / "*.gz"))).write(collected)
        flow.run(engine(name, tmp_path / "checkpoint"))
        return collected.items

    for files, name in enumerate(["spark", "spark", "local", "spark", "local", "local"], start=1):
        assert run(name, files) == [f"{number}-{n}" for number in range(files) for n in range(50)]


def test_a_step_and_an_engine_do_not_share_a_checkpoint(tmp_path):
    flow = ps.Flow("step")
    flow.read(ps.sources.items([1, 2])).key_by(lambda x: x).count(name="counted").write(ps.sinks.null())
    flow.run(engine("spark", tmp_path / "checkpoint"))
    with pytest.raises(ps.CheckpointError, match="numbered by the query that calls it"):
        ps.spark.step(flow, checkpoint=str(tmp_path / "checkpoint"))
