"""A map of slots and features: t-SNE of directions."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from hma.extras import needed
from hma.memory.memories import MemoryState
from hma.report.charts import Plot, Point, Series, legend_chart, panel_chart
from hma.report.html import fill
from hma.report.run_facts import RunFacts
from hma.report.run_report import RunReport, Section
from hma.report.sections.memory import BARRED
from hma.report.statistics import Floats, Integers, evenly_spaced
from hma.report.svg import Look, class_colour
from hma.targets import UNKNOWN, Target

PointKind = Literal["test", "queue", "slot"]
POINT_KINDS: tuple[PointKind, ...] = ("test", "queue", "slot")
CALLED = {"test": "test rows", "queue": "rows in the queue", "slot": "slots"}
MOST = {"test": 300, "queue": 150, "slot": 200}
"""Points of each kind on a map."""
FEWEST = 8
"""Points below which a map says nothing."""
STEPS = 500
"""Of the layout; a few hundred points settle in them."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """Points of high dimension laid out on paper.

    Args:
        title: What is shown.
        places: Coordinates, ``(P, 2)``.
        kinds: Place in ``POINT_KINDS`` of each point, ``(P,)``.
        classes: Class id of each point, ``(P,)``; -1 where unknown.
    """

    title: str
    places: Floats
    kinds: Integers
    classes: Integers


def gather(facts: RunFacts) -> tuple[Map, ...]:
    """Return the maps of the first test set."""
    answers = facts.answers
    if answers.features is None:
        return ()
    given = facts.model.memory_state(), answers.features, answers.labels
    return maps(*given, target=facts.model.target, seed=facts.seed)


def maps(
    memory: MemoryState, features: Tensor, labels: Tensor, *, target: Target, seed: int
) -> tuple[Map, ...]:
    """Return a map of the slots alone and one of slots, queue and test rows together.

    Label embeddings are left out: they are equal for every row of a class and would draw the
    classes apart by themselves. Directions are compared, because slots and features differ in
    length.

    Args:
        memory: What the model remembers.
        features: Features of test rows, ``(N, F)``.
        labels: Their labels, class ids ``(N,)`` or as the target has them.
        target: What a label is.
        seed: Start of the layout.
    """
    parts = {
        "test": _thinned(features, _group(target, labels), MOST["test"]),
        "queue": _thinned(memory.features, _group(target, memory.labels), MOST["queue"]),
        "slot": _thinned(memory.slots, memory.slot_classes, MOST["slot"]),
    }
    wanted: list[tuple[str, tuple[str, ...]]] = [("Slots, queue and test rows", POINT_KINDS)]
    if len(parts["slot"][1]):
        wanted.append(("Slots alone", ("slot",)))
    found = []
    for title, kinds in wanted:
        points = np.concatenate([parts[kind][0] for kind in kinds])
        if len(points) < FEWEST or np.ptp(points, axis=0).max() == 0:
            continue
        places = [np.full(len(parts[k][1]), POINT_KINDS.index(k)) for k in kinds]
        found.append(
            Map(
                title=title,
                places=laid_out(points, seed),
                kinds=np.concatenate(places),
                classes=np.concatenate([parts[kind][1] for kind in kinds]),
            )
        )
    return tuple(found)


def _group(target: Target, labels: Tensor) -> Tensor:
    """Return the group that each label belongs to most, -1 where it is unknown."""
    belongs = target.given_membership(labels)  # (N, C)
    return torch.where(belongs.any(dim=1), belongs.argmax(dim=1), UNKNOWN)


def _thinned(rows: Tensor, labels: Tensor, most: int) -> tuple[Floats, Integers]:
    """Return the directions of at most ``most`` rows, evenly spread over all."""
    kept = evenly_spaced(len(rows), most)
    points = rows.detach().cpu().double().numpy()[kept]
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(length, 1e-30), labels.detach().cpu().numpy()[kept]


def laid_out(points: Floats, seed: int) -> Floats:
    """Return a place on a plane for each row, ``(N, F)`` to ``(N, 2)``."""
    layout = needed("sklearn.manifold", "the map of slots").TSNE(
        perplexity=min(30.0, (len(points) - 1) / 3),
        init="pca" if points.shape[1] > 1 else "random",
        max_iter=STEPS,
        random_state=seed,
    )
    # so few points only wait for each other on more threads
    with needed("threadpoolctl", "the map of slots").threadpool_limits(1):
        return np.asarray(layout.fit_transform(points), dtype=np.float64)


def map_chart(found: Map, classes: tuple[str, ...]) -> Markup:
    """Draw the points of a map: colour is the class, shape is the kind."""
    series = []
    for kind, name in enumerate(POINT_KINDS):
        for c in np.unique(found.classes[found.kinds == kind]).tolist():
            places = found.places[(found.kinds == kind) & (found.classes == c)].tolist()
            label = classes[c] if 0 <= c < len(classes) else "unknown class"
            series.append(
                Series(
                    name=f"{label}: {CALLED[name]}",
                    look=_look(name, class_colour(c, len(classes))),
                    points=tuple(Point(x, -y) for x, y in places),
                )
            )
    bare = Plot(title=found.title, series=tuple(series), x_ticks=(), y_ticks=(), square=True)
    return panel_chart(bare)


def _look(kind: PointKind, colour: str | None = None) -> Look:
    return Look(colour, shape=POINT_KINDS.index(kind), hollow=kind == "queue")


def draw(report: RunReport, found: tuple[Map, ...]) -> Markup:
    """Draw the maps, the kinds of points on each, and the colours of the classes."""
    views = [
        (
            one.title,
            map_chart(one, report.groups),
            [
                (CALLED[kind], legend_chart(Series(name=CALLED[kind], look=_look(kind))))
                for place, kind in enumerate(POINT_KINDS)
                if place in one.kinds
            ],
        )
        for one in found
    ]
    count = len(report.groups)
    key = [(name, class_colour(i, count)) for i, name in enumerate(report.groups[:BARRED])]
    return fill("map", report=report, views=views, key=key)


SECTION = Section("map", "Map", "Map of slots and features", gather, draw)
