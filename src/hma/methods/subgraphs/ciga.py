"""CIGA: subgraphs of one class lie together, and what is left of a graph tells its label less."""

import math
from typing import final

import torch
from torch import Tensor

from hma.attention.contrast import batch_rows, contrast_of_batch
from hma.data import Batch, Task
from hma.errors import UserError
from hma.methods.erm import erm
from hma.methods.learner import BackboneFactory, Learner, Method
from hma.methods.subgraphs.encoder import Inner, Reads, choosing
from hma.methods.subgraphs.learning import (
    ShortcutModule,
    SubgraphLearner,
    built,
    rest_of,
    weighted_mean,
)
from hma.model import Output
from hma.targets import Number, Target


def class_contrast(
    features: Tensor, y: Tensor, target: Target, weight: Tensor | None = None
) -> Tensor:
    r"""Return the supervised contrastive loss of a batch, over rows that another one agrees with.

    .. math:: L_c = \mathrm{mean}_i \Big( -\frac{1}{|P_i|} \sum_{p \in P_i} \log
        \frac{\exp(z_i \cdot z_p)}{\sum_{j \ne i} \exp(z_i \cdot z_j)} \Big)

    with :math:`z` features of length 1 and :math:`P_i` the other rows of row :math:`i`'s class;
    rows without any are left out, and without any row the loss is 0.

    Args:
        features: Of each row, ``(B, F)``.
        y: Labels, as the target takes them.
        target: What a label is; how far two labels agree is up to it.
        weight: What a row counts, ``(B,)``; None for 1.
    """
    membership = target.membership(target.checked(y, len(features))).to(features.dtype)
    losses = contrast_of_batch(batch_rows(features, membership, None), [], 1.0, gather=False)
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    agrees = (membership @ membership.T).masked_fill(itself, 0).sum(dim=1) > 0
    counts = agrees.to(losses.dtype)
    return weighted_mean(losses, counts if weight is None else counts * weight)


def hinged_risk(rest: Tensor, kept: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Return the mean loss of the rest over the rows where the kept part does better.

    .. math:: L_s = \sum_i [\ell^s_i > \ell^c_i] \, \ell^s_i \Big/ \sum_i [\ell^s_i > \ell^c_i]

    So the rest of a graph learns to tell the label, but never better than its kept part does.

    Args:
        rest, kept: Loss of each row, ``(B,)``.
        weight: What a row counts, ``(B,)``; None for 1.

    Example:
        >>> hinged_risk(torch.tensor([2.0, 0.5, 4.0]), torch.tensor([1.0, 1.0, 1.0]))
        tensor(3.)
    """
    gate = (rest > kept).to(rest.dtype)
    return weighted_mean(rest, gate if weight is None else gate * weight)


@final
class Ciga(SubgraphLearner):
    """The loss of the method inside, contrast between the kept parts, and the rest's risk.

    Args:
        inner: Learner on a :class:`SubgraphEncoder`.
        contrast: What the contrast counts, CIGA's alpha.
        spurious: What the risk of the rest counts, CIGA's beta; 0 is CIGAv1.
    """

    def __init__(self, inner: Learner, contrast: float, spurious: float) -> None:
        self.contrast, self.spurious = contrast, spurious
        settings = f"contrast={contrast}, spurious={spurious}"
        outputs = inner.target.outputs if spurious else 0
        module = ShortcutModule(inner.module, settings, outputs=outputs, detached=False)
        super().__init__(inner, module)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the sum of all of them."""
        total = super().loss_of(output, batch)
        if self.contrast:
            contrast = class_contrast(output.features, batch.y, self.target, batch.weight)
            total = total + self.contrast * contrast
        if (logits := rest_of(output)) is not None:
            self.expect_own_logits(output, batch)
            rest = self.target.loss(logits, batch.y)
            kept = self.target.loss(output.logits, batch.y).detach()
            total = total + self.spurious * hinged_risk(rest, kept, batch.weight)
        return total


def ciga(
    backbone: BackboneFactory,
    inner: Inner = erm,
    *,
    share: float = 0.25,
    contrast: float = 1.0,
    spurious: float = 0.0,
    reads: Reads = "hidden",
) -> Method:
    """Return the method that predicts from a part of each graph, chosen as CIGA does.

    Args:
        backbone: Makes an encoder for a task; two are made, to choose and to predict.
        inner: What trains the encoder of the chosen parts.
        share: Share of the edges of each graph that is kept.
        contrast: What the contrast between the kept parts counts.
        spurious: What the risk of the rest counts: 0 is CIGAv1, above it CIGAv2.
        reads: Whether the second encoder reads what the first makes of the nodes, or the nodes.
    """
    for name, value in (("contrast", contrast), ("spurious", spurious)):
        if not math.isfinite(value) or value < 0:
            raise UserError(f"{name} must be finite and at least 0, got {value}")
    method = inner(choosing(backbone, share, reads))

    def build(task: Task, seed: int) -> Ciga:
        if contrast and isinstance(task.target, Number):
            raise UserError(
                f"contrast needs labels that rows can share, {task.name!r} has numbers; set "
                "contrast=0"
            )
        return Ciga(built(method(task, seed)), contrast, spurious)

    return build
