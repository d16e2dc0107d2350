"""Spark's own logs, beside ours in a checkpoint."""

from __future__ import annotations

from penstock.engines.durable.checkpoint import Checkpoint


def spark_root(checkpoint: Checkpoint) -> str:
    """Where Spark keeps them, in Hadoop's words."""
    root = checkpoint.root.rstrip("/")
    return f"s3a://{root.removeprefix('s3://')}/spark" if root.startswith("s3://") else f"{root}/spark"


def last_committed(checkpoint: Checkpoint) -> int:
    """The last batch that Spark knows to be done: its output is out."""
    names = [name.rpartition("/")[2] for name in checkpoint.files.names("spark/commits")]
    return max((int(name) for name in names if name.isdigit()), default=-1)
