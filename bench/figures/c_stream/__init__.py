"""The figures of "C-Stream"."""

from figures.c_stream import (
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    figure_8,
    figure_9,
    figure_10,
    figure_11,
    figure_12,
    figure_13,
)
from figures.figure import Paper

_MODULES = (
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    figure_8,
    figure_9,
    figure_10,
    figure_11,
    figure_12,
    figure_13,
)
PAPER = Paper("c-stream", "C-Stream", [module.FIGURE for module in _MODULES])
