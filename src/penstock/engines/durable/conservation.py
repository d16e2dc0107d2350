"""What sinks have taken in is what is published: the last sum before a checkpoint of the local engine."""

from __future__ import annotations

from penstock.errors import ConservationError
from penstock.runtime.end_cells import SinkCell
from penstock.runtime.running.registry import Registry
from penstock.state.manifests import Outputs


class SinkSums:
    """How much of each sink earlier checkpoints of this run have published."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def check(self, registry: Registry, outputs: Outputs) -> None:
        """`ConservationError` where another number of tuples is staged than sinks have taken since the last time."""
        for cell in registry.cells:
            if isinstance(cell, SinkCell):
                taken = cell.written - self._before.get(cell.name, 0)
                staged = sum(output.rows for output in outputs.get(cell.name, ()))
                if taken != staged:
                    raise ConservationError.of(
                        registry.flow,
                        f"sink {cell.name!r} took in {taken:,} tuples and {staged:,} are to be published",
                        "Nothing of this checkpoint was published",
                    )
                self._before[cell.name] = cell.written
