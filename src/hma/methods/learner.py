"""What the training loop knows of a method."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from hma.data import Batch, Task

BackboneFactory = Callable[[Task], nn.Module]
"""Makes the encoder for a task: a fresh module that maps a batch's ``x`` to ``(B, F)``."""


class Learner(Protocol):
    """A module and what to do with it, step by step."""

    module: nn.Module
    contexts: tuple[str, ...]
    """Inference contexts to evaluate in, the default first.

    'batch' and 'batch-sorted' differ in the order of rows alone, and the loop sees to that.
    """

    def loss(self, batch: Batch) -> Tensor:
        """Return the training loss of a batch, a scalar."""
        ...

    def predict(self, batch: Batch) -> Tensor:
        """Return the logits of a batch, ``(B, C)``."""
        ...

    def after_step(self, batch: Batch) -> None:
        """Do what follows ``optimizer.step()``, such as writing a memory."""
        ...

    def use(self, context: str) -> None:
        """Switch to one of ``contexts``."""
        ...


Method = Callable[[Task, int], Learner]
"""A row of a table: ``method(task, seed)`` builds a fresh learner."""


def classification_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the weighted mean cross entropy; one logit is a binary problem."""
    if logits.shape[1] == 1:
        each = binary_cross_entropy_with_logits(
            logits[:, 0], batch.y.to(logits.dtype), reduction="none"
        )
    else:
        each = cross_entropy(logits, batch.y, reduction="none")
    if batch.weight is None:
        return each.mean()
    return (each * batch.weight).sum() / batch.weight.sum()
