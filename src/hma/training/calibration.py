"""Honest probabilities: logits divided by one number that held-out rows decide."""

import torch
from torch import nn


@torch.no_grad()
def cool(module: nn.Module, temperature: float) -> None:
    """Divide every logit by ``temperature``, in the weights of the head; a vote has none."""
    head = getattr(module, "head", None)
    if isinstance(head, nn.Linear):
        for weight in head.parameters():
            weight.div_(temperature)
