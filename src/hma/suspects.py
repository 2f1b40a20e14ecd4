"""Which stored labels the other rows deny: every row is asked of the memory without itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hma.attention import Projected
from hma.errors import UserError
from hma.keyed_rows import KeyedRows
from hma.labelled_rows import Group, LabelledRows
from hma.momentum import evaluating
from hma.targets import Number, Target
from hma.voting import VotingRead

if TYPE_CHECKING:
    from hma.model import HMA

MOST_SCORES = 2**22
"""Distances that are held at once, so that memory stays flat."""
NEAREST = 64
"""Rows with the largest shares among which those that speak against a label are sought."""
AGAINST = 3
"""How many of them are kept for each row."""
NORMAL_MEDIAN = 0.6745
"""Median of the size of a standard normal number."""


@dataclass(frozen=True, eq=False)
class Suspects:
    """What the vote of all other rows says of each stored row, in the order rows were stored.

    Args:
        target: What a label is.
        ids: Sample ids, ``(N,)``; -1 for a row without one.
        given: Labels as they were given, ``(N, ...)``.
        voted: What the others decide, in the same form.
        expected: Their probabilities ``(N, O)``, or the number ``(N,)``.
        score: How far the label is from their answer, ``(N,)``: of classes the probability of all
            other classes (of soft ones, what the distributions do not share), of yes/no labels
            that of the most doubtful one, of a number the difference in units of what is usual.
            NaN where the vote cannot know: no other row has that label.
        against: Places of the rows that speak most against the label, ``(N, A)``, -1 for none.
        shares: What each of these counts in the vote, ``(N, A)``.
    """

    target: Target
    ids: Tensor
    given: Tensor
    voted: Tensor
    expected: Tensor
    score: Tensor
    against: Tensor
    shares: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def order(self) -> Tensor:
        """Places of the rows, ``(N,)``: the most suspicious first, those not judged last.

        Of equal rows the one that was stored first comes first.
        """
        return self.score.nan_to_num(nan=-1.0).argsort(descending=True, stable=True)

    @property
    def judged(self) -> Tensor:
        """Where the vote can say something, ``(N,)``."""
        return ~self.score.isnan()


class _Found(NamedTuple):
    counted: Tensor
    against: Tensor
    shares: Tensor


@torch.no_grad()
def suspects(model: "HMA", *, tick: Callable[[int, int], None] = lambda done, of: None) -> Suspects:
    r"""Ask the memory for the label of each of its rows without that row.

    .. math:: p_i = \sum_{j \ne i} w_{ij} y_j, \quad
        w_{ij} = \mathrm{softmax}_{j \ne i}(-e^t |k_i - k_j|^2 / \sqrt{K})

    Rows alone vote: head and slots have learned from the very label that is asked about. Keys were
    learned by such a vote too. Pairs of rows are looked at in blocks; where ``model.real.nearest``
    chooses rows, those alone vote.

    Args:
        model: One whose stored rows vote (``similarity='distance'``), with two rows or more.
        tick: Called with the rows that are done, and with all of them.

    Example:
        >>> from hma import HMA, HMAConfig
        >>> config = HMAConfig(slots_per_class=0)
        >>> model = HMA(torch.nn.Identity(), 2, config, feature_dim=2)
        >>> x = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [1.0, 0.0], [2.0, 0.0]])
        >>> model.eval().remember(x, torch.tensor([0, 0, 1, 1, 1]))
        >>> found = suspects(model)
        >>> found.order[0].item(), found.given[2].item(), found.voted[2].item()
        (2, 1, 0)
    """
    vote, queue = _voting(model)
    target, places = model.target, queue.order()
    count = len(places)
    if count < 2:
        raise UserError(
            f"suspects needs a memory of 2 or more rows, got {count}; remember rows with labels"
        )
    nearest = None if model.real is None else model.real.nearest
    rows_at_once = NEAREST if nearest is not None else max(1, MOST_SCORES // max(1, queue.size))
    stated = target.stated(queue.labels)
    found: list[_Found] = []
    with evaluating(model):
        assert model.real is not None
        memory = vote.memories(model.real, None).real
        assert memory is not None
        for own in torch.split(places, rows_at_once):
            queries = vote.queries(vote.keys(queue.features[own]))
            chosen = model.real.places(queries, memory)  # (1, B, K)
            found.append(_asked(vote, queue.features[own], own, memory, chosen, stated))
            tick(sum(len(one.counted) for one in found), count)
    counted, against, shares = (torch.cat(parts) for parts in zip(*found, strict=True))
    logits, labels = target.tallied(counted), queue.labels[places]
    expected = target.expected(logits)
    numbered = torch.full((queue.size + 1,), -1, device=places.device)  # the last: nobody
    numbered[places] = torch.arange(count, device=places.device)
    return Suspects(
        target=target,
        ids=queue.ids[places].clone(),
        given=target.given(labels),
        voted=target.decided(logits),
        expected=expected,
        score=_scores(target, labels, expected),
        against=numbered[against],
        shares=shares,
    )


def _voting(model: "HMA") -> tuple[VotingRead, KeyedRows]:
    store = None if model.real is None else model.real.queue
    if model.vote is None or not isinstance(store, KeyedRows):
        config = model.config
        raise UserError(
            "suspects needs stored rows that vote, got "
            f"similarity={config.similarity!r} and queue_size={config.queue_size}; build or train "
            "the model with similarity='distance' and a queue"
        )
    return model.vote, store


def _asked(
    vote: VotingRead,
    features: Tensor,
    own: Tensor,
    memory: Projected | LabelledRows,
    chosen: Tensor | None,
    stated: Tensor,
) -> _Found:
    """Return what all rows but ``own`` say to rows with ``features`` ``(B, F)``.

    Args:
        vote: The read.
        features: Of the rows that are asked about.
        own: Their places, ``(B,)``.
        memory: All rows.
        chosen: Places of those that vote, ``(1, B, K)``; None for all.
        stated: What each place's label says, ``(M, ...)``.
    """
    group: Group
    if chosen is None:
        group = memory.hiding(own[:, None] == torch.arange(len(stated), device=own.device))
    else:
        group = memory.at(chosen)
        hidden = chosen == own[:, None]
        bias = (
            torch.zeros_like(hidden, dtype=memory.keys.dtype) if group.bias is None else group.bias
        )
        group = group._replace(bias=bias.masked_fill(hidden, float("-inf")))
    weights = vote(features, [group]).shares[0]  # (1, B, K)
    most = weights[0].topk(min(NEAREST, weights.shape[-1]), dim=1)  # (B, up to NEAREST)
    voters = most.indices if chosen is None else chosen[0].gather(1, most.indices)
    apart = vote.target.apart(stated[own][:, None], stated[voters])
    blame = (
        (most.values * apart).nan_to_num(nan=0.0).topk(min(AGAINST, most.values.shape[1]), dim=1)
    )
    return _Found(
        counted=group.mixed(weights)[0],
        against=voters.gather(1, blame.indices).masked_fill(blame.values <= 0, -1),
        shares=most.values.gather(1, blame.indices).masked_fill(blame.values <= 0, 0.0),
    )


def _scores(target: Target, labels: Tensor, expected: Tensor) -> Tensor:
    """Return how far labels are from the answers of others; numbers in units of what is usual.

    What is usual is the spread of the differences by their median, which a few wrong labels do not
    move; the root of their mean square where more than half of them are 0.
    """
    stated = (
        target.stated(labels).to(expected.dtype).masked_fill(target.unshared(labels), torch.nan)
    )
    apart = target.apart(stated, expected)
    if not isinstance(target, Number):
        return apart
    known = apart[~apart.isnan()]
    usual = known.median() / NORMAL_MEDIAN if len(known) else apart.new_ones(())
    usual = torch.where(usual > 0, usual, known.square().mean().sqrt())
    return apart / torch.where(usual > 0, usual, 1.0)
