"""Gradient boosting: scikit-learn's histogram trees, kept as tensors."""

from collections.abc import Iterator
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.extras import needed
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, logits_of, simple_method
from hma.methods.simple.trees import Nodes, Trees
from hma.targets import Classes, Number, Target

TURNS = (10, 20, 30, 50, 70, 100)
"""Turns to choose from, all stages of one fit; few rows want few."""


@final
class BoostedTrees(Trees):
    """Trees whose leaves are added up: in each turn one for every sum, beginning at ``start``."""

    growing = (*Trees.growing, "start", "classes")
    start: Tensor
    classes: Tensor

    def __init__(self) -> None:
        super().__init__(values=1)
        self.register_buffer("start", torch.zeros(1))
        self.register_buffer("classes", torch.empty(0, dtype=torch.long))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the sums, ``(B, F)`` to ``(B, S)``."""
        each = self.answers(vectors)[..., 0]  # (B, turns * S)
        turns = each.reshape(len(vectors), -1, len(self.start))
        return turns.sum(dim=1) + self.start


@final
class GradientBoosting(SimpleModule):
    """Trees on the vectors as they are; a missing value goes its own way at each node."""

    serves: ClassVar[tuple[type[Target], ...]] = (Classes, Number)

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[int, ...]) -> None:
        super().__init__(task, backbone, choices)
        self.trees = BoostedTrees()

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        sums: Tensor = self.trees(vectors)
        if isinstance(self.target, Number):
            return sums
        if sums.shape[1] == 1:  # of two classes, the odds of the second
            sums = torch.cat([torch.zeros_like(sums), sums], dim=1)
        chances = sums.new_zeros(len(sums), self.target.table_rows)
        chances[:, self.trees.classes] = sums.softmax(dim=1)
        return logits_of(chances, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Fit for as many turns as any choice wants; fewer are the first of them."""
        ensemble = needed("sklearn.ensemble", "gradient boosting")
        of_numbers = isinstance(self.target, Number)
        name = "HistGradientBoostingRegressor" if of_numbers else "HistGradientBoostingClassifier"
        most = max(self.choices)
        model = getattr(ensemble, name)(max_iter=most, early_stopping=False, random_state=seed)
        model.fit(vectors.double().numpy(), labels.double().numpy() if of_numbers else labels)
        classes = torch.empty(0) if of_numbers else torch.from_numpy(model.classes_)
        start = torch.from_numpy(np.atleast_1d(np.asarray(model._baseline_prediction)).reshape(-1))
        self.trees.fill(start=start, classes=classes)
        grown = [[_nodes(tree.nodes) for tree in turn] for turn in model._predictors]
        for turns in self.choices:
            self.trees.take([tree for turn in grown[:turns] for tree in turn])
            yield {"turns": turns}


def _nodes(held: Any) -> Nodes:
    """Return the nodes of a tree of scikit-learn's histogram boosting."""
    leaf = held["is_leaf"] > 0
    return Nodes(
        feature=held["feature_idx"].astype(np.int64),
        threshold=held["num_threshold"],
        left=np.where(leaf, -1, held["left"].astype(np.int64)),
        right=np.where(leaf, -1, held["right"].astype(np.int64)),
        missing_left=held["missing_go_to_left"] > 0,
        value=held["value"],
    )


def boosting(backbone: BackboneFactory | None = None, *, turns: tuple[int, ...] = TURNS) -> Method:
    """Return gradient boosting.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        turns: Trees that are added one after the other; the validation rows choose how many.
    """
    return simple_method(GradientBoosting, backbone, tuple(turns))
