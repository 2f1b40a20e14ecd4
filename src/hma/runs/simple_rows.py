"""Rows that every user should see beside a network: what needs no network at all."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data import Split, Task
from hma.extras import needed
from hma.metrics import METRICS, scores
from hma.targets import Classes, Number, Target

Floats = NDArray[np.float64]
Rows = dict[str, dict[str, dict[str, float]]]
"""Test split -> row -> metric -> value."""
MOST_ROWS, MOST_COLUMNS = 20_000, 4096
LEAST_CHANCE = 1e-4
"""What a class that a row thinks impossible still gets."""


def simple_rows(task: Task, *, seed: int = 0) -> Rows:
    """Return what simple methods come to on the test rows, each at its best validation loss.

    Logistic regression (ridge regression for a number) and nearest neighbours; of tables gradient
    boosting as well. They see what the network's head sees where a backbone is frozen, else the
    prepared inputs; of graphs sums and means over the nodes. Labels of other kinds have none.

    Args:
        task: The rows, or their features as :func:`hma.methods.cached_features` gives them.
        seed: Decides which training rows are taken where there are more than 20,000.
    """
    if not isinstance(task.target, Classes | Number) or not task.tests:
        return {}
    needed("sklearn", "the simple rows of a comparison")
    places = torch.arange(len(task.train))
    if len(places) > MOST_ROWS:
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))
        places = order[:MOST_ROWS].sort().values
    x, y = _inputs(task.train, places), task.train.labels[places].numpy()
    if x is None or (isinstance(task.target, Classes) and len(np.unique(y)) < 2):
        return {}
    splits = {"": task.validation if len(task.validation) else task.train, **task.tests}
    seen = {name: _inputs(split, torch.arange(len(split))) for name, split in splits.items()}
    found: Rows = {name: {} for name in task.tests}
    for row, tried in _candidates(task, seed).items():
        answers = []
        for model in tried():
            model.fit(x, y)
            said = {name: _logits(model, inputs, task.target) for name, inputs in seen.items()}
            loss = METRICS["loss"].score(said[""], splits[""].labels, task.target)
            answers.append((loss, said))
        _, said = min(answers, key=lambda answer: answer[0])
        for name, split in task.tests.items():
            scored = scores(said[name], split.labels, target=task.target)
            found[name][row] = {m: value for m, value in scored.items() if math.isfinite(value)}
    return found


def _candidates(task: Task, seed: int) -> dict[str, Callable[[], Iterator[Any]]]:
    """Return the simple rows, each with the settings that validation chooses from."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    classes = isinstance(task.target, Classes)
    rows = len(task.train)
    # features of a network are of one kind, and their scales say what matters
    known = task.train.batch(torch.arange(1)).features is not None
    scaler = FunctionTransformer if known else StandardScaler
    near = KNeighborsClassifier if classes else KNeighborsRegressor
    boosted = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor

    def linear() -> Iterator[Any]:
        for strength in (0.003, 0.03, 0.3, 3.0):
            model = LogisticRegression(C=strength, max_iter=200) if classes else Ridge(1 / strength)
            yield make_pipeline(scaler(), model)

    def neighbours() -> Iterator[Any]:
        for count in (1, 5, 15, 30):
            if count <= rows:
                yield make_pipeline(scaler(), near(count, weights="distance"))

    def boosting() -> Iterator[Any]:
        for turns in (30, 100):
            yield boosted(max_iter=turns, early_stopping=False, random_state=seed)

    found = {
        "logistic regression" if classes else "ridge regression": linear,
        "nearest neighbours": neighbours,
    }
    return found | ({"gradient boosting": boosting} if task.kind == "table" else {})


def _logits(model: Any, inputs: Floats | None, target: Target) -> Tensor:
    """Return what a scikit-learn model says of rows, as a network would."""
    if isinstance(target, Number):
        said = (model.predict(inputs) - target.centre) / target.scale
        return torch.from_numpy(said)[:, None]
    given = model.predict_proba(inputs)
    chances = np.zeros((len(given), target.outputs))
    chances[:, model.classes_] = given
    chances = np.clip(chances, LEAST_CHANCE, None)
    return torch.from_numpy(np.log(chances / chances.sum(axis=1, keepdims=True)))


def _inputs(split: Split, places: Tensor) -> Floats | None:
    """Return one vector for each row: its features if they are known, else its prepared input."""
    parts = [_vectors(split, some) for some in torch.split(places, 256)]
    if not parts or any(part is None for part in parts):
        return None
    whole = torch.cat([part for part in parts if part is not None])
    return None if whole.shape[1] > MOST_COLUMNS else whole.double().numpy()


def _vectors(split: Split, places: Tensor) -> Tensor | None:
    batch = split.batch(places)
    if batch.features is not None:
        return batch.features.flatten(1)
    if isinstance(batch.x, Tensor):
        return batch.x.flatten(1).float()
    nodes, graph = getattr(batch.x, "x", None), getattr(batch.x, "batch", None)
    if not isinstance(nodes, Tensor) or not isinstance(graph, Tensor):
        return None
    sums = torch.zeros(len(places), nodes.shape[1]).index_add_(0, graph, nodes.float())
    sizes = torch.bincount(graph, minlength=len(places))[:, None].float()
    return torch.cat([sums, sums / sizes.clamp(min=1), sizes.log1p()], dim=1)


def best_simple_line(rows: Rows, metric: str) -> str | None:
    """Return the best simple row of each test split in a line; None without any."""
    sign = 1 if METRICS[metric].larger_is_better else -1
    said = []
    for test, scored in rows.items():
        if scored:
            name = max(scored, key=lambda row: sign * scored[row][metric])
            said.append(f"{name} with {metric} {scored[name][metric]:.4f} on {test}")
    return f"best simple row: {'; '.join(said)}" if said else None
