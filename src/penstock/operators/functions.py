"""What a stateless function operator does: its form, and the outputs of one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from penstock.schema import Schema, rows_of_table

PortOutputs = tuple[Sequence[Any], ...]
"""One sequence per output port."""


class Form(Enum):
    """How the result of a function becomes output."""

    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    INSPECT = "inspect"
    BRANCH = "branch"
    BATCH = "map_batch"
    ARROW = "map_arrow"
    ASYNC = "map_async"


def outputs_of(form: Form, fn: Callable[[Any], Any], value: Any, result: Any) -> PortOutputs:
    """The outputs of a form for one value, given what the function returned for it.

    >>> outputs_of(Form.FLAT_MAP, str.split, "a b", ["a", "b"])
    (['a', 'b'],)
    >>> outputs_of(Form.BRANCH, bool, 0, False)
    ((), (0,))
    """
    match form:
        case Form.MAP | Form.ASYNC:
            return ((result,),)
        case Form.FILTER:
            return ((value,) if result else (),)
        case Form.FLAT_MAP | Form.BATCH:
            return (listed(form, fn, result),)
        case Form.INSPECT:
            return ((value,),)
        case Form.BRANCH:
            return ((value,), ()) if result else ((), (value,))
        case Form.ARROW:
            return (rows_of_batch(result),)


def listed(form: Form, fn: Callable[..., Any], result: Any) -> list[Any]:
    """What a function that returns many values returned, as a list."""
    if isinstance(result, Iterable):
        return list(result)
    name = getattr(fn, "__name__", type(fn).__name__)
    raise TypeError(
        f"the function of a {form.value} returns an iterable of outputs; {name} returned {type(result).__name__}"
    )


def batch_of_rows(rows: Sequence[dict[str, Any]], schema: Schema | None) -> pa.RecordBatch:
    """Rows as the record batch that `map_arrow` hands to its function."""
    if schema is None:
        names = dict.fromkeys(name for row in rows for name in row)  # not only those of the first row
        return pa.RecordBatch.from_pydict({name: [row.get(name) for row in rows] for name in names})
    return schema.table(rows).combine_chunks().to_batches()[0]


def rows_of_batch(batch: Any, schema: Schema | None = None) -> list[dict[str, Any]]:
    """The rows of what a `map_arrow` function returned, cast to its declared schema."""
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if not isinstance(batch, pa.Table):
        raise TypeError(f"a map_arrow function returns a pyarrow RecordBatch, not {type(batch).__name__}")
    if schema is not None:
        missing = [name for name in schema.names if name not in batch.column_names]
        if missing:
            raise ValueError(f"the batch has no column {missing[0]!r}; map_arrow's schema= says that it has")
        batch = batch.select(list(schema.names)).cast(schema.arrow)
    return rows_of_table(batch)
