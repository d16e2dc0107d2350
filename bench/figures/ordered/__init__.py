"""The figures of "Scaling Ordered Stream Processing"."""

from figures.figure import Paper
from figures.ordered import figure_8, figure_9, figure_10, figure_11, figure_12, figure_13, figure_14

PAPER = Paper(
    "ordered",
    "Scaling Ordered Stream Processing",
    [one.FIGURE for one in (figure_8, figure_9, figure_10, figure_11, figure_12, figure_13, figure_14)],
)
