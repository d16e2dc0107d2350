"""Flows that remember in every way there is, for tests of checkpoints that move, are copied, or are damaged."""

from __future__ import annotations

from pathlib import Path

import penstock as ps


class Pairs(ps.Operator):
    """A single loop with a state: every second tuple goes out with the one before it."""

    async def process(self, ctx):
        while await ctx.wait_all():
            for port in ctx.inputs:
                held = ctx.state.setdefault("held", [])
                held.append(port.pop())
                if len(held) == 2:
                    await ctx.emit(tuple(held))
                    held.clear()


class Streaks(ps.Operator):
    """A loop for each key: how many came since the last multiple of five."""

    kind = "keyed"

    async def process(self, ctx):
        while await ctx.wait_all():
            value = ctx.inputs[0].pop()
            ctx.state["count"] = 0 if value % 5 == 0 else ctx.state.get("count", 0) + 1
            await ctx.emit((ctx.key, value, ctx.state["count"]))


def everything(folder: Path, inputs: Path, collected: ps.sinks.Collect | None = None) -> ps.Flow:
    """Functions with and without a `ttl`, NaN and bytes among the keys, windows, a join, loops, a zip, a scan."""
    flow = ps.Flow("everything")
    numbers = flow.read(ps.sources.text(inputs), name="numbers").map(int)
    keyed = numbers.key_by(_odd_key)
    write(keyed.stateful_map(lambda s, x: (s + 1, [x, s]), init=int, name="counted"), folder, "counted")
    forgetful = keyed.stateful_map(lambda s, x: (s + 1, [x, s]), init=int, ttl=20, time=float, name="forgetful")
    write(forgetful, folder, "forgetful")
    windows = keyed.window(ps.windows.tumbling(30, time=float, lateness=10)).count(name="windows")
    write(windows.map(lambda w: [repr(w.key), w.start, w.value]), folder, "windows")
    sessions = keyed.window(ps.windows.session(9, time=lambda x: x * 1.5)).collect(name="sessions")
    write(sessions.map(lambda w: [repr(w.key), w.start, w.value]), folder, "sessions")
    evens, odds = numbers.branch(lambda x: x % 2 == 0)
    joined = evens.key_by(lambda x: x % 3).join(
        odds.key_by(lambda x: x % 3), within=4, time=float, lateness=8, name="joined"
    )
    write(joined.map(list), folder, "joined", is_set=True)
    write(flow.add(Pairs(), numbers, name="pairs").map(list), folder, "pairs")
    streaks = flow.add(Streaks(), numbers.key_by(lambda x: x % 4), name="streaks")
    write(streaks.map(list), folder, "streaks")
    write(numbers.zip(numbers.filter(lambda x: x % 3 == 0), name="zipped").map(list), folder, "zipped")
    total = numbers.scan(lambda s, x: (s + x, s + x), 0, name="total")
    write(total, folder, "total")
    if collected is not None:
        total.write(collected, name="collected")
    return flow


def _odd_key(x: int) -> object:
    return [float("nan"), b"i3", 3, "s", (1, float("nan")), None, True][x % 7]


def write(stream: ps.Stream, folder: Path, name: str, is_set: bool = False) -> None:
    stream.write(ps.sinks.json(folder / (f"{name}-set" if is_set else name)), name=f"{name}-files")


def write_numbers(folder: Path, upto: int, per_file: int = 100) -> Path:
    """Files with the numbers up to one; called again with a larger one, it adds files."""
    folder.mkdir(exist_ok=True)
    for start in range(0, upto, per_file):
        path = folder / f"{start:06d}.txt"
        if not path.exists():
            path.write_text("".join(f"{n}\n" for n in range(start, start + per_file)))
    return folder


def lines_in(folder: Path) -> dict[str, list[str]]:
    """What every directory of output holds, in order; sorted where only the set is promised."""
    found = {}
    for directory in sorted(path for path in folder.iterdir() if path.is_dir()):
        lines = [line for part in sorted(directory.glob("part-*")) for line in part.read_text().splitlines()]
        found[directory.name] = sorted(lines) if directory.name.endswith("-set") else lines
    return found
