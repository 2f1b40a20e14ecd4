"""Manifold-Mixup: training between two rows, at a layer that is drawn."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from hma.backbones.gnn.encoder import GraphEncoder
from hma.checks import expect_number
from hma.data import Batch, Mixed, Task
from hma.errors import UserError
from hma.methods.learner import Learner, Method
from hma.model import Output
from hma.options.config import POSITIVE
from hma.paper.rivals.wrapping import WrappedLearner, WrappedModule, backbone_of


class RowMixing(WrappedLearner):
    """The mean loss of rows that may have two labels each; a subclass makes such rows.

    A row's loss is ``share * loss(own label) + (1 - share) * loss(other label)``: of class ids the
    cross entropy of the soft label, and defined for every kind of label.

    Args:
        inner: Learner whose loss is the mean of its rows' losses.
        module: Wraps ``inner.module``.
    """

    def __init__(self, inner: Learner, module: WrappedModule) -> None:
        self._inner_mixes = isinstance(_with_loss_of_rows(inner), RowMixing)
        super().__init__(inner, module)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the weighted mean of the rows' losses."""
        return Learner.loss_of(self, output, batch)

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of each row, of one with two labels between both."""
        mixed = batch.mixed
        if mixed is None or self._inner_mixes:
            return self.inner.losses(output, batch)
        own = batch._replace(mixed=None)
        first = self.inner.losses(output, own)
        second = self.inner.losses(output, own._replace(y=mixed.y))
        return between(first, second, mixed.share)


def between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Return ``share * first + (1 - share) * second`` in the format of ``first``."""
    share = share.to(first.dtype)
    return share * first + (1 - share) * second


def _with_loss_of_rows(learner: Learner) -> Learner:
    """Return what says the loss of a learner, or say that it is not the mean of its rows'."""
    while isinstance(learner, WrappedLearner) and type(learner).loss_of is WrappedLearner.loss_of:
        learner = learner.inner
    if type(learner).loss_of not in (Learner.loss_of, RowMixing.loss_of):
        raise UserError(
            "method must have the mean of its rows' losses as loss where rows are mixed, got "
            f"{type(learner).__name__}, which has a loss of its own; put the mixing inside it"
        )
    return learner


class Drawn(NamedTuple):
    """How a batch was mixed: partners ``(B,)``, the own share, and the features, ``(B, F)``."""

    partners: Tensor
    share: Tensor
    features: Tensor


@final
class MixingModule(WrappedModule):
    """Mix the backbone's features of a training batch before what follows the backbone sees them.

    Args:
        inner: Module of the inner method, with a ``backbone``.
        alpha: Both parameters of the Beta distribution of the share.
    """

    def __init__(self, inner: nn.Module, alpha: float) -> None:
        super().__init__(inner, f"ManifoldMixup, alpha={alpha}")
        self.alpha = alpha
        self.drawn: Drawn | None = None
        """Of the last forward pass; None outside training."""
        backbone_of(inner)

    def output(self, x: Any, features: Tensor | None = None, *more: Any) -> Output:
        """Return the logits of mixed features, and the features of the rows themselves."""
        self.drawn = None
        if not self.training:
            return super().output(x, features, *more)
        hidden, finish = _halves(backbone_of(self.inner), x, features)  # (B, F)
        partners = torch.randperm(len(hidden), device=hidden.device)
        alpha = torch.full((), self.alpha, device=hidden.device)
        share = torch.distributions.Beta(alpha, alpha).sample()
        mixed = finish(between(hidden, hidden[partners], share))
        self.drawn = Drawn(partners, share, mixed)
        return super().output(x, mixed, *more)._replace(features=finish(hidden))


def _halves(
    backbone: nn.Module, x: Any, features: Tensor | None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return what is mixed of a batch, and what makes features of it: of graphs, the pooled."""
    if features is not None:
        return features, _as_it_is
    if isinstance(backbone, GraphEncoder):
        return backbone.unprojected(x), backbone.projected
    return backbone(x), _as_it_is


def _as_it_is(features: Tensor) -> Tensor:
    return features


@final
class ManifoldMixup(RowMixing):
    """Train on mixed features; memories are given the features and labels of the rows themselves.

    Args:
        inner: Learner to wrap.
        alpha: Both parameters of the Beta distribution of the share.
    """

    def __init__(self, inner: Learner, alpha: float) -> None:
        self._mixing = MixingModule(inner.module, alpha)
        super().__init__(inner, self._mixing)

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of each row between its own label and that of its partner."""
        drawn = self._mixing.drawn
        if drawn is None:
            return super().losses(output, batch)
        output = output._replace(features=drawn.features)
        first = super().losses(output, batch)
        second = super().losses(output, _at(batch, drawn.partners))
        return between(first, second, drawn.share)


def _at(batch: Batch, partners: Tensor) -> Batch:
    """Return the batch with the labels of its rows' partners."""
    mixed = batch.mixed
    if mixed is not None:
        mixed = Mixed(mixed.y[partners], mixed.share[partners])
    return batch._replace(y=batch.y[partners], mixed=mixed)


def manifold_mixup(method: Method, *, alpha: float = 1.0) -> Method:
    """Return ``method`` trained on features between those of two rows of the batch.

    ``share * own + (1 - share) * partner's``, features and losses alike, with one share for a
    batch from Beta(alpha, alpha). Rows of any kind; of graphs what the pool gives is mixed.

    Args:
        method: Method to wrap; its module has a ``backbone``.
        alpha: 1 draws all shares alike, less draws them nearer to 0 and 1.
    """
    expect_number("alpha", alpha, POSITIVE)

    def build(task: Task, seed: int) -> ManifoldMixup:
        return ManifoldMixup(method(task, seed), alpha)

    return build
