"""The figures of "Leron"."""

from figures.figure import Paper

PAPER = Paper("leron", "Leron", [])
