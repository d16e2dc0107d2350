"""Streaming DataFrames in, DataFrames out, on any engine; PySpark is imported only when a run needs it."""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.clock import Clock
from penstock.connectors.files.writers import as_plain
from penstock.connectors.sink import Rejected, Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split
from penstock.errors import FlowError, SinkError, SourceError

_POLL_SECONDS = 0.01
_ROWS_PER_BATCH = 65_536


def session() -> Any:
    """The process's Spark session, made on loopback and without log noise where there is none."""
    from pyspark.sql import SparkSession

    if active := SparkSession.getActiveSession():
        return active
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[*,4]").appName("penstock")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Xss16m",
    }.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


class SparkStream(Source):
    """What a streaming DataFrame holds when the flow runs, batch after batch."""

    name = "spark"
    replayable = False

    def __init__(self, reader: Callable[[Any], Any], order_by: str | list[str] | None) -> None:
        if not callable(reader):
            raise FlowError("spark source: give a function that takes a SparkSession and returns a streaming DataFrame")
        self._reader = reader
        self._order_by = [order_by] if isinstance(order_by, str) else list(order_by or ())

    def splits(self) -> Sequence[Split]:
        return [Split("spark")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        frame = self._reader(session())
        if not getattr(frame, "isStreaming", False):
            raise SourceError("spark source: the reader returned no streaming DataFrame; use session.readStream in it")
        # One batch waits here while the flow works on another: a slow flow holds Spark back.
        batches: queue.Queue[list[dict[str, Any]]] = queue.Queue(maxsize=1)

        def take(batch: Any, _batch_id: int) -> None:
            ordered = batch.orderBy(*self._order_by) if self._order_by else batch
            batches.put(ordered.toArrow().to_pylist())

        query = frame.writeStream.foreachBatch(take).trigger(availableNow=True).start()
        position = 0
        try:
            while True:
                finished = not query.isActive
                try:
                    rows = batches.get_nowait()
                except queue.Empty:
                    if finished:
                        break
                    yield Chunk((), position, idle_seconds=_POLL_SECONDS)
                    continue
                position += len(rows)
                yield Chunk(rows, position)
            if error := query.exception():
                raise SourceError(f"spark source: the query failed: {error}")
        finally:
            query.stop()


class SparkBatches(Sink):
    """Hands batches of rows to a user's own Spark writer."""

    name = "spark"

    def __init__(self, fn: Callable[[Any, int], object]) -> None:
        self._fn = fn

    def open(self) -> SinkWriter:
        return _BatchWriter(self._fn)


class _BatchWriter(SinkWriter):
    def __init__(self, fn: Callable[[Any, int], object]) -> None:
        self._fn = fn
        self._rows: list[dict[str, Any]] = []
        self._batch_id = 0

    def write(self, values: Sequence[Any]) -> Sequence[Rejected]:
        rejected = []
        for position, value in enumerate(values):
            row = as_plain(value)
            if isinstance(row, dict):
                self._rows.append(row)
            else:
                rejected.append(Rejected(position, ValueError(f"a row is a dict, not {type(value).__name__}")))
        if len(self._rows) >= _ROWS_PER_BATCH:
            self.close()
        return rejected

    def close(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        try:
            self._fn(session().createDataFrame(pa.Table.from_pylist(rows)), self._batch_id)
        except Exception as error:
            raise SinkError(f"spark sink: the writer raised {type(error).__name__}: {error}") from error
        self._batch_id += 1
