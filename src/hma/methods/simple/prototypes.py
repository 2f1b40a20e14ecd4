"""Class prototypes: a row is of the class whose mean direction is nearest."""

from collections.abc import Iterator
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, logits_of, simple_method
from hma.methods.simple.vectors import Standardised
from hma.targets import Classes, Target

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
