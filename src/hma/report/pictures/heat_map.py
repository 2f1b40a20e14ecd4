"""A heat map as SVG: fields of one shade are one path, so that many fields stay a small file."""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

from markupsafe import Markup

from hma.errors import printable
from hma.report.numbers import fixed
from hma.report.pictures.scene import Groups, HeatMap, Line
from hma.report.svg import tag

LEVELS = 16
"""Shades; the numbers themselves are shown beside them."""
LETTER, TALLEST = 6.2, 20.0


def heat_map(panel: HeatMap, width: float, *, asked: bool) -> tuple[list[Markup], float]:
    """Return the elements of a heat map and the height that they take.

    Args:
        panel: What it shows.
        width: Of the drawing.
        asked: Whether it holds the numbers for a page on which fields can be asked for.
    """
    rows, columns = len(panel.rows), len(panel.columns)
    left = 30 + LETTER * max((len(name) for name, _ in panel.row_groups), default=0)
    top = 20.0
    wide = (width - left) / max(columns, 1)
    turned = any(LETTER * len(name) > wide * count for name, count in panel.column_groups)
    tall = min(wide if rows < 30 else max(wide, 4.0), TALLEST + 18 * panel.written)
    right, bottom = left + wide * columns, top + tall * rows
    box = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    parts = [tag("rect", class_="frame", **box)]
    moved = f"translate({left:.2f} {top:.2f}) scale({wide:.4f} {tall:.4f})"
    shades = [tag("path", d=d, fill_opacity=f"{at:.3f}") for at, d in _shades(panel)]
    data = json.dumps(_data(panel), separators=(",", ":")) if asked else None
    parts.append(tag("g", *shades, class_="shades", transform=moved, data_fields=data))
    if panel.written:
        parts += _written(panel, left, top, wide, tall)
    parts += _sides(panel, (left, top, right, bottom), wide, tall, turned=turned)
    below = 8 + (
        LETTER * max((len(n) for n, _ in panel.column_groups), default=0) if turned else 16
    )
    if panel.column_title:
        below += 18
        x = (left + right) / 2
        parts.append(
            tag("text", panel.column_title, x=x, y=bottom + below - 4, class_="axis middle")
        )
    low, high = (fixed(value, panel.digits) for value in panel.reach)
    said = f"{panel.value_title}: {low} (pale) to {high} (strong)"
    parts.append(tag("text", said, x=left, y=13, class_="axis"))
    return parts, bottom + below + 4


def _shades(panel: HeatMap) -> Iterator[tuple[float, str]]:
    """Yield each opacity with the fields that have it; neighbours in a row are one shape."""
    low, high = panel.reach
    shapes: dict[int, list[str]] = {}
    for row, line in enumerate(panel.values):
        levels = [None if v is None else _level(v, low, high) for v in line]
        column = 0
        for level, fields in groupby(levels):
            count = len(list(fields))
            if level is not None:
                shapes.setdefault(level, []).append(f"M{column} {row}h{count}v1h-{count}")
            column += count
    for level, drawn in sorted(shapes.items()):
        yield level / LEVELS, "".join(drawn)


def _level(value: float, low: float, high: float) -> int:
    return round(LEVELS * (value - low) / ((high - low) or 1.0))


def _data(panel: HeatMap) -> dict[str, object]:
    """Return what a page's script shows of a field."""
    return {
        "rows": _lines(panel.rows),
        "columns": _lines(panel.columns),
        "title": printable(panel.value_title),
        "digits": panel.digits,
        "values": [
            [None if value is None else round(value, panel.digits) for value in line]
            for line in panel.values
        ],
    }


def _lines(lines: Sequence[Line]) -> list[list[str | None]]:
    return [
        [printable(line.words), None if line.example is None else line.example.key]
        for line in lines
    ]


def _written(panel: HeatMap, left: float, top: float, wide: float, tall: float) -> Iterator[Markup]:
    for row, column, value in panel.numbered:
        x, y = left + wide * (column + 0.5), top + tall * (row + 0.5) + 4
        look = f"tick middle {'on-dark' if panel.is_dark(value) else 'on-light'}"
        yield tag("text", fixed(value, panel.digits), x=x, y=y, class_=look)


def _sides(
    panel: HeatMap,
    box: tuple[float, float, float, float],
    wide: float,
    tall: float,
    *,
    turned: bool,
) -> Iterator[Markup]:
    left, top, right, bottom = box
    parted = any(count > 1 for _, count in (*panel.row_groups, *panel.column_groups))
    for name, middle, end in _ends(panel.row_groups):
        y = top + tall * middle + 4
        yield tag("text", name, x=left - 6, y=y, class_="tick end")
        if parted and end < len(panel.rows):
            at = top + tall * end
            yield tag("line", x1=left, x2=right, y1=at, y2=at, class_="part")
    for name, middle, end in _ends(panel.column_groups):
        x = left + wide * middle
        turn = f"rotate(-90 {x + 4:.1f} {bottom + 6:.1f})" if turned else None
        place = (x + 4, bottom + 6, "tick end") if turned else (x, bottom + 16, "tick middle")
        yield tag("text", name, x=place[0], y=place[1], transform=turn, class_=place[2])
        if parted and end < len(panel.columns):
            at = left + wide * end
            yield tag("line", x1=at, x2=at, y1=top, y2=bottom, class_="part")
    if panel.row_title:
        y = (top + bottom) / 2
        turn = f"rotate(-90 11 {y:.1f})"
        yield tag("text", panel.row_title, x=11, y=y, transform=turn, class_="axis middle")


def _ends(groups: Groups) -> Iterator[tuple[str, float, int]]:
    """Yield each name with the middle and the end of its lines."""
    for (name, count), end in zip(groups, accumulate(count for _, count in groups), strict=True):
        yield name, end - count / 2, end
