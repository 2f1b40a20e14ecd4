"""What a forward pass gives: logits, and the features they were made of."""

from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """Logits ``(B, C)`` of a batch and the backbone's features of it, ``(B, F)``."""

    logits: Tensor
    features: Tensor
