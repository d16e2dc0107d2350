"""Streaming DataFrames in, DataFrames out, on any engine; PySpark is imported only when a run needs it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from penstock.clock import Clock
from penstock.connectors.files.encoders import as_plain, inferred
from penstock.connectors.sink import Rejected, Sink, SinkWriter
from penstock.connectors.source import Chunk, Source, Split
from penstock.connectors.spark_session import session
from penstock.errors import FlowError, SinkError, SourceError, describe_exception, short_repr
from penstock.schema import Row, rows_of_table

_POLL_SECONDS = 0.01
_ROWS_PER_BATCH = 65_536


class SparkStream(Source):
    """What a streaming DataFrame holds when the flow runs, batch after batch."""

    name = "spark"
    counts_rows = True
    replayable = False
    goes_on = False

    def __init__(self, reader: Callable[[Any], Any], order_by: str | list[str] | None) -> None:
        if not callable(reader):
            raise FlowError("spark source: give a function that takes a SparkSession and returns a streaming DataFrame")
        self._reader = reader
        self._order_by = [order_by] if isinstance(order_by, str) else list(order_by or ())

    def splits(self) -> Sequence[Split]:
        return [Split("spark")]

    def read(self, split: Split, clock: Clock) -> Iterator[Chunk]:
        frame = self._frame()
        if not getattr(frame, "isStreaming", False):
            raise SourceError("spark source: the reader returned no streaming DataFrame; use session.readStream in it")
        # One batch waits here while the flow works on another: a slow flow holds Spark back.
        batches: queue.Queue[list[Row] | Exception] = queue.Queue(maxsize=1)
        is_over = False

        def take(batch: Any, _batch_id: int) -> None:
            if is_over:
                return
            try:
                batches.put(self._rows(batch))
            except Exception as error:  # raised here, it would come back wrapped in pages of the JVM's
                batches.put(error)

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
                if isinstance(rows, Exception):
                    raise SourceError(f"spark source: the query failed: {describe_exception(rows)}") from rows
                position += len(rows)
                yield Chunk(rows, position)
            if error := query.exception():
                raise SourceError(f"spark source: the query failed: {error}")
        finally:
            # Spark waits for `take`, which may wait for room: make some, and have no more put there.
            is_over = True
            with suppress(queue.Empty):
                batches.get_nowait()
            query.stop()

    def _rows(self, batch: Any) -> list[Row]:
        ordered = batch.orderBy(*self._order_by) if self._order_by else batch
        return rows_of_table(ordered.toArrow())

    def _frame(self) -> Any:
        try:
            return self._reader(session())
        except Exception as error:
            raise SourceError(f"spark source: the reader raised {describe_exception(error)}") from error


class SparkBatches(Sink):
    """Hands batches of rows to a user's own Spark writer."""

    name = "spark"
    any_thread = True

    def __init__(self, fn: Callable[[Any, int], object]) -> None:
        self._fn = fn

    def open(self) -> SinkWriter:
        return _BatchWriter(self)

    def hand_over(self, values: Sequence[Any], batch_id: int, spark: Any) -> None:
        """Call the writer with these rows as a DataFrame."""
        rows = [as_plain(value) for value in values]
        try:
            self._fn(spark.createDataFrame(inferred(rows)), batch_id)
        except Exception as error:
            raise SinkError(f"spark sink: the writer raised {describe_exception(error)}") from error


class _BatchWriter(SinkWriter):
    def __init__(self, sink: SparkBatches) -> None:
        self._sink = sink
        self._rows: list[Row] = []
        self._batch_id = 0

    def write(self, values: Sequence[Any]) -> Rejected | None:
        for position, value in enumerate(values):
            row = as_plain(value)
            if not isinstance(row, dict) or not row:
                return Rejected(position, ValueError(f"a row is a dict with columns, not {short_repr(value)}"))
            self._rows.append(row)
        if len(self._rows) >= _ROWS_PER_BATCH:
            self.close()
        return None

    def close(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        self._sink.hand_over(rows, self._batch_id, session())
        self._batch_id += 1
