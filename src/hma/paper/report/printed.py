"""Pictures for print, by matplotlib: fixed fonts and sizes, the same file for the same numbers."""

import math
import textwrap
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from hma.errors import printable
from hma.extras import needed
from hma.paper.report.scene import Scene
from hma.report.charts import HeatMap, Panel, Series
from hma.report.numbers import fixed
from hma.report.svg import DASHES, MARKERS, Look

PrintFormat = Literal["png", "pdf", "svg"]
WIDTH, PANEL_HEIGHT, LEGEND_HEIGHT = 7.2, 3.1, 0.8
"""Inches: two columns of a paper, and what a row of panels and a title with its legend take."""
SAID, LETTERS = 7.5, 112
"""Size of the text below a picture, and letters of its lines."""
MANY = 40
"""Rows of a heat map that need a taller panel."""
INK = "#1a2130"
SHADES = ("#ffffff", "#cfe0ef", "#7fb2d6", "#2f7db5", "#0b3c66")
"""From small to large: each darker than the one before, so that grey paper shows the same."""
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "hma",
    "savefig.dpi": 200,
}
NOTHING_ABOUT: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def print_pictures(scenes: Sequence[Scene], target: Path, kind: PrintFormat) -> None:
    """Draw scenes under each other into one file.

    Args:
        scenes: What to draw.
        target: Written anew.
        kind: Of the file.
    """
    matplotlib = needed("matplotlib", "pictures for print", extra="tables")
    figures = needed("matplotlib.figure", "pictures for print", extra="tables")
    heights = [LEGEND_HEIGHT + _panel_height(scene) * _lines(scene) for scene in scenes]
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(scenes), 1, height_ratios=heights, squeeze=False)
        for part, scene in zip(parts[:, 0], scenes, strict=True):
            _draw(part, scene)
        figure.savefig(target, format=kind, metadata=NOTHING_ABOUT[kind])


def _panel_height(scene: Scene) -> float:
    many = any(isinstance(one, HeatMap) and len(one.rows) > MANY for one in scene.panels)
    return (1.6 if many else 1.0) * PANEL_HEIGHT


def _lines(scene: Scene) -> int:
    return -(-len(scene.panels) // scene.columns)


def _text(text: str) -> str:
    """Return a text that matplotlib takes as it is, formulas between dollars included."""
    return printable(text).replace("$", r"\$")


def _draw(part: Any, scene: Scene) -> None:
    said = "\n".join(
        part for line in scene.finding.splitlines() for part in textwrap.wrap(_text(line), LETTERS)
    )
    part.suptitle(_text(scene.title), fontsize=9.5, fontweight="bold")
    columns = min(scene.columns, len(scene.panels))
    axes = part.subplots(_lines(scene), columns, squeeze=False).flatten().tolist()
    for place, axis in enumerate(axes):
        if place >= len(scene.panels):
            axis.set_axis_off()
        else:
            _panel(part, axis, scene.panels[place])
    legend = scene.legend
    if legend:
        handles = [_legend_handle(series) for series in legend.values()]
        columns = max(1, min(5, LETTERS // (8 + max(map(len, legend)))))
        look = {"loc": "outside lower center", "frameon": False, "alignment": "left"}
        part.legend(handles=handles, ncols=columns, title=said, title_fontsize=SAID, **look)
    else:
        part.supxlabel(said, fontsize=SAID, x=0.02, ha="left")


def _panel(part: Any, axis: Any, panel: Panel) -> None:
    axis.set_title(_text(panel.title))
    if isinstance(panel, HeatMap):
        _heat_map(part, axis, panel)
        return
    for series in panel.series:
        _series(axis, series)
    axis.set_xlabel(_text(panel.x_title))
    axis.set_ylabel(_text(panel.y_title))
    for ticks, place in ((panel.x_ticks, axis.xaxis), (panel.y_ticks, axis.yaxis)):
        if ticks is not None:
            place.set_ticks([at for at, _ in ticks], labels=[_text(text) for _, text in ticks])
    if panel.is_bare:
        axis.set_aspect("equal", adjustable="datalim")
        axis.spines[["top", "right"]].set_visible(True)


def _line_style(look: Look) -> Any:
    dashes = DASHES[look.dashes]
    return "-" if dashes is None else (0, tuple(float(one) / 2 for one in dashes.split()))


def _series(axis: Any, series: Series) -> None:
    look, points = series.look, series.points
    x, y = [point.x for point in points], [point.y for point in points]
    if series.joined:
        axis.plot(x, y, color=look.colour or INK, linestyle=_line_style(look), linewidth=1.2)
        low = [point.y if point.low is None else point.low for point in points]
        high = [point.y if point.high is None else point.high for point in points]
        axis.fill_between(x, low, high, color=look.colour or INK, alpha=0.09, linewidth=0)
    axis.scatter(
        x,
        y,
        s=16.0,
        marker=MARKERS[look.shape],
        facecolors="none" if look.hollow else look.colour or INK,
        edgecolors=(look.colour or INK) if look.hollow else "#ffffff",
        linewidths=0.8 if look.hollow else 0.3,
    )


def _legend_handle(series: Series) -> Any:
    lines = needed("matplotlib.lines", "pictures for print", extra="tables")
    look = series.look
    return lines.Line2D(
        [],
        [],
        color=look.colour or INK,
        linestyle=_line_style(look) if series.joined else "none",
        marker=MARKERS[look.shape],
        markersize=4.5,
        markerfacecolor="none" if look.hollow else look.colour or INK,
        label=_text(series.name),
    )


def _heat_map(part: Any, axis: Any, panel: HeatMap) -> None:
    colours = needed("matplotlib.colors", "pictures for print", extra="tables")
    values = [[math.nan if value is None else value for value in line] for line in panel.values]
    shades = colours.LinearSegmentedColormap.from_list("hma", SHADES)
    low, high = panel.reach
    shown = axis.imshow(values, cmap=shades, vmin=low, vmax=high, aspect="auto")
    bar = part.colorbar(shown, ax=axis, shrink=0.8, pad=0.02)
    bar.outline.set_linewidth(0.4)
    bar.set_label(_text(panel.value_title))
    sides = (
        (panel.row_groups, axis.yaxis, axis.axhline),
        (panel.column_groups, axis.xaxis, axis.axvline),
    )
    for groups, side, part_by in sides:
        ends = list(accumulate(count for _, count in groups))
        middles = [end - count / 2 - 0.5 for end, (_, count) in zip(ends, groups, strict=True)]
        side.set_ticks(middles, labels=[_text(name) for name, _ in groups])
        side.set_tick_params(length=0)
        if any(count > 1 for _, count in groups):
            for end in ends[:-1]:
                part_by(end - 0.5, color=INK, linewidth=0.4)
    if sum(len(name) for name, _ in panel.column_groups) > 40:
        axis.tick_params(axis="x", labelrotation=90)
    axis.set_ylabel(_text(panel.row_title))
    axis.set_xlabel(_text(panel.column_title))
    for row, column, value in panel.numbered if panel.written else ():
        colour = "#ffffff" if panel.is_dark(value) else INK
        text = fixed(value, panel.digits)
        axis.text(column, row, text, ha="center", va="center", color=colour)
