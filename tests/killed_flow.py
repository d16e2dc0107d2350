"""A flow whose process is killed: what it reads, and what it must have written in the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import penstock as ps

COUNT = 3_000


def make_flow(folder: Path, inputs: Path | None = None) -> ps.Flow:
    flow = ps.Flow("killed")
    lines = flow.read(ps.sources.text(inputs or folder / "in"), name="lines").map(int)
    counted = lines.key_by(lambda x: x % 7).stateful_map(lambda s, x: (s + 1, [x, s]), init=int, name="counted")
    counted.write(ps.sinks.json(folder / "out"), name="files")
    windows = lines.key_by(lambda x: x % 11).window(ps.windows.tumbling(100, time=lambda x: x % 977, lateness=500))
    windows.count(name="windows").write(ps.sinks.json(folder / "windows"), name="counts")
    total = counted.map(lambda pair: pair[0]).scan(lambda s, x: (s + x, s + x), 0, name="total")
    total.write(ps.sinks.text(folder / "totals"), name="totals")
    return flow


def write_input(folder: Path, files: int = 3) -> None:
    (folder / "in").mkdir()
    for number in range(files):
        lines = [str(x) for x in range(COUNT) if x % files == number]
        (folder / "in" / f"{number:02d}.txt").write_text("\n".join(lines) + "\n")


def dying_at(step: str, batch: int) -> Callable[[str], None]:
    """What to put in the place of `reached`: it kills this process when a step is reached for the so-many-th time."""
    left = batch

    def reached(name: str) -> None:
        nonlocal left
        if name == step:
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    return reached


def check_written(folder: Path) -> None:
    for what, lines in expected(folder).items():
        assert written(folder, what) == lines, what


def written(folder: Path, what: str) -> list[str]:
    parts = sorted((folder / what).glob("part-*"))
    return [line for part in parts for line in part.read_text().splitlines()]


def expected(folder: Path) -> dict[str, list[str]]:
    """What one run to the end writes, on the sequential engine."""
    make_flow(folder / "reference", inputs=folder / "in").run("sequential", at_end="keep")
    return {what: written(folder / "reference", what) for what in ("out", "totals", "windows")}
