"""The figures of "PRESPS"."""

from figures.figure import Paper
from figures.presps import figure_3, figure_4, table_3, table_4

PAPER = Paper("presps", "PRESPS", [table_3.FIGURE, figure_3.FIGURE, figure_4.FIGURE, table_4.FIGURE])
