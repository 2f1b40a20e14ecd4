"""The supervised contrastive loss: near rows of one's own label, far from all others."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hma.memory.distributed import gather_rows, rank
from hma.memory.memories import LearnedRows
from hma.memory.rows import MemoryQueue
from hma.options.config import ConfigError
from hma.targets import UNKNOWN, Number, Target

if TYPE_CHECKING:
    from hma.attention.hma import HMA


class LabelledKeys(NamedTuple):
    """Rows to compare with.

    Shape:
        - ``keys`` ``(N, K)``; ``membership`` ``(N, P)``, 0 for a row without a label; ``ids``
          ``(N,)``, below 0 where a row has none.
    """

    keys: Tensor
    membership: Tensor
    ids: Tensor


@torch.no_grad()
def stored_keys(queue: MemoryQueue) -> LabelledKeys:
    """Return stored rows."""
    membership = queue.target.membership(queue.labels) * queue.filled()[:, None]
    return LabelledKeys(queue.features, membership, queue.ids)


def slot_keys(learned: LearnedRows, target: Target) -> LabelledKeys:
    """Return slots, which learn too."""
    assert learned.slots is not None
    ids = torch.full_like(learned.classes, UNKNOWN)
    return LabelledKeys(learned.slots, target.membership(learned.labels), ids)


def supervised_contrast(
    anchors: LabelledKeys, others: LabelledKeys, hidden: Tensor, temperature: float
) -> Tensor:
    r"""Return the contrastive loss of each anchor, ``(B,)``; 0 where no other row agrees with it.

    .. math:: \ell_i = - \frac{1}{\sum_j a_{ij}} \sum_j a_{ij}
        \log \frac{\exp(z_i \cdot z_j / \tau)}{\sum_{k} \exp(z_i \cdot z_k / \tau)}

    over the rows that are not hidden, with :math:`z` keys of length 1 and :math:`a_{ij}` how far
    two labels agree: the inner product of what they belong to, for classes 1 or 0. Then this is
    :math:`L_{out}` of Khosla et al., "Supervised Contrastive Learning" (arXiv 2004.11362). A row
    without a label is nobody's other.

    Args:
        anchors: Whose loss it is, ``B`` of them.
        others: What they are compared with, ``N`` rows.
        hidden: Which rows an anchor is not compared with, ``(B, N)`` of bool.
        temperature: What similarities are divided by, :math:`\tau`.

    Example:
        >>> keys, labels = torch.eye(3)[[0, 0, 1]], torch.eye(2)[[0, 0, 1]]
        >>> rows = LabelledKeys(keys, labels, torch.arange(3))
        >>> supervised_contrast(rows, rows, torch.eye(3).bool(), temperature=1.0)
        tensor([0.3133, 0.3133, 0.0000])
    """
    own, theirs = (rows.membership.to(anchors.keys.dtype) for rows in (anchors, others))
    hidden = hidden | (theirs.sum(dim=1) == 0)
    agreement = (own @ theirs.T).masked_fill(hidden, 0)  # (B, N)
    scores = normalize(anchors.keys) @ normalize(others.keys).T / temperature  # (B, N)
    # a finite number, so that an anchor without any other row has a gradient, which is 0
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    shares = scores.log_softmax(dim=1).masked_fill(hidden, 0)
    total = agreement.sum(dim=1)  # (B,)
    return (agreement * -shares).sum(dim=1) / torch.where(total > 0, total, 1)


def batch_rows(keys: Tensor, membership: Tensor, ids: Tensor | None) -> LabelledKeys:
    """Return rows of a batch; those without an id get one of their own, on every process."""
    own = -2 - (torch.arange(len(keys), device=keys.device) + (rank() << 32))
    given = own if ids is None else torch.where(ids < 0, own, ids)
    return LabelledKeys(keys, membership, given)


def contrast_of_batch(
    batch: LabelledKeys, memory: list[LabelledKeys], temperature: float, gather: bool
) -> Tensor:
    """Return the loss of each row of a batch over its mates, stored rows and slots, ``(B,)``.

    No row is compared with itself, and no row of the batch with a stored copy of it.

    Args:
        batch: Rows of this process, with ids, see :func:`batch_rows`.
        memory: Stored rows and slots.
        temperature: What similarities are divided by.
        gather: Whether mates are the rows of all processes.
    """
    mates = LabelledKeys(*map(gather_rows, batch)) if gather else batch
    rows = LabelledKeys(*(torch.cat(parts) for parts in zip(mates, *memory, strict=True)))
    copies = torch.isin(rows.ids[len(mates.ids) :], mates.ids)  # (M + S,)
    itself = batch.ids[:, None] == mates.ids  # (B, mates)
    hidden = torch.cat([itself, copies.expand(len(itself), -1)], dim=1)
    return supervised_contrast(batch, rows, hidden, temperature)


def contrast_over_memory(model: "HMA", features: Tensor, y: Tensor, ids: Tensor | None) -> Tensor:
    """Return the loss of each row of a batch over its mates and the memories of a model, ``(B,)``.

    Args:
        model: Rows are compared by their features.
        features: The batch, ``(B, F)``.
        y: True labels.
        ids: Sample ids ``(B,)``; without them a row meets its own stored copy.
    """
    expect_classes(model.target)
    config, target = model.config, model.target
    labels = target.check(y.to(features.device), len(features))
    known = None if ids is None else ids.to(features.device)
    batch = batch_rows(features, target.membership(labels), known)
    memory = []
    if model.real is not None:
        memory.append(stored_keys(model.real.queue))
    if model.synthetic is not None and model.synthetic.slots is not None:
        memory.append(slot_keys(model.synthetic, target))
    return contrast_of_batch(batch, memory, config.contrast_temperature, config.gather_batch)


def expect_classes(target: Target) -> None:
    """Raise for labels of which no two are alike."""
    if isinstance(target, Number):
        raise ConfigError(
            "contrastive needs labels that rows can share, classes or yes/no, got numbers; "
            "set contrastive=0"
        )
