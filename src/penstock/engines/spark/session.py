"""The session of one query: settings that a user's own session need not share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock.errors import FlowError

_OF_THE_QUERY = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.streaming.stopTimeout": "60s",
}
_LOCAL_LOGS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def query_session(parent: Any, conf: Mapping[str, str], checkpoint_is_local: bool) -> Any:
    """A session of its own for one query, on the same Spark."""
    if "connect" in type(parent).__module__:
        raise FlowError("engine 'spark': Spark Connect has no driver process for a flow; give a classic SparkSession")
    made = parent.newSession()
    settings = dict(_OF_THE_QUERY)
    if checkpoint_is_local:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_LOGS
    for name, value in {**settings, **conf}.items():
        with suppress(Exception):  # what can only be set for a whole Spark was set when it was made
            made.conf.set(name, value)
    return made
