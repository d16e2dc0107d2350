"""What Spark reads: the numbers of admitted batches as offsets, and the parts of sources as rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.engines.spark.admission import Admitted, admitted_name
from penstock.engines.spark.stages import Descriptor
from penstock.state.files import Files

NAME = "penstock"
_SCHEMA = pa.schema([("payload", pa.binary())])


class AdmittedBatches(DataSource):  # type: ignore[misc]
    """The stream of admitted batches of one checkpoint."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "payload binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return _Reader(str(self.options["root"]))


@dataclass
class _Parts(InputPartition):  # type: ignore[misc]
    parts: tuple[Descriptor, ...]


class _Reader(DataSourceStreamReader):  # type: ignore[misc]
    """One admitted batch at a time, so that Spark's batch ids are the numbers of admitted batches."""

    def __init__(self, root: str) -> None:
        self._files = Files(root)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"admitted": -1}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        following = start["admitted"] + 1
        try:
            self._files.read(admitted_name(following))
        except FileNotFoundError:
            return start
        return {"admitted": following}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        found = [
            _Parts(task)
            for number in range(start["admitted"] + 1, end["admitted"] + 1)
            for task in Admitted.from_json(self._files.read(admitted_name(number))).tasks
        ]
        return found or [_Parts(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Parts)
        payloads = [pickle.dumps(part) for part in partition.parts]
        yield pa.record_batch([pa.array(payloads, pa.binary())], _SCHEMA)
