"""The flow under test: something of every kind that a checkpoint keeps, small enough to be run thousands of times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.clock import FakeClock

FILES = 4
LINES_PER_FILE = 15
ITEMS = 6
TIMEOUT_SECONDS = {"local": 60.0, "spark": 240.0}
"""A run of this flow takes a tenth of a second, or a few on Spark: one that takes so long hangs."""

Outputs = dict[str, list[Any]]


class OneByOne:
    """A list that is no sequence: the local engine reads it a tuple at a time, so that there are many checkpoints."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))


class Summed(ps.Operator):
    """A driver loop with a state."""

    async def process(self, ctx: Any) -> None:
        async for value in ctx.inputs[0]:
            ctx.state["sum"] = ctx.state.get("sum", 0) + value
            await ctx.emit([value, ctx.state["sum"]])


def write_inputs(folder: Path, files: int = FILES, lines: int = LINES_PER_FILE) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        values = range(number * lines, (number + 1) * lines)
        (folder / f"{number:02d}.txt").write_text("".join(f"{value * 7 % 1009}\n" for value in values))


def make_flow(inputs: Path, output: Path, items: int = ITEMS, parse: Any = int) -> tuple[ps.Flow, Any]:
    """Keyed state, windows, what a zip has left over, a driver loop's state; files and a spooled list; both kinds of
    sinks that are exactly once."""
    flow, collected = ps.Flow("reliable"), ps.sinks.collect()
    lines = flow.read(ps.sources.text(inputs), name="lines").map(parse, name="parsed")
    counted = lines.key_by(lambda x: x % 5).stateful_map(lambda s, x: (s + x, [x, s]), init=int, name="counted")
    counted.write(ps.sinks.json(output / "counted"), name="counted-files")
    timed = lines.key_by(lambda x: x % 3).window(ps.windows.tumbling(50, time=float, lateness=20))
    timed.count(name="windows").write(ps.sinks.json(output / "windows"), name="window-files")
    numbers = flow.read(ps.sources.items(OneByOne(items)), name="numbers")
    flow.add(Summed(), numbers, name="summed").write(collected, name="collected")
    lines.filter(lambda x: x % 4).zip(lines.map(str), name="zipped").write(
        ps.sinks.text(output / "zipped"), name="pairs"
    )
    return flow, collected


def make_engine(name: str, checkpoint: Path) -> Any:
    if name == "spark":
        return ps.engines.Spark(checkpoint=str(checkpoint), parallelism=2, rows_per_batch=2, bytes_per_batch=70)
    # Time stands still, so a checkpoint is due whenever something was read.
    return ps.engines.Local(threads=2, checkpoint=checkpoint, checkpoint_seconds=0, clock=FakeClock())


def read_outputs(output: Path, collected: list[Any]) -> Outputs:
    """What is in the files, in the order of their names, and in the list."""
    found = {name: _lines(output / name) for name in ("counted", "windows", "zipped")}
    return {**found, "collected": json.loads(json.dumps(collected))}


def _lines(folder: Path) -> list[str]:
    return [line for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def sequential_outputs(inputs: Path, scratch: Path, items: int = ITEMS) -> Outputs:
    """What must come out: the sequential engine's answer."""
    flow, collected = make_flow(inputs, scratch, items)
    flow.run("sequential", at_end="keep")
    return read_outputs(scratch, collected.items)


def difference(found: Outputs, expected: Outputs) -> str:
    """What is wrong with an output, in a line; nothing if it is right."""
    for name, rows in expected.items():
        got = found[name]
        if got != rows:
            place = next((i for i, (a, b) in enumerate(zip(got, rows)) if a != b), min(len(got), len(rows)))
            has, wants = got[place : place + 1], rows[place : place + 1]
            return f"{name!r} has {len(got)} rows instead of {len(rows)}; at {place} it has {has} instead of {wants}"
    return ""
