"""The flow behind `penstock demo`: which visitors click a lot, minute by minute, from a folder of click logs."""

from __future__ import annotations

import csv
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import penstock as ps

_FILES = 4
_PAGES = ("/", "/health", "/search", "/cart", "/pay", "/help")
_BUSY_CLICKS_PER_MINUTE = 12


def make_clicks(folder: Path, count: int, seed: int = 7) -> None:
    """Write `count` clicks of a busy site, in order, over a few CSV files."""
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    time = datetime(2026, 3, 1, 9, tzinfo=UTC)
    for number in range(_FILES):
        with (folder / f"clicks-{number}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["user", "page", "ts"])
            for _ in range(number * count // _FILES, (number + 1) * count // _FILES):
                time += timedelta(milliseconds=chance.randint(0, 40))
                user = min(int(chance.expovariate(1 / 150)), 999)
                writer.writerow([user, chance.choice(_PAGES), time.isoformat()])


def make_flow(clicks: Path, busy: Path) -> ps.Flow:
    """Clicks in, one row for each user and minute with many of them out."""
    flow = ps.Flow("demo")
    rows = flow.read(ps.sources.csv(clicks, schema="user long, page string, ts timestamp"), name="clicks")
    real = rows.filter(lambda click: click["page"] != "/health", name="real")
    per_minute = real.key_by("user").window(ps.windows.tumbling(60, time=lambda click: click["ts"])).count()
    busy_minutes = per_minute.filter(lambda window: window.value >= _BUSY_CLICKS_PER_MINUTE, name="busy")
    busy_minutes.map(_row).write(ps.sinks.json(busy))
    return flow


def _row(window: ps.WindowResult) -> dict[str, Any]:
    return {"minute": window.start.strftime("%H:%M"), "user": window.key, "clicks": window.value}


def show(busy: Path, most: int = 8) -> str:
    """The first lines of what the flow wrote."""
    lines = [line for part in sorted(busy.glob("part-*")) for line in part.read_text().splitlines()]
    shown = [json.loads(line) for line in lines[:most]]
    table = [f"  {row['minute']}  user {row['user']:>3}  {row['clicks']:>3} clicks" for row in shown]
    return "\n".join([f"busy minutes, in order ({len(lines):,} in all):", *table])
