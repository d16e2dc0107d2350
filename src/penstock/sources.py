"""`ps.sources`: where streams begin.

Files are read in the order of their names, then of their rows; a path may be a file, a glob, a directory or a list of
these, and `.gz`, `.bz2`, `.zst` and `.lz4` are read as what they hold. A schema is a Spark DDL string, and rows are
`dict`s. `limits` is what a reader accepts before it calls its input broken. `on_change` says what to do when a file is
no longer what an earlier run on the same checkpoint has read: `"error"`, or `"restart"` to read it as new.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

from penstock.connectors.files.csv import CsvFiles
from penstock.connectors.files.discover import Paths
from penstock.connectors.files.lines import Limits
from penstock.connectors.files.parquet import ParquetFiles
from penstock.connectors.files.readers import JsonFiles, TextFiles
from penstock.connectors.memory import AsyncItems, Generate, Items
from penstock.connectors.socket import Socket
from penstock.connectors.source import Chunk, OnChange, Source, Split, Unreadable
from penstock.connectors.spark import SparkStream
from penstock.errors import FlowError
from penstock.rates import Rate, constant

__all__ = [
    "Chunk",
    "Limits",
    "Source",
    "Split",
    "Unreadable",
    "csv",
    "generate",
    "items",
    "json",
    "parquet",
    "socket",
    "spark",
    "text",
]

_DEFAULT_LIMITS = Limits()


def items(iterable: Iterable[Any] | AsyncIterable[Any]) -> Source:
    """The values of a list, a range, a generator or any other iterable, asynchronous ones too.

    >>> items([1, 2, 3]).replayable, items(iter([1, 2, 3])).replayable
    (True, False)
    """
    if isinstance(iterable, AsyncIterable):
        return AsyncItems(iterable)
    try:
        return Items(iterable)
    except TypeError:
        raise FlowError(f"items source: give an iterable, not {type(iterable).__name__}") from None


def generate(fn: Callable[[int], Any], count: int | None = None, rate: float | Rate | None = None) -> Source:
    """`fn(0)`, `fn(1)`, … up to `count` (endless without), at most `rate` a second (or as `ps.rates` says).

    >>> generate(lambda i: i * i, count=3).bounded
    True
    """
    if not callable(fn):
        raise FlowError(f"generate source: give a function from an index to a value, not {fn!r}")
    if count is not None and count < 0:
        raise FlowError(f"generate source: count={count} is less than 0")
    if rate is not None and not isinstance(rate, Rate):
        if rate <= 0:
            raise FlowError(f"generate source: rate={rate} is not more than 0 a second")
        rate = constant(rate)
    return Generate(fn, count, rate)


def text(paths: Paths, limits: Limits = _DEFAULT_LIMITS, *, on_change: OnChange = "error") -> Source:
    """Each line of the files as a `str`, without its end."""
    return TextFiles(paths, limits, on_change)


def json(
    paths: Paths, schema: str | None = None, limits: Limits = _DEFAULT_LIMITS, *, on_change: OnChange = "error"
) -> Source:
    """Each line of the files as a JSON value; with a schema, objects whose fields are checked and converted."""
    return JsonFiles(paths, schema, limits, on_change)


def csv(
    paths: Paths,
    schema: str | None = None,
    *,
    header: bool | None = None,
    delimiter: str = ",",
    multiline: bool = False,
    limits: Limits = _DEFAULT_LIMITS,
    on_change: OnChange = "error",
) -> Source:
    """Each row of the files as a `dict`; without a schema all values are strings.

    A first line that holds the schema's column names is a header, unless `header` says otherwise. `multiline=True` lets
    quoted values hold line breaks.
    """
    return CsvFiles(paths, schema, limits, header, delimiter, multiline, on_change)


def parquet(paths: Paths, schema: str | None = None, *, on_change: OnChange = "error") -> Source:
    """Each row of the files as a `dict`; a schema picks columns and converts them where nothing is lost."""
    return ParquetFiles(paths, schema, on_change)


def socket(host: str, port: int, limits: Limits = _DEFAULT_LIMITS) -> Source:
    """Each line that a TCP server sends, as a `str`; the stream ends when the server closes the connection."""
    return Socket(host, port, limits)


def spark(reader: Callable[[Any], Any], order_by: str | list[str] | None = None) -> Source:
    """The rows of any streaming DataFrame, as `dict`s: `reader(session)` returns it.

    `order_by` names the columns that put the rows of a batch into a repeatable order.
    """
    return SparkStream(reader, order_by)
