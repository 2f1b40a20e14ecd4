"""One training step of the head: forward, backward, write."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from benchmarks.shapes import Head


def training_step(head: Head, classify: Callable[[Tensor], Tensor] | None = None) -> None:
    """Forget the last gradients, read, run backward, and write the batch into the queue.

    Features are given, so no backbone runs; gradients reach them, as a trained backbone
    would need. No optimizer steps: its cost is the same however the memory is read.

    Args:
        head: The model and its batch.
        classify: Features to logits; None is the model's own way.
    """
    forget_gradients(head)
    logits = (classify or head.model.classify)(head.features)
    F.cross_entropy(logits, head.labels).backward()  # type: ignore[no-untyped-call]
    head.model.remember(None, head.labels, features=head.features)


def forget_gradients(head: Head) -> None:
    """Release the gradients of the last step."""
    head.model.zero_grad(set_to_none=True)
    head.features.grad = None
