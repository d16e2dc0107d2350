"""The figures of "C-Stream"."""

from figures.figure import Paper

PAPER = Paper("c-stream", "C-Stream", [])
