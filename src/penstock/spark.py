"""`ps.spark`: flows inside Spark programs of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.flow import Flow

if TYPE_CHECKING:
    from penstock.engines.spark.embed import Step

__all__ = ["step"]


def step(flow: Flow, *, order_by: str | list[str] | None = None, **options: Any) -> Step:
    """A function for your own `foreachBatch`: the rows of each batch, as dicts, are the tuples of the only source.

    `checkpoint=` is a directory of the step's own; the other options are those of `ps.engines.Spark`. The source of the
    flow only says its name: `flow.read(ps.sources.items([]))` will do. Rows come in the order of the DataFrame, which
    Spark does not promise to repeat: give `order_by=` columns where that matters.
    """
    from penstock.engines.spark import Spark
    from penstock.engines.spark.embed import Step

    return Step(flow.validate(), Spark(**options), order_by)
