"""Where predictions look: shares of attention by kind of source."""

import math
from typing import Any

from markupsafe import Markup

from hma.report.html import fill
from hma.report.numbers import percent
from hma.report.run_facts import Attention
from hma.report.run_report import RunReport, Section
from hma.report.sections.memory import BARRED

KINDS = ("itself", "queue", "batch", "anchors", "slots")  # what is attended to, as it is shown


def shares_by_class(attention: Attention, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the shares over the rows answered as each class; classes never answered have none."""
    answered = [c for c in range(len(classes)) if not math.isnan(attention.by_class[c, 0])]
    return [
        {"label": classes[c], "parts": stack(attention.by_class[c].tolist())}
        for c in answered[:BARRED]
    ]


def stack(values: list[float]) -> list[dict[str, str]]:
    """Return the share of each kind of source that has one."""
    return [
        {"kind": kind, "width": f"{100 * value:.2f}", "text": _about(value)}
        for kind, value in zip(KINDS, values, strict=True)
        if value > 0
    ]


def _about(share: float) -> str:
    return "under 0.1%" if 0 < share < 0.0005 else percent(share)


def share_rows(held: tuple[Attention, ...]) -> list[tuple[str, list[str]]]:
    """Return for each kind of source its share in each context, kinds without any left out."""
    return [
        (kind, [_about(float(one.overall[place])) for one in held])
        for place, kind in enumerate(KINDS)
        if any(one.overall[place] > 0 for one in held)
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


def draw(report: RunReport, found: tuple[Attention, ...]) -> Markup:
    """Draw the shares in each context, and those by answer in the model's own."""
    return fill(
        "attention",
        report=report,
        attention=found,
        stack=stack,
        share_rows=share_rows(found),
        answers=shares_by_class(found[0], report.groups),
        sentences=same_class(found[0], report.group),
    )


SECTION = Section(
    "attention",
    "Attention",
    "Where predictions look",
    lambda facts: tuple(found.attention for found in facts.traces),
    draw,
)
