"""A cache of training rows added to a linear layer, after Tip-Adapter."""

from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.logistic import fit_linear
from hma.methods.simple.neighbours import StoredRows
from hma.methods.simple.simple_row import SimpleModule, logits_of, simple_method
from hma.methods.simple.vectors import Standardised
from hma.targets import Classes, Target

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
