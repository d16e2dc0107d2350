"""Runs on a session that the user has made, with nothing but Spark's defaults; a listener tells how their queries end.

python -m tests.spark.own_session_script <folder>
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import penstock as ps
from tests.waiting import until


class Ends(StreamingQueryListener):
    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        print("listener: ended", "well" if event.exception is None else "badly", flush=True)
        if event.exception is not None:
            assert "QueryFailed: operator 'fn' of flow 'own'" in event.exception, event.exception


def counted(values: Any, folder: Path, result: Any, fn: Any = lambda x: x) -> ps.Flow:
    flow = ps.Flow("own")
    flow.read(values, name="in").map(fn, name="fn").key_by(lambda x: x % 3).count(name="n").write(result, name="out")
    return flow


def main(folder: Path) -> None:
    logging.basicConfig()  # so that whatever py4j logs is seen
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    make = spark.newSession

    def overheard() -> Any:
        """A flow has a session of its own: listeners are added there."""
        made = make()
        made.streams.addListener(Ends())
        return made

    spark.newSession = overheard
    options = {"session": spark, "checkpoint": str(folder / "checkpoint")}
    began = folder / "began"

    for length in (7, 9):
        result = ps.sinks.collect()
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{length}.txt").write_text("1\n" * length)
        flow = ps.Flow("own")
        lines = flow.read(ps.sources.text(folder / "in"), name="in")
        lines.key_by(lambda line: line).count(name="n").write(result, name="out")
        flow.run(ps.engines.Spark(rows_per_batch=4, **options))
        print("counts", result.items[-1][1], flush=True)

    def slow(x: Any) -> Any:
        began.touch()
        threading.Event().wait()  # for ever: it has to be ended

    def stopped(how: Any, **more: Any) -> None:
        job = counted(ps.sources.items(range(3)), folder, ps.sinks.null(), slow).start(
            ps.engines.Spark(session=spark, **more)
        )
        until(began.exists, "a task that works")
        how(job)
        began.unlink()

    stopped(lambda job: job.stop(drain=False))
    print("stopped at once", flush=True)
    fails = counted(ps.sources.items(range(3)), folder, ps.sinks.null(), lambda x: 1 / 0)
    try:
        fails.run(ps.engines.Spark(session=spark))
    except ps.OperatorError as error:
        print("told:", error, flush=True)

    idle = counted(ps.sources.generate(lambda i: i, rate=1), folder, ps.sinks.null())
    job = idle.start(ps.engines.Spark(session=spark))
    until(job.batches, "a batch")
    spark.stop()
    try:
        job.wait(timeout=60)
    except ps.PenstockError as error:
        print("told:", error, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
