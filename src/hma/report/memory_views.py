"""How the memories are laid out: bars, shares, examples and maps, ready for the template."""

import math

import numpy as np

from hma.metrics import METRICS
from hma.questions.audit import Audit, change_text, score_text
from hma.report.charts import map_chart, shape_key
from hma.report.numbers import percent
from hma.report.run_report import KINDS, POINT_KINDS, Attention, Queue, RunReport, Slots
from hma.report.svg import class_colour

BARRED = 24
"""Classes shown as bars; the rest is summed up in a sentence."""
BINS = 24
USES = 120
"""Bars in the drawing of the use of slots."""
CALLED = {"test": "test rows", "queue": "rows in the queue", "slot": "slots"}


def audit_rows(audit: Audit) -> list[dict[str, object]]:
    """Return the score as it is and after each change, a cell for each metric."""
    metrics = [METRICS[name] for name in audit.scores]
    as_it_is = [(score_text(m, audit.scores[m.name]), "") for m in metrics]
    rows: list[dict[str, object]] = [{"label": "as it is", "cells": as_it_is}]
    for done, changes in audit.changes.items():
        cells = [(score_text(m, changes[m.name].score), change_text(m, changes[m.name]))
                 for m in metrics]  # fmt: skip
        rows.append({"label": done, "cells": cells})
    return rows


def queue_bars(queue: Queue, classes: tuple[str, ...]) -> list[dict[str, object]]:
    """Return the rows of each class in the queue as bars."""
    most = max(int(queue.per_class.max()), 1)
    return [
        {
            "label": classes[c],
            "text": str(int(queue.per_class[c])),
            "width": f"{100 * queue.per_class[c] / most:.1f}",
        }
        for c in range(min(len(classes), BARRED))
    ]


def staleness(queue: Queue) -> dict[str, object] | None:
    """Return mean, range and histogram of the staleness; None where it is unknown."""
    if queue.staleness is None or len(queue.staleness) == 0:
        return None
    values = queue.staleness
    high = float(values.max()) or 1.0
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, high))
    low, most = np.quantile(values, [0.05, 0.95])
    return {
        "mean": f"{values.mean():.2f}",
        "range": f"{low:.2f} to {most:.2f}",
        "rows": len(values),
        "end": f"{high:.2f}",
        "bars": [f"{100 * count / counts.max():.0f}" for count in counts],
    }


def slot_bars(slots: Slots, classes: tuple[str, ...]) -> list[dict[str, object]]:
    """Return distinct and used slots of each class, and the attention it draws, as bars."""
    whole = max(slots.per_class, 1)
    drawn = None
    if slots.usage is not None:
        drawn = np.bincount(slots.classes, slots.usage, minlength=len(classes))
    rows: list[dict[str, object]] = []
    for c in range(min(len(classes), BARRED)):
        distinct = int(slots.distinct[c])
        used = None if slots.used is None else int(slots.used[c])
        rows.append(
            {
                "label": classes[c],
                "distinct": distinct,
                "distinct_width": f"{100 * distinct / whole:.1f}",
                "used": used,
                "used_width": "0" if used is None else f"{100 * used / whole:.1f}",
                "drawn": None if drawn is None else percent(float(drawn[c])),
                "drawn_width": "0" if drawn is None else f"{100 * drawn[c] / drawn.max():.1f}",
            }
        )
    return rows


def slot_use(slots: Slots) -> list[str] | None:
    """Return the attention each slot draws, largest first, in percent of the largest."""
    if slots.usage is None:
        return None
    ordered = np.sort(slots.usage)[::-1]
    shown = ordered[np.unique(np.linspace(0, len(ordered) - 1, USES).astype(int))]
    return [f"{100 * value / ordered[0]:.1f}" for value in shown]


def even_use(slots: Slots) -> str:
    """Return what an even look would give each slot, in percent of the largest."""
    return "0" if slots.usage is None else f"{100 / len(slots.usage) / slots.usage.max():.1f}"


def shares(attention: Attention) -> list[dict[str, str]]:
    """Return the mean share of each kind of source that has one."""
    return _stack(attention.overall.tolist())


def shares_by_class(attention: Attention, classes: tuple[str, ...]) -> list[dict[str, object]]:
    """Return the shares over the rows answered as each class; classes never answered have none."""
    answered = [c for c in range(len(classes)) if not math.isnan(attention.by_class[c, 0])]
    return [
        {"label": classes[c], "parts": _stack(attention.by_class[c].tolist())}
        for c in answered[:BARRED]
    ]


def _stack(values: list[float]) -> list[dict[str, str]]:
    return [
        {"kind": kind, "width": f"{100 * value:.2f}", "text": _about(value)}
        for kind, value in zip(KINDS, values, strict=True)
        if value > 0
    ]


def _about(share: float) -> str:
    return "under 0.1%" if 0 < share < 0.0005 else percent(share)


def share_rows(report: RunReport) -> list[tuple[str, list[str]]]:
    """Return for each kind of source its share in each context, kinds without any left out."""
    return [
        (kind, [_about(float(one.overall[place])) for one in report.attention])
        for place, kind in enumerate(KINDS)
        if any(one.overall[place] > 0 for one in report.attention)
    ]


def same_class(attention: Attention, group: str = "class") -> list[str]:
    """Say how much of the attention goes to the group of the answer, against an even look."""
    found = []
    for kind, (same, even) in attention.same_class.items():
        judged = "about as much as"
        if same > 1.1 * even:
            judged = "more than"
        elif same < even / 1.1:
            judged = "less than"
        found.append(
            f"Of its attention on the {kind}, an answer gives {percent(same)} to its own {group}, "
            f"{judged} an even look would ({percent(even)})."
        )
    return found


def map_views(report: RunReport) -> list[dict[str, object]]:
    """Return the maps and the kinds of points on each."""
    return [
        {
            "title": found.title,
            "svg": map_chart(found, report.groups),
            "kinds": [
                {"name": CALLED[kind], "svg": shape_key(kind)}
                for i, kind in enumerate(POINT_KINDS)
                if i in found.kinds
            ],
        }
        for found in report.maps
    ]


def class_key(classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the name and colour of each class, as far as colours can be told apart."""
    count = len(classes)
    return [(name, class_colour(i, count)) for i, name in enumerate(classes[:BARRED])]
