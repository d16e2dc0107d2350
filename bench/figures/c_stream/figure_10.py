"""Figure 10: adaptation with two busy operators."""

from __future__ import annotations

from figures.c_stream.adapting import adaptation_figure

FIGURE = adaptation_figure("figure-10", "adaptation, two busy operators", 2, (20, 40, 60, 80), 60, (4, 10))
