"""What CIGA and DIR share: a shortcut head on the rest of each graph, beside any method."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hma.data import Batch
from hma.errors import UserError
from hma.methods.learner import Learner
from hma.methods.subgraphs.encoder import SubgraphEncoder
from hma.methods.wrapping import WrappedLearner, WrappedModule
from hma.model import Output


class OutputWithRest(NamedTuple):
    """An ``Output`` of kept parts, with the logits of what is left of the graphs, ``(B, C)``."""

    logits: Tensor
    features: Tensor
    rest: Tensor


def rest_of(output: Output) -> Tensor | None:
    """Return the logits of the rests of a training batch; None where they were not asked for."""
    return getattr(output, "rest", None)


class ShortcutModule(WrappedModule):
    """Lead a training batch through both of its parts; at test the kept part alone answers.

    Args:
        inner: Module of the method inside, on a :class:`SubgraphEncoder`.
        settings: What was asked for.
        outputs: Logits of the head on the rest, a network of one hidden layer; 0 for no head.
        detached: Whether what the head reads has no gradient, so that it alone learns from it.
    """

    def __init__(self, inner: nn.Module, settings: str, *, outputs: int, detached: bool) -> None:
        super().__init__(inner, settings)
        width = self.subgraphs.feature_dim
        self.detached = detached
        self.shortcut = (
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, outputs))
            if outputs
            else None
        )

    @property
    def subgraphs(self) -> SubgraphEncoder:
        """The encoder that chooses; a slow copy of it in the module inside comes after it."""
        return next(part for part in self.inner.modules() if isinstance(part, SubgraphEncoder))

    def output(self, x: Any, features: Tensor | None = None, *more: Any) -> Output:
        """Return what the method inside gives; in training also the logits of the rest."""
        if not self.training or self.shortcut is None or features is not None:
            return super().output(x, features, *more)
        encoder = self.subgraphs
        cut = encoder.cut(x)
        output = super().output(x, encoder.encoder(cut.kept), *more)
        learns = torch.is_grad_enabled() and not self.detached
        with torch.set_grad_enabled(learns), _statistics_kept(encoder.encoder):
            rest = encoder.encoder(cut.rest)  # (B, F)
        made = OutputWithRest(output.logits, output.features, self.shortcut(rest))
        return cast("Output", made)


class SubgraphLearner(WrappedLearner):
    """A method on chosen subgraphs, with losses of its own beside those of the method inside.

    Args:
        inner: Learner on a :class:`SubgraphEncoder`.
        module: Wraps its module.
    """

    def expect_own_logits(self, output: Output, batch: Batch) -> None:
        """Raise unless there is a row of logits for each row trained on."""
        if len(output.logits) != len(batch.y):
            raise UserError(
                "method must predict one row of logits for each row it trains on, got "
                f"{len(output.logits)} for {len(batch.y)} from {type(self.inner).__name__}; choose "
                "another method inside, such as erm or with_memory"
            )


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean of ``values`` ``(..., B)`` over the rows, weighted; 0 without any weight."""
    if weight is None:
        return values.mean(dim=-1)
    total = weight.sum()
    return (values * weight).sum(dim=-1) / torch.where(total > 0, total, 1)


@contextmanager
def _statistics_kept(module: nn.Module) -> Iterator[None]:
    """Within the block, let no batch change what BatchNorm has learned for evaluation."""
    # in CIGA's code the rest moves the statistics that the kept part is evaluated with
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            cast("Any", norm).momentum = momentum


def built(learner: Learner) -> Learner:
    """Return a learner, or say that its backbone is not the one that chooses subgraphs."""
    if not any(isinstance(part, SubgraphEncoder) for part in learner.module.modules()):
        raise UserError(
            f"inner must train the backbone it is given, got {type(learner).__name__} without it; "
            "give erm, or partial(with_memory, config=...)"
        )
    return learner
