"""How training went: loss and validation metric of each epoch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from hma.metrics import METRICS
from hma.report.charts import Plot, Point, Series, legend_chart, panel_chart
from hma.report.html import fill
from hma.report.numbers import in_percent, short
from hma.report.run_facts import RunFacts, Values
from hma.report.run_report import RunReport, Section, colour_of
from hma.report.svg import DASHES, Look, spread, ticks


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How the training of one method went.

    Args:
        method: ``PLAIN`` or ``MEMORY``.
        epochs: Numbers of the epochs.
        train_loss: Mean training loss of each epoch; NaN where there is none.
        validation: Validation metric of each epoch, for each inference context.
        selected: Epoch whose weights were kept.
        rule: Why that one.
    """

    method: str
    epochs: tuple[int, ...]
    train_loss: tuple[float, ...]
    validation: Mapping[str, tuple[float, ...]]
    selected: int | None
    rule: str


def gather(facts: RunFacts) -> tuple[Curve, ...]:
    """Return the curve of each network."""
    return tuple(curve(name, record, facts.metric) for name, record in facts.networks.items())


def curve(method: str, record: Values, metric: str) -> Curve:
    """Return how training went; what the record lacks is NaN, not left out.

    Example:
        >>> epochs = [{"epoch": 0, "train_loss": 1.5, "validation": {"alone": {"accuracy": 0.5}}}]
        >>> curve("memory", {"epochs": epochs, "selected_epoch": 0}, "accuracy").validation
        {'alone': (0.5,)}
    """
    epochs = list(record.get("epochs") or [])
    scores = [epoch.get("validation") or {} for epoch in epochs]
    contexts = dict.fromkeys(context for each in scores for context in each)
    return Curve(
        method=method,
        epochs=tuple(int(epoch.get("epoch", i)) for i, epoch in enumerate(epochs)),
        train_loss=tuple(_number(epoch.get("train_loss")) for epoch in epochs),
        validation={
            c: tuple(_number((each.get(c) or {}).get(metric)) for each in scores) for c in contexts
        },
        selected=record.get("selected_epoch"),
        rule=str(record.get("selection_rule") or ""),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def draw(report: RunReport, curves: tuple[Curve, ...]) -> Markup:
    """Draw the two charts of the learning curves, each with its legend."""
    metric = METRICS[report.metric]
    losses = [_series(curve, curve.method, 0, curve.train_loss, short) for curve in curves]
    scores = [
        _series(
            curve,
            f"{curve.method}, {context}" if len(curve.validation) > 1 else curve.method,
            place,
            values,
            in_percent if metric.share else short,
        )
        for curve in curves
        for place, (context, values) in enumerate(curve.validation.items())
    ]
    charts = [
        _chart("Training loss", losses, short),
        _chart(f"Validation {metric.title}", scores, in_percent if metric.share else short),
    ]
    return fill("curves", curves=curves, charts=[one for one in charts if one is not None])


def _series(
    curve: Curve, name: str, place: int, values: tuple[float, ...], write: Callable[[float], str]
) -> Series:
    return Series(
        name=name,
        look=Look(colour_of(curve.method), min(place, len(DASHES) - 1)),
        points=tuple(
            Point(epoch, value, (f"{name}: {write(value)} at epoch {epoch}",))
            for epoch, value in zip(curve.epochs, values, strict=True)
        ),
        joined=True,
        ring=math.inf if curve.selected is None else curve.selected,
    )


def _chart(
    title: str, lines: list[Series], write: Callable[[float], str]
) -> tuple[str, Markup, list[tuple[str, Markup]]] | None:
    """Return a chart with its title and legend; None where no epoch has a number."""
    values = [point.y for line in lines for point in line.points]
    epochs = [point.x for line in lines for point in line.points]
    if not any(map(math.isfinite, values)):
        return None
    steps = [v for v in ticks(*spread(epochs)) if v == int(v)]
    plot = Plot(
        title=f"{title} over epochs",
        series=tuple(lines),
        x_title="epoch",
        x_ticks=tuple((v, f"{v:.0f}") for v in steps),
        y_ticks=tuple((v, write(v)) for v in ticks(*spread(values))),
    )
    return title, panel_chart(plot), [(line.name, legend_chart(line)) for line in lines]


SECTION = Section("curves", "Learning curves", "Learning curves", gather, draw)
