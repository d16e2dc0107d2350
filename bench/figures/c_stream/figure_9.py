"""Figure 9: adaptation with one busy operator."""

from __future__ import annotations

from figures.c_stream.adapting import adaptation_figure

FIGURE = adaptation_figure("figure-9", "adaptation, one busy operator", 1, (20, 50, 80, 120), 80, (5, 7))
