"""Maps of slots and features: t-SNE, the same picture for the same numbers."""

import numpy as np
import torch
from torch import Tensor

from hma.extras import needed
from hma.memory.memories import MemoryState
from hma.report.run.groups import membership
from hma.report.run.run_report import POINT_KINDS, Map
from hma.report.statistics import Floats, Integers
from hma.targets import UNKNOWN, Target

MOST = {"test": 300, "queue": 150, "slot": 200}
"""Points of each kind on a map."""
FEWEST = 8
"""Points below which a map says nothing."""
STEPS = 500
"""Of the layout; a few hundred points settle in them."""


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
    belongs = membership(target, labels)  # (N, C)
    return torch.where(belongs.any(dim=1), belongs.argmax(dim=1), UNKNOWN)


def _thinned(rows: Tensor, labels: Tensor, most: int) -> tuple[Floats, Integers]:
    """Return the directions of at most ``most`` rows, evenly spread over all."""
    kept = np.unique(np.linspace(0, max(len(rows) - 1, 0), min(most, len(rows))).astype(int))
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
