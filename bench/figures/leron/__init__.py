"""The figures of "Leron"."""

from figures.figure import Paper
from figures.leron import figure_5, figure_6, table_1

PAPER = Paper("leron", "Leron", [table_1.FIGURE, figure_5.FIGURE, figure_6.FIGURE])
