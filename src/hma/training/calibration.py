"""Honest probabilities: logits divided by one number that held-out rows decide."""

import torch
from torch import nn

from hma.voting import VotingRead


@torch.no_grad()
def cool(module: nn.Module, temperature: float) -> None:
    """Divide every logit by ``temperature``, in the weights of the head and the gate of a vote."""
    for part in (getattr(module, "head", None), getattr(module, "vote", None)):
        if isinstance(part, nn.Linear):
            for weight in part.parameters():
                weight.div_(temperature)
        elif isinstance(part, VotingRead) and part.share is None:  # else it is not in the logits
            part.gate.div_(temperature)
