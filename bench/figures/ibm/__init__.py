"""The figures of "IBM Streams 4.2"."""

from figures.figure import Paper

PAPER = Paper("ibm", "IBM Streams 4.2", [])
