"""The ways to read memories by attention that are not the paper's, for every test to run over."""

import torch
from torch import nn

from hma.attention.block import MemoryRead

READS = {
    "paper": {},
    "narrow": {"width": 6, "feed_forward": 2},
    "one": {"stages": "one"},
    "linear": {"attention": "linear", "linear_features": 8},
    "all": {"width": 6, "stages": "one", "attention": "linear", "linear_features": 8},
}


@torch.no_grad()
def opened(model):
    """Return the model as if it had learned to let a narrow read through, which starts at 0."""
    if model.tokens.widen is not None:
        nn.init.normal_(model.tokens.widen.weight, std=0.3)
    return model


def first_read(model):
    """Return the attention block that reads the queue."""
    return next(part for part in model.modules() if isinstance(part, MemoryRead))
