"""The figures of "IBM Streams 4.2"."""

from figures.figure import Paper
from figures.ibm import figure_8, figure_9, figure_10

PAPER = Paper("ibm", "IBM Streams 4.2", [figure_8.FIGURE, figure_9.FIGURE, figure_10.FIGURE])
