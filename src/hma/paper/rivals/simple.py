"""Simple baselines of the tables: random forest, support vectors, class prototypes, a cache."""

from collections.abc import Iterator
from itertools import groupby, product
from operator import itemgetter
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.extras import needed
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.kernel import Bumps
from hma.methods.simple.logistic import fit_linear
from hma.methods.simple.neighbours import StoredRows
from hma.methods.simple.simple_row import SimpleModule, Standardised, logits_of, simple_method
from hma.methods.simple.trees import Nodes, Trees
from hma.targets import Classes, Number, Target

# ------------------------------------------------------------------------------------ random forest


TREES = 100
LEAVES = (1, 3, 10)


@final
class RandomForest(SimpleModule):
    """The mean of what trees say, each grown on rows of its own drawing."""

    serves: ClassVar[tuple[type[Target], ...]] = (Classes, Number)

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[int, ...]) -> None:
        super().__init__(task, backbone, choices)
        of_numbers = isinstance(task.target, Number)
        self.trees = Trees(values=1 if of_numbers else task.target.table_rows)

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        mean = self.trees.answers(vectors).mean(dim=1)  # (B, trees, C) -> (B, C)
        return mean if isinstance(self.target, Number) else logits_of(mean, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Grow trees with more and more rows at a leaf."""
        ensemble = needed("sklearn.ensemble", "a random forest")
        of_numbers = isinstance(self.target, Number)
        kind = ensemble.RandomForestRegressor if of_numbers else ensemble.RandomForestClassifier
        for rows in self.choices:
            model = kind(TREES, min_samples_leaf=rows, random_state=seed)
            model.fit(vectors.numpy(), labels.numpy())
            classes = [0] if of_numbers else model.classes_
            places = np.asarray(classes)
            self.trees.take([self._nodes(tree.tree_, places) for tree in model.estimators_])
            yield {"rows_at_a_leaf": rows}

    def _nodes(self, tree: Any, classes: Any) -> Nodes:
        value = np.zeros((tree.node_count, self.trees.value.shape[1]))
        value[:, classes] = tree.value[:, 0]
        return Nodes(
            feature=tree.feature,
            threshold=tree.threshold,
            left=tree.children_left,
            right=tree.children_right,
            missing_left=tree.missing_go_to_left > 0,
            value=value,
        )


def forest(backbone: BackboneFactory | None = None, *, leaves: tuple[int, ...] = LEAVES) -> Method:
    """Return a random forest of 100 trees.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        leaves: Least number of rows at a leaf; the validation rows choose one.
    """
    return simple_method(RandomForest, backbone, tuple(leaves))


# -------------------------------------------------------------------------- support vector machine


WIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
COSTS, MARGINS = (1.0, 10.0, 100.0), (0.5, 1.0, 2.0, 4.0, 8.0)
Machine = tuple[float, float, float]
"""Factor of the kernel's gamma, cost of an error, and how much a margin counts."""


@final
class SupportVectors(SimpleModule):
    r"""Part each class from the others by scikit-learn's support vectors, with Gaussian bumps.

    .. math:: f_c(x) = b_c + \sum_i w_{ic} \exp(-\gamma \lVert x - x_i \rVert^2), \quad
        p(c) \propto \exp(s f_c(x))
    """

    serves: ClassVar[tuple[type[Target], ...]] = (Classes,)
    known: Tensor
    scale: Tensor

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[Machine, ...]) -> None:
        super().__init__(task, backbone, choices)
        classes = task.target.table_rows
        self.standardised = Standardised(self.width, active=backbone is None)
        self.bumps = Bumps(self.width, classes)
        self.register_buffer("known", torch.zeros(classes, dtype=torch.bool))
        self.register_buffer("scale", torch.ones(()))

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        margins: Tensor = self.bumps(self.standardised(vectors))  # (B, C)
        chances = torch.where(self.known, self.scale * margins, -torch.inf).softmax(dim=1)
        return logits_of(chances, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Fit with one width and cost after the other, and trust the margins more and more."""
        self.standardised.take_statistics(vectors)
        x = self.standardised(vectors.to(self.scale.device)).cpu().double()
        self.known.fill_(False)
        self.known[labels] = True
        unit = 1 / (x.shape[1] * x.var(correction=0).clamp(min=1e-12))
        for (factor, cost), group in groupby(self.choices, key=itemgetter(0, 1)):
            gamma = factor * unit
            weights, middle = self._machines(x, labels, float(gamma), cost)
            used = weights.any(dim=1)
            self.bumps.fill(centres=x[used], weights=weights[used], gamma=gamma, middle=middle)
            for _, _, scale in group:
                self.scale.fill_(scale)
                yield {"gamma": factor, "C": cost, "scale": scale}

    def _machines(
        self, x: Tensor, labels: Tensor, gamma: float, cost: float
    ) -> tuple[Tensor, Tensor]:
        """Return weights ``(N, C)`` and biases ``(C,)``; two classes share one machine."""
        machine = needed("sklearn.svm", "a support vector machine").SVC
        classes = len(self.known)
        weights, middle = x.new_zeros(len(x), classes), x.new_zeros(classes)
        known = self.known.nonzero()[:, 0].tolist()
        for name in known if len(known) > 2 else known[1:]:
            model = machine(C=cost, gamma=gamma).fit(x.numpy(), (labels == name).numpy())
            weights[model.support_, name] = torch.from_numpy(model.dual_coef_[0])
            middle[name] = float(model.intercept_[0])
        if len(known) == 2:
            weights[:, known[0]], middle[known[0]] = -weights[:, known[1]], -middle[known[1]]
        return weights, middle


def support_vectors(
    backbone: BackboneFactory | None = None,
    *,
    widths: tuple[float, ...] = WIDTHS,
    costs: tuple[float, ...] = COSTS,
    margins: tuple[float, ...] = MARGINS,
) -> Method:
    """Return a support vector machine for each class; the validation rows choose one of each.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        widths: Factors of gamma; 1 is the inverse of the vectors' length times their variance.
        costs: What a training row on the wrong side counts.
        margins: How much a margin counts for the probability of a class.
    """
    return simple_method(SupportVectors, backbone, tuple(product(widths, costs, margins)))


# --------------------------------------------------------------------------------- class prototypes


SCALES = (1.0, 3.0, 10.0, 30.0, 100.0)


@final
class Prototypes(SimpleModule):
    r"""Compare the direction of a row, seen from the middle of all, with the mean of each class.

    .. math:: p(c) \propto \exp(s \cos(u, \sum_{y_i = c} u_i)), \quad
        u = (x - \bar x) / \lVert x - \bar x \rVert
    """

    serves: ClassVar[tuple[type[Target], ...]] = (Classes,)
    packages: ClassVar[tuple[str, ...]] = ()
    middle: Tensor
    means: Tensor
    known: Tensor
    scale: Tensor

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[float, ...]) -> None:
        super().__init__(task, backbone, choices)
        classes = task.target.table_rows
        self.standardised = Standardised(self.width, active=backbone is None)
        self.register_buffer("middle", torch.zeros(self.width))
        self.register_buffer("means", torch.zeros(classes, self.width))
        self.register_buffer("known", torch.zeros(classes, dtype=torch.bool))
        self.register_buffer("scale", torch.ones(()))

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        near = self._directions(vectors) @ self.means.T  # (B, C)
        chances = torch.where(self.known, self.scale * near, -torch.inf).softmax(dim=1)
        return logits_of(chances, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Take the means, and trust them more and more."""
        vectors, labels = vectors.to(self.means.device), labels.to(self.means.device)
        self.standardised.take_statistics(vectors)
        self.middle.copy_(self.standardised(vectors).mean(dim=0))
        members = one_hot(labels, len(self.means)).to(self.means.dtype)  # (N, C)
        self.means.copy_(normalize(members.T @ self._directions(vectors), dim=1))
        self.known.copy_(members.any(dim=0))
        for scale in self.choices:
            self.scale.fill_(scale)
            yield {"scale": scale}

    def _directions(self, vectors: Tensor) -> Tensor:
        return normalize(self.standardised(vectors) - self.middle, dim=1)


def prototypes(
    backbone: BackboneFactory | None = None, *, scales: tuple[float, ...] = SCALES
) -> Method:
    """Return class prototypes, centred and normalised.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        scales: How much a cosine counts; the validation rows choose one.
    """
    return simple_method(Prototypes, backbone, tuple(scales))


# -------------------------------------------------------------------------------------------- cache


STRENGTHS, SHARPNESS, SHARES = (0.03, 0.3, 3.0), (3.0, 10.0, 30.0), (0.1, 1.0, 10.0)
Choice = tuple[float, float, float]
"""Strength of the linear layer, sharpness and share of the cache."""


@final
class Cache(SimpleModule):
    r"""Add to a linear layer what stored rows say, the more alike their direction the louder.

    .. math:: z_c = w_c x + b_c + \alpha \sum_{y_i = c} \exp(-\beta (1 - \cos(x, x_i)))
    """

    serves: ClassVar[tuple[type[Target], ...]] = (Classes,)
    sharpness: Tensor
    share: Tensor

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[Choice, ...]) -> None:
        super().__init__(task, backbone, choices)
        self.standardised = Standardised(self.width, active=backbone is None)
        self.linear = nn.Linear(self.width, task.target.table_rows)
        self.stored = StoredRows(self.width, task.target)
        self.register_buffer("sharpness", torch.ones(()))
        self.register_buffer("share", torch.ones(()))

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        seen = self.standardised(vectors)
        cosines = normalize(seen, dim=1) @ self.stored.vectors.T  # (B, N)
        loud = torch.exp(self.sharpness * (cosines - 1))
        said = loud @ one_hot(self.stored.labels, self.linear.out_features).to(loud)  # (B, C)
        chances = (self.linear(seen) + self.share * said).softmax(dim=1)
        return logits_of(chances, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Store the rows, and add them in one way after the other."""
        self.standardised.take_statistics(vectors)
        x = self.standardised(vectors.to(self.share.device))
        self.stored.fill(vectors=normalize(x, dim=1), labels=labels)
        fitted = None
        for strength, sharpness, share in self.choices:
            if strength != fitted:
                fit_linear(self.linear, x, labels, strength, self.target)
                fitted = strength
            self.sharpness.fill_(sharpness)
            self.share.fill_(share)
            yield {"C": strength, "sharpness": sharpness, "share": share}


def cache(
    backbone: BackboneFactory | None = None,
    *,
    strengths: tuple[float, ...] = STRENGTHS,
    sharpness: tuple[float, ...] = SHARPNESS,
    shares: tuple[float, ...] = SHARES,
) -> Method:
    """Return a linear layer with a cache of training rows; the validation rows choose one of each.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        strengths: Of the linear layer, as in :func:`hma.methods.simple.logistic`.
        sharpness: How much louder a row is the more alike it is.
        shares: What the cache counts beside the linear layer.
    """
    return simple_method(Cache, backbone, tuple(product(strengths, sharpness, shares)))
