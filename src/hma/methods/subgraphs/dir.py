"""DIR: the chosen part of a graph predicts alike whatever it is put beside."""

import math
from typing import final

import torch
from torch import Tensor

from hma.data import Batch, Task
from hma.errors import UserError
from hma.memory.distributed import world_size
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
from hma.targets import Target

GROWTH = 1.6
"""Power of the epoch that the interventions count with, as in the authors' code."""


def intervened_risks(
    logits: Tensor, shortcuts: Tensor, y: Tensor, target: Target, weight: Tensor | None = None
) -> Tensor:
    r"""Return the risk of the kept parts beside each rest of the batch, ``(S,)``.

    .. math:: R_s = \mathrm{mean}_i \; \ell(\sigma(u_s) \odot z_i, y_i)

    Args:
        logits: Of the kept parts, :math:`z`, ``(B, C)``.
        shortcuts: Logits of the rests, :math:`u`, ``(S, C)``.
        y: Labels of the kept parts.
        target: What a label is.
        weight: What a kept part counts, ``(B,)``; None for 1.
    """
    gated = shortcuts.sigmoid()[:, None] * logits  # (S, 1, C) * (B, C) -> (S, B, C)
    labels = y.repeat(len(shortcuts), *[1] * (y.dim() - 1))  # (S * B, ...)
    losses = target.loss(gated.flatten(0, 1), labels).view(len(shortcuts), len(logits))
    return weighted_mean(losses, weight)


def variance(risks: Tensor) -> Tensor:
    """Return the variance of the risks, divided by their number less one; 0 of a single one."""
    apart = (risks - risks.mean()).square()
    return apart.sum() / max(len(risks) - 1, 1)


class InterventionModule(ShortcutModule):
    """Count the rows trained on in a buffer, so that a resumed run knows its epoch.

    Args:
        inner: Module of the method inside.
        settings: What was asked for.
        outputs: Logits of the head on the rest.
    """

    rows: Tensor

    def __init__(self, inner: torch.nn.Module, settings: str, *, outputs: int) -> None:
        super().__init__(inner, settings, outputs=outputs, detached=True)
        self.register_buffer("rows", torch.zeros((), dtype=torch.long))


@final
class Dir(SubgraphLearner):
    """The loss of the method inside, that of the rests, and the interventions' mean and variance.

    Args:
        inner: Learner on a :class:`SubgraphEncoder`.
        train_rows: Rows of an epoch.
        weight: What the interventions count in epoch 1; in epoch ``e``, from 0, ``e ** 1.6`` times
            as much.
        variance: What the variance of the intervened risks counts beside their mean.
    """

    def __init__(self, inner: Learner, train_rows: int, weight: float, variance: float) -> None:
        self.train_rows, self.weight, self.variance = train_rows, weight, variance
        settings = f"weight={weight}, variance={variance}"
        self._counter = InterventionModule(inner.module, settings, outputs=inner.target.outputs)
        super().__init__(inner, self._counter)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the sum of all of them."""
        total = super().loss_of(output, batch)
        if (shortcuts := rest_of(output)) is None:
            return total
        self.expect_own_logits(output, batch)
        shortcut = weighted_mean(self.target.loss(shortcuts, batch.y), batch.weight)
        risks = intervened_risks(
            output.logits, shortcuts.detach(), batch.y, self.target, batch.weight
        )
        epoch = self._counter.rows // self.train_rows
        counts = self.weight * epoch.to(risks.dtype) ** GROWTH
        return total + shortcut + counts * (risks.mean() + self.variance * variance(risks))

    @torch.no_grad()
    def after_step(self, batch: Batch) -> None:
        """Count the rows."""
        super().after_step(batch)
        self._counter.rows += len(batch.y) * world_size()


def dir_(
    backbone: BackboneFactory,
    inner: Inner = erm,
    *,
    share: float = 0.25,
    weight: float = 0.01,
    variance: float = 1024.0,
    reads: Reads = "hidden",
) -> Method:
    """Return the method that predicts from a part of each graph, chosen as DIR does.

    Args:
        backbone: Makes an encoder for a task; two are made, to choose and to predict.
        inner: What trains the encoder of the chosen parts.
        share: Share of the edges of each graph that is kept.
        weight: What the interventions count in epoch 1; in epoch ``e``, from 0, ``e ** 1.6`` times
            as much.
        variance: What the variance of the intervened risks counts beside their mean; the authors'
            code has the square of the batch size, 32.
        reads: Whether the second encoder reads what the first makes of the nodes, or the nodes.
    """
    for name, value in (("weight", weight), ("variance", variance)):
        if not math.isfinite(value) or value < 0:
            raise UserError(f"{name} must be finite and at least 0, got {value}")
    method = inner(choosing(backbone, share, reads))

    def build(task: Task, seed: int) -> Dir:
        return Dir(built(method(task, seed)), len(task.train), weight, variance)

    return build
