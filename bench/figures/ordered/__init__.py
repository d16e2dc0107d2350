"""The figures of "Scaling Ordered Stream Processing"."""

from figures.figure import Paper

PAPER = Paper("ordered", "Scaling Ordered Stream Processing", [])
