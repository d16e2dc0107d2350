"""The figures of "PRESPS"."""

from figures.figure import Paper

PAPER = Paper("presps", "PRESPS", [])
