"""How a query ends: the only exceptions that go to Spark, in the words that it takes for what they are."""

from __future__ import annotations

import logging


class QueryStopped(Exception):
    """Spark has stopped the query, and this is how the batch under way says that it has noticed.

    Spark takes the end of a query for a good one if, after `stop()`, a batch fails because of an interruption. What
    Python raises comes to it as text, in which it looks for these words.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException: "
            "Penstock has stopped the query"
        )


class QueryFailed(Exception):
    """A batch has failed; the caller that waits for the run gets the whole error."""


class _ToldElsewhere(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], QueryStopped | QueryFailed)


_FILTER = _ToldElsewhere()


def told_elsewhere() -> None:
    """Keep py4j from logging, page by page, what comes out of the run; everything else it logs as before."""
    logging.getLogger("py4j.clientserver").addFilter(_FILTER)
    logging.getLogger("py4j.java_gateway").addFilter(_FILTER)
