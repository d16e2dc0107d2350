"""The first tasks of a batch: the only ones that read sources."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from penstock.clock import SystemClock
from penstock.connectors.reached import check
from penstock.connectors.source import Chunk, Source, Split, Unreadable
from penstock.engines.spark import wire
from penstock.engines.spark.conservation import check_end
from penstock.engines.spark.group_runs import About, PartRun
from penstock.engines.spark.stages import Descriptor
from penstock.flow.nodes import PortRef
from penstock.schema import rows_of_table
from penstock.state.files import Blob


class ReadingRun(PartRun):
    """Reads parts of a source."""

    def __init__(self, about: About, descriptors: list[Descriptor]) -> None:
        super().__init__(about)
        self._descriptors = descriptors
        self._passed_on: Counter[str] = Counter()
        """How many tuples of a source went elsewhere, unseen."""

    def rows(self) -> Iterator[wire.ShuffleRow]:
        for descriptor in self._descriptors:
            self.parts_read[descriptor.operator] += 1
            if self.group.straight[descriptor.operator]:
                yield from self._in_columns(descriptor)
            else:
                yield from self._in_rows(descriptor)

    def _in_columns(self, descriptor: Descriptor) -> Iterator[wire.ShuffleRow]:
        source = descriptor.operator
        is_read = PortRef(source) in self.group.graph.readers
        for number, table in enumerate(self._tables(descriptor)):
            sort_key = wire.sort_key_of(descriptor.number, number)
            if isinstance(table, list):
                self.feed(source, sort_key, table, all_readable=False)
                yield from self.out(sort_key)
                continue
            for exit in self.group.straight[source]:
                yield from self.sent(exit, wire.Slice(sort_key, table))
            if is_read:
                yield from self.fed(source, sort_key, rows_of_table(table))
            else:
                self._passed_on[source] += len(table)

    def _in_rows(self, descriptor: Descriptor) -> Iterator[wire.ShuffleRow]:
        """A slice is fed as it is read, piece by piece, while its values are in the processor's cache."""
        number, room = 0, wire.ROWS_PER_SLICE
        for chunk in self._chunks(descriptor):
            values = chunk.values
            while len(values):
                piece, values = values[:room], values[room:]
                sort_key = wire.sort_key_of(descriptor.number, number)
                self.feed(descriptor.operator, sort_key, piece, chunk.all_readable)
                room -= len(piece)
                if not room:
                    yield from self.out(sort_key)
                    number, room = number + 1, wire.ROWS_PER_SLICE
        if room < wire.ROWS_PER_SLICE:
            yield from self.out(wire.sort_key_of(descriptor.number, number))

    def _tables(self, descriptor: Descriptor) -> Iterator[pa.Table | list[Unreadable]]:
        source, split = self._source(descriptor)
        return wire.in_slices(self._counted_tables(descriptor.operator, source.tables(split)))

    def _counted_tables(
        self, operator: str, tables: Iterator[pa.Table | list[Unreadable]]
    ) -> Iterator[pa.Table | list[Unreadable]]:
        for table in tables:
            self.read[operator] += len(table)
            yield table

    def _chunks(self, descriptor: Descriptor) -> Iterator[Chunk]:
        if descriptor.spool is not None:
            spooled = self.files.fetch(Blob(*descriptor.spool), f"what source {descriptor.operator!r} has read")
            values = pickle.loads(spooled)
            self.read[descriptor.operator] += len(values)
            yield Chunk(values, descriptor.end or 0)
            return
        source, split = self._source(descriptor)
        reached = None
        for chunk in source.read(split, SystemClock()):
            self.read[descriptor.operator] += len(chunk.values)
            reached = chunk.end
            yield chunk
        check_end(self.level.flow, self.batch.number, descriptor, reached)

    def _source(self, descriptor: Descriptor) -> tuple[Source, Split]:
        source, split = self.group.sources[descriptor.operator], descriptor.split
        check(source, split)
        return source, split

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        counts = super().counts()
        for source, rows in self._passed_on.items():
            received, emitted, failed, late = counts[source]
            counts[source] = (received + rows, emitted + rows, failed, late)
        return counts
