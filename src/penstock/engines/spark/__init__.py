"""The Spark engine: micro-batches on Structured Streaming, in order, exactly once."""

from penstock.engines.spark.engine import Spark

__all__ = ["Spark"]
