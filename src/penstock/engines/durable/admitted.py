"""What was taken from sources for a batch that is not done, and which engine may go on with it."""

from __future__ import annotations

import json
from typing import Any

from penstock.engines.durable.checkpoint import ADMITTED, Root
from penstock.errors import CheckpointError


def admitted_name(batch: int) -> str:
    return f"{ADMITTED}/{batch:010d}"


def unprocessed(checkpoint: Root) -> dict[str, Any] | None:
    """What was admitted after the last batch and not processed, where it can't be read again from its source.

    Everything else is admitted anew: nothing of it was visible yet.
    """
    try:
        found: dict[str, Any] = json.loads(checkpoint.files.unseal(admitted_name(checkpoint.next_batch)).body)
    except FileNotFoundError:
        return None
    latest = checkpoint.latest
    follows = found["after"] == ("" if latest is None else latest.lineage)
    return found if found["only_here"] and follows else None


def refuse_unprocessed(checkpoint: Root) -> None:
    """`CheckpointError` where this engine can't process what another has taken from a source."""
    found = unprocessed(checkpoint)
    if found is not None:
        sources = ", ".join(map(repr, found["only_here"]))
        raise CheckpointError(
            f"checkpoint {checkpoint.root!r}: Spark has read tuples of {sources} that it did not process, and they "
            "can't be read again; run the flow on Spark once more, and then go on here"
        )
