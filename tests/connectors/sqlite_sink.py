"""A sink as a user would write it: rows into SQLite, whose connections belong to the thread that made them."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock as ps


class Sqlite(ps.Sink):
    name = "sqlite"
    delivery = ps.Delivery.IDEMPOTENT

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.threads: list[int] = []

    def open(self) -> ps.SinkWriter:
        return SqliteWriter(self)


class SqliteWriter(ps.SinkWriter):
    """A row that is written again takes its own place."""

    def __init__(self, sink: Sqlite) -> None:
        self._sink = sink
        self._database = sqlite3.connect(sink.path)
        self._database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, price REAL)")
        self._note()

    def write(self, values: Sequence[Any]) -> None:
        self._note()
        self._database.executemany("INSERT OR REPLACE INTO orders VALUES (:id, :price)", values)

    def flush(self) -> None:
        self._note()
        self._database.commit()

    def close(self) -> None:
        self.flush()
        self._database.close()

    def _note(self) -> None:
        self._sink.threads.append(threading.get_ident())


def rows(path: Path | str) -> list[tuple[int, float]]:
    database = sqlite3.connect(str(path))
    try:
        return database.execute("SELECT id, price FROM orders ORDER BY id").fetchall()
    finally:
        database.close()


class Deadly(Sqlite):
    """Kills its process before or after the so-many-th commit."""

    def __init__(self, path: Path | str, when: str, left: int) -> None:
        super().__init__(path)
        self.when, self.left = when, left

    def open(self) -> ps.SinkWriter:
        return _DeadlyWriter(self)


class _DeadlyWriter(SqliteWriter):
    def __init__(self, sink: Deadly) -> None:
        super().__init__(sink)
        self._deadly = sink

    def flush(self) -> None:
        self._die("before")
        super().flush()
        self._die("after")
        self._deadly.left -= 1

    def _die(self, when: str) -> None:
        if self._deadly.when == when and self._deadly.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(folder: str, when: str, commits: int, engine: str) -> None:
    flow = ps.Flow("orders")
    orders = flow.read(ps.sources.csv(f"{folder}/in", "id long, price double"), name="orders")
    orders.write(Deadly(f"{folder}/orders.db", when, commits), name="database")
    engines = {
        "local": lambda: ps.engines.Local(threads=2, checkpoint=f"{folder}/checkpoint", checkpoint_seconds=0),
        "spark": lambda: ps.engines.Spark(checkpoint=f"{folder}/checkpoint", parallelism=2, bytes_per_batch=2000),
    }
    flow.run(engines[engine]())
