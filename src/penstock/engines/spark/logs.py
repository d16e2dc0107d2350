"""Spark's own logs, beside ours in a checkpoint: nothing in them is ever read again."""

from __future__ import annotations

import uuid

from penstock.engines.durable.checkpoint import Checkpoint

_FOLDER = "spark"


def fresh_log(checkpoint: Checkpoint) -> str:
    """Where Spark keeps them in this run, in Hadoop's words; those of earlier runs go."""
    checkpoint.files.delete_folder(_FOLDER)
    root = checkpoint.root.rstrip("/")
    hadoop = f"s3a://{root.removeprefix('s3://')}" if root.startswith("s3://") else root
    return f"{hadoop}/{_FOLDER}/{uuid.uuid4().hex}"
