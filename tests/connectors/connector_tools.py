"""Short ways to read sources, to write sinks, and to break off and resume."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.clock import FakeClock
from penstock.connectors.reached import Reached, resume
from penstock.connectors.source import Offset


def read(source: ps.sources.Source, **options: Any) -> list[Any]:
    """What a flow reads from the source."""
    flow, values = ps.Flow("test"), ps.sinks.collect()
    flow.read(source, **options).write(values)
    flow.run("sequential")
    return values.items


def read_and_letters(source: ps.sources.Source) -> tuple[list[Any], list[ps.DeadLetter]]:
    """What a flow can read, and the letters about what it can't."""
    flow, values, letters = ps.Flow("test"), ps.sinks.collect(), ps.sinks.collect()
    flow.read(source, name="in", on_error="dead-letter").write(values)
    flow.dead_letters("in").write(letters)
    flow.run("sequential")
    return values.items, letters.items


def write(sink: ps.sinks.Sink, values: Iterable[Any], **options: Any) -> ps.Report:
    flow = ps.Flow("test")
    flow.read(ps.sources.items(values)).write(sink, **options)
    return flow.run("sequential")


def write_and_letters(sink: ps.sinks.Sink, values: Iterable[Any]) -> list[ps.DeadLetter]:
    flow, letters = ps.Flow("test"), ps.sinks.collect()
    flow.read(ps.sources.items(values)).write(sink, name="out", on_error="dead-letter")
    flow.dead_letters("out").write(letters)
    flow.run("sequential")
    return letters.items


def sink(kind: str, path: Any, schema: str | None = None, **options: Any) -> ps.sinks.Sink:
    make = getattr(ps.sinks, kind)
    return make(path, **options) if schema is None else make(path, schema, **options)


def source(kind: str, path: Any, schema: str | None = None, **options: Any) -> ps.sources.Source:
    make = getattr(ps.sources, kind)
    return make(path, **options) if schema is None else make(path, schema, **options)


def there_and_back(kind: str, path: Any, rows: Iterable[Any], schema: str | None = None) -> list[Any]:
    """What a source of this kind reads from what a sink of this kind wrote."""
    write(sink(kind, path, schema), rows)
    return read(source(kind, path, schema))


def chunks(source: ps.sources.Source, offset: Offset | None = None) -> Iterator[tuple[str, ps.sources.Chunk]]:
    """Each chunk with its partition, from an offset on."""
    for split in resume(source, Reached(offset or {})):
        for chunk in source.read(split, FakeClock()):
            yield split.partition, chunk


def resumptions(source: ps.sources.Source) -> list[tuple[list[Any], list[Any]]]:
    """For every point at which reading may break off: what comes after it, and what should."""
    points: list[tuple[dict[str, int], int]] = []
    reached: dict[str, int] = {}
    values: list[Any] = []
    for partition, chunk in chunks(source):
        values += map(_comparable, chunk.values)
        reached = {**reached, partition: chunk.end}
        points.append((reached, len(values)))
    return [
        ([_comparable(value) for _, chunk in chunks(source, offset) for value in chunk.values], values[count:])
        for offset, count in points
    ]


def _comparable(value: Any) -> Any:
    return (value.raw, str(value.error)) if isinstance(value, ps.sources.Unreadable) else value


def compressed(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    if suffix == ".bz2":
        return bz2.compress(data)
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, {".zst": "zstd", ".lz4": "lz4"}[suffix]) as stream:
        stream.write(data)
    return buffer.getvalue().to_pybytes()


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("."))


def write_all(writer, values):
    """Write everything that can be written; the places of what can't."""
    rejected, start = [], 0
    while found := writer.write(values[start:]):
        rejected.append(start + found.position)
        start = rejected[-1] + 1
    return rejected
