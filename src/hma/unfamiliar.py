r"""How unfamiliar rows are to a memory: how far they lie from the rows that vote on them.

.. math:: u(x) = -\log \sum_j \exp(-e^t |k - k_j|^2 / \sqrt{K})

over the rows that vote, slots too: what the softmax of :class:`hma.voting.VotingRead` divides by,
and so, but for a constant, minus the logarithm of a density that has a bell at every stored row. A
softmax only says who of them is nearer; that all are far away is lost in it. Two rivals look at the
answer instead of the rows: :func:`doubt` and :func:`energy`.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hma.config import ConfigError
from hma.labelled_rows import Group
from hma.memory import Memories
from hma.momentum import evaluating
from hma.vote_weighing import MOST_SCORES

if TYPE_CHECKING:
    from hma.model import HMA


@torch.no_grad()
def unfamiliarity(model: "HMA", x: Any = None, *, features: Tensor | None = None) -> Tensor:
    """Return how unfamiliar each row is, ``(B,)``: the larger the less the memory knows of it.

    Infinite where nothing is stored. Numbers compare rows asked of one memory, not memories: for
    a rule such as "above this it is unknown" take :func:`hma.conformal.threshold` of rows that were
    not trained on.

    Args:
        model: Its rows vote (``similarity='distance'``); evaluated in eval mode, its own mode is
            restored.
        x: The batch, as the backbone takes it; unused if ``features`` are given.
        features: Features that the backbone has already made, ``(B, F)``.

    Example:
        >>> from torch import nn
        >>> from hma import HMA
        >>> model = HMA(nn.Identity(), num_classes=2, feature_dim=4).eval()
        >>> model.remember(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> seen, strange = unfamiliarity(model, torch.stack([torch.eye(4)[0], -torch.eye(4)[0]]))
        >>> bool(seen < strange)
        True
    """
    if model.vote is None:
        raise ConfigError(
            "unfamiliarity is a distance to the rows that vote and needs similarity='distance', "
            f"got {model.config.similarity!r}; take HMAConfig()"
        )
    with evaluating(model):
        if features is None:
            features = model.backbone(x)
        held = 0 if model.real is None else model.real.queue.size
        parts = torch.split(features, max(1, MOST_SCORES // max(1, held)))
        memories = model._memories(model.context)
        return torch.cat([distance_to_voters(_scores(model, memories, part)) for part in parts])


def distance_to_voters(scores: Tensor) -> Tensor:
    """Return minus the logarithm of the summed nearness of rows, ``(B, N)`` to ``(B,)``.

    Args:
        scores: Minus the squared distance of each row that votes, times the sharpness of the vote;
            minus infinity for a row that does not.
    """
    return -scores.logsumexp(dim=1)


def doubt(probabilities: Tensor) -> Tensor:
    """Return what the likeliest class lacks to certainty, ``(B, C)`` to ``(B,)``."""
    return 1 - probabilities.amax(dim=1)


def energy(logits: Tensor) -> Tensor:
    """Return the free energy of a head's logits, ``(B, C)`` to ``(B,)``.

    Logits that are logarithms of probabilities, such as mixed ones, have none: it is 0.
    """
    return -logits.logsumexp(dim=1)


def _scores(model: "HMA", memories: Memories, features: Tensor) -> Tensor:
    """Return the scores of the rows that vote on each query, ``(B, F)`` to ``(B, N)``."""
    vote, stored = model.vote, model.real
    assert vote is not None
    keys = vote.keys(features)
    queries = vote.queries(keys)  # (1, B, K)
    groups: list[Group] = []
    if memories.real is not None and stored is not None:
        groups.append(stored.chosen(queries, memories.real)[0])
    if memories.synthetic is not None:
        groups.append(memories.synthetic)
    apart = vote.sharpness * keys.square().sum(dim=1)[:, None]  # (B, 1)
    scores = [group.scores(queries)[0] - apart for group in groups]
    return torch.cat([keys.new_empty(len(keys), 0), *scores], dim=1)
