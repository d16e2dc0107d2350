"""Panels into pictures: the only code here that knows matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from figures.figure import Found, Panel

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

_COLUMNS = 3
_WIDTH_INCHES, _HEIGHT_INCHES = 4.6, 3.2
_MARKERS = "os^Dv*PX<>hp"


def draw(found: Found, title: str, path: Path) -> None:
    """All panels of a figure in one picture."""
    columns = min(_COLUMNS, len(found.panels))
    rows = -(-len(found.panels) // columns)
    size = (_WIDTH_INCHES * columns, _HEIGHT_INCHES * rows)
    picture, places = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for place in places.flat[len(found.panels) :]:
        place.set_axis_off()
    for panel, place in zip(found.panels, places.flat):
        _panel(panel, place)
    picture.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date and with a fixed palette the same results give the same bytes.
    picture.savefig(path, dpi=80, metadata={"Software": None})
    pyplot.close(picture)


def _panel(panel: Panel, place: Axes) -> None:
    if panel.style == "bar":
        _bars(panel, place)
    else:
        drawn = place.step if panel.style == "step" else place.plot
        for number, (name, points) in enumerate(panel.lines.items()):
            marker = _MARKERS[number % len(_MARKERS)] if len(points) <= 40 else None
            how = {"where": "post"} if panel.style == "step" else {"marker": marker, "markersize": 4}
            drawn(*zip(*points, strict=True), label=name, linewidth=1.3, **how)
    place.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    place.title.set_fontsize(9)
    if panel.log_x:
        place.set_xscale("log")
    if panel.log_y:
        place.set_yscale("log")
    else:
        place.set_ylim(bottom=0)
    if len(panel.lines) > 1:
        place.legend(fontsize=7)
    place.grid(alpha=0.3)


def _bars(panel: Panel, place: Axes) -> None:
    width = 0.8 / len(panel.lines)
    for number, (name, points) in enumerate(panel.lines.items()):
        shift = (number - (len(panel.lines) - 1) / 2) * width
        place.bar([x + shift for x, _ in points], [y for _, y in points], width, label=name)
    place.set_xticks(sorted({x for points in panel.lines.values() for x, _ in points}))
