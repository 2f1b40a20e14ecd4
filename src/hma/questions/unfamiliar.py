r"""How unfamiliar rows are to a memory: how far they lie from the rows that vote on them.

.. math:: u(x) = -\log \sum_j \exp(-e^t |k - k_j|^2 / \sqrt{K})

over the rows that vote, slots too: what the softmax of :class:`hma.vote.read.VotingRead` divides
by, and so, but for a constant, minus the logarithm of a density with a bell at every stored row. A
softmax only says who of them is nearer; that all are far away is lost in it. Two rivals look at
the answer instead of the rows: :func:`doubt` and :func:`energy`.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hma.model import MemoryModel


@torch.no_grad()
def unfamiliarity(model: "MemoryModel", x: Any = None, *, features: Tensor | None = None) -> Tensor:
    """Return how unfamiliar each row is, ``(B,)``: the larger the less the memory knows of it.

    Infinite where nothing is stored. Numbers compare rows asked of one memory, not memories: for
    a rule such as "above this it is unknown" take
    :func:`hma.questions.conformal.threshold` of rows that were not trained on.

    Args:
        model: Its rows vote (:class:`hma.VotingMemory`); evaluated in eval mode, its own mode is
            restored.
        x: The batch, as the backbone takes it; unused if ``features`` are given.
        features: Features that the backbone has already made, ``(B, F)``.

    Example:
        >>> from torch import nn
        >>> from hma import VotingMemory
        >>> model = VotingMemory(nn.Identity(), num_classes=2, feature_dim=4).eval()
        >>> model.remember(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> seen, strange = unfamiliarity(model, torch.stack([torch.eye(4)[0], -torch.eye(4)[0]]))
        >>> bool(seen < strange)
        True
    """
    with model.reading():
        return model.unfamiliarity(model.backbone(x) if features is None else features)


def doubt(probabilities: Tensor) -> Tensor:
    """Return what the likeliest class lacks to certainty, ``(B, C)`` to ``(B,)``."""
    return 1 - probabilities.amax(dim=1)


def energy(logits: Tensor) -> Tensor:
    """Return the free energy of a head's logits, ``(B, C)`` to ``(B,)``.

    Logits that are logarithms of probabilities, such as mixed ones, have none: it is 0.
    """
    return -logits.logsumexp(dim=1)
