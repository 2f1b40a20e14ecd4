"""Gradient boosting: scikit-learn's histogram trees, kept as tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.extras import needed
from hma.memory.growing import Growing
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, logits_of, simple_method
from hma.targets import Classes, Number, Target

PAIRS_AT_ONCE = 2**22
"""Rows times trees held at a time; more rows go down in turns."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of one tree, its root first, as arrays; the children of a leaf are negative."""

    feature: Any
    threshold: Any
    left: Any
    right: Any
    missing_left: Any
    value: Any


class Trees(Growing):
    """Trees whose nodes lie in one list; a leaf is its own child.

    Args:
        values: Numbers at a leaf.
    """

    growing: ClassVar[tuple[str, ...]] = (
        "feature", "threshold", "left", "right", "missing_left", "value", "roots"
    )  # fmt: skip
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    value: Tensor
    roots: Tensor

    def __init__(self, values: int) -> None:
        super().__init__()
        whole = torch.long
        for name in ("feature", "left", "right", "roots"):
            self.register_buffer(name, torch.empty(0, dtype=whole))
        self.register_buffer("threshold", torch.empty(0))
        self.register_buffer("missing_left", torch.empty(0, dtype=torch.bool))
        self.register_buffer("value", torch.empty(0, values))

    def take(self, trees: Sequence[Nodes]) -> None:
        """Hold these trees and no others."""
        sizes = np.array([len(tree.feature) for tree in trees])
        roots = np.concatenate([[0], sizes.cumsum()[:-1]])
        joined = {
            f.name: np.concatenate([getattr(t, f.name) for t in trees]) for f in fields(Nodes)
        }
        own, first = np.arange(sizes.sum()), np.repeat(roots, sizes)
        leaf = joined["left"] < 0
        for side in ("left", "right"):
            joined[side] = np.where(leaf, own, joined[side] + first)
        joined["feature"] = np.where(leaf, 0, joined["feature"])
        joined["threshold"] = round_down(joined["threshold"])
        joined["value"] = joined["value"].reshape(len(own), -1)
        tensors = {name: torch.from_numpy(array) for name, array in joined.items()}
        self.fill(**tensors, roots=torch.from_numpy(roots))

    def answers(self, vectors: Tensor) -> Tensor:
        """Return what stands at the leaf of each tree, ``(B, F)`` to ``(B, trees, values)``."""
        rows = max(PAIRS_AT_ONCE // max(len(self.roots), 1), 1)
        return torch.cat([self.value[self._leaves(some)] for some in torch.split(vectors, rows)])

    def _leaves(self, vectors: Tensor) -> Tensor:
        """Return the place of the leaf that each row reaches in each tree, ``(B, trees)``."""
        rows, trees = len(vectors), len(self.roots)
        columns, missing = vectors.T.flatten(), bool(vectors.isnan().any())  # (F * B,)
        node = self.roots.repeat_interleave(rows)  # (trees * B,)
        row = torch.arange(rows, device=node.device).repeat(trees)
        found, going = node.clone(), torch.arange(len(node), device=node.device)
        inner = self.left != torch.arange(len(self.left), device=node.device)
        while len(going):  # pairs of a tree and a row that have not reached a leaf
            seen = _at(columns, _at(self.feature, node) * rows + row)
            lower = seen <= _at(self.threshold, node)
            if missing:
                lower = torch.where(seen.isnan(), _at(self.missing_left, node), lower)
            node = torch.where(lower, _at(self.left, node), _at(self.right, node))
            found[going] = node
            kept = _at(inner, node).nonzero()[:, 0]
            node, row, going = _at(node, kept), _at(row, kept), _at(going, kept)
        return found.view(trees, rows).T


def round_down(numbers: Any) -> Any:
    """Return the largest 32-bit numbers that are not above: they part 32-bit numbers alike."""
    with np.errstate(over="ignore"):
        near = numbers.astype(np.float32)
    return np.where(near > numbers, np.nextafter(near, np.float32(-np.inf)), near)


def _at(values: Tensor, places: Tensor) -> Tensor:
    """Return ``values[places]``, in half the time."""
    return values.index_select(0, places)


# ----------------------------------------------------------------------------------------- boosting


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
