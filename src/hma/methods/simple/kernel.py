"""Kernel ridge regression: a weighted sum of bumps around training rows."""

from collections.abc import Iterator, Sequence
from itertools import groupby, product
from operator import itemgetter
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.memory.growing import Growing
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, Standardised, logits_of, simple_method
from hma.targets import Classes, Number, Target

MOST_CENTRES = 2000
"""Rows that have a bump; of more, so many are drawn, and all are fitted (Nyström)."""
WIDTHS, PENALTIES, SCALES = (0.1, 0.3, 1.0, 3.0), (0.1, 1.0), (3.0, 6.0, 12.0)
Choice = tuple[float, float, float]
"""Factor of the kernel's gamma, penalty, and how much a score counts."""


@final
class Bumps(Growing):
    """Centres and their weights.

    Args:
        width: Length of a vector.
        outputs: Numbers that are fitted.
    """

    growing = ("centres", "weights")
    centres: Tensor
    weights: Tensor
    gamma: Tensor
    middle: Tensor

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.empty(0, width))
        self.register_buffer("weights", torch.empty(0, outputs))
        self.register_buffer("middle", torch.zeros(outputs))
        self.register_buffer("gamma", torch.ones(()))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the sums, ``(B, F)`` to ``(B, outputs)``."""
        return kernel_of(vectors, self.centres, self.gamma) @ self.weights + self.middle


@final
class KernelRidge(SimpleModule):
    r"""Fit scores by least squares with a penalty; of classes, one that is 1 for its own rows.

    .. math:: f(x) = \bar y + \sum_i w_i \exp(-\gamma \lVert x - x_i \rVert^2), \quad
        p(c) \propto \exp(s f_c(x))
    """

    serves: ClassVar[tuple[type[Target], ...]] = (Classes, Number)
    packages: ClassVar[tuple[str, ...]] = ()
    known: Tensor
    scale: Tensor

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[Choice, ...]) -> None:
        super().__init__(task, backbone, choices)
        outputs = 1 if isinstance(task.target, Number) else task.target.table_rows
        self.standardised = Standardised(self.width, active=backbone is None)
        self.bumps = Bumps(self.width, outputs)
        self.register_buffer("known", torch.zeros(outputs, dtype=torch.bool))
        self.register_buffer("scale", torch.ones(()))

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        scores: Tensor = self.bumps(self.standardised(vectors))
        if isinstance(self.target, Number):
            return scores
        chances = torch.where(self.known, self.scale * scores, -torch.inf).softmax(dim=1)
        return logits_of(chances, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Fit with one width and penalty after the other."""
        self.standardised.take_statistics(vectors)
        x = self.standardised(vectors.to(self.scale.device)).double()
        wanted = labels.to(x.device)
        y = wanted[:, None].to(x) if isinstance(self.target, Number) else self._members(wanted)
        middle = y.mean(dim=0)
        draw = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        centres = x if len(x) <= MOST_CENTRES else x[draw[:MOST_CENTRES].to(x.device)]
        unit = 1 / (x.shape[1] * x.var(correction=0).clamp(min=1e-12))
        for factor, group in groupby(self.choices, key=itemgetter(0)):
            some, gamma = list(group), factor * unit
            penalties = list(dict.fromkeys(penalty for _, penalty, _ in some))
            weights = least_squares(x, y - middle, centres, gamma, penalties)
            for _, penalty, scale in some:
                fitted = weights[penalties.index(penalty)]
                self.bumps.fill(centres=centres, weights=fitted, gamma=gamma, middle=middle)
                self.scale.fill_(scale)
                yield {"gamma": factor, "penalty": penalty, "scale": scale}

    def _members(self, labels: Tensor) -> Tensor:
        members = one_hot(labels, len(self.known)).double()  # (N, C)
        self.known.copy_(members.any(dim=0))
        return members


def kernel_of(vectors: Tensor, centres: Tensor, gamma: Tensor) -> Tensor:
    """Return ``exp(-gamma |x - c|²)``, ``(B, F)`` and ``(N, F)`` to ``(B, N)``."""
    return torch.exp(-gamma * torch.cdist(vectors, centres).square())


def least_squares(
    x: Tensor, y: Tensor, centres: Tensor, gamma: Tensor, penalties: Sequence[float]
) -> list[Tensor]:
    """Return the weights of bumps around ``centres`` that fit ``y`` ``(N, outputs)`` best.

    Args:
        x: Rows to fit, ``(N, F)``.
        y: What they should have.
        centres: All of ``x``, or some of them.
        gamma: Of the kernel.
        penalties: What the squared norm of the function counts; one fit for each.
    """
    between = kernel_of(centres, centres, gamma)
    slack = torch.eye(len(centres)).to(x)
    if len(centres) == len(x):
        return [_solve(between + penalty * slack, y) for penalty in penalties]
    seen = kernel_of(x, centres, gamma)  # (N, M)
    inner, wanted = seen.T @ seen + 1e-6 * slack, seen.T @ y
    return [_solve(inner + penalty * between, wanted) for penalty in penalties]


def _solve(matrix: Tensor, wanted: Tensor) -> Tensor:
    return torch.cholesky_solve(wanted, torch.linalg.cholesky(matrix))


def kernel(
    backbone: BackboneFactory | None = None,
    *,
    widths: tuple[float, ...] = WIDTHS,
    penalties: tuple[float, ...] = PENALTIES,
    scales: tuple[float, ...] = SCALES,
) -> Method:
    """Return kernel ridge regression with bumps of Gaussian shape.

    The validation rows choose one of each.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        widths: Factors of gamma; 1 is the inverse of the vectors' length times their variance.
        penalties: What the squared norm of the function counts.
        scales: How much a score counts for the probability of a class.
    """
    return simple_method(KernelRidge, backbone, tuple(product(widths, penalties, scales)))
