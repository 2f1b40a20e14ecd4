"""Which stored labels the other rows deny: every row is asked of the memory without itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hma.errors import UserError
from hma.extras import needed
from hma.memory.blocks import MOST_DISTANCES
from hma.targets import Target

if TYPE_CHECKING:
    from hma.model import LeftOut, MemoryModel

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
def suspects(
    model: "MemoryModel", *, tick: Callable[[int, int], None] = lambda done, of: None
) -> Suspects:
    r"""Ask the memory for the label of each of its rows without that row.

    .. math:: p_i = \sum_{j \ne i} w_{ij} y_j, \quad
        w_{ij} = \mathrm{softmax}_{j \ne i}(-e^t |k_i - k_j|^2 / \sqrt{K})

    Rows alone vote: head and slots have learned from the very label that is asked about. Keys were
    learned by such a vote too. Pairs of rows are looked at in blocks; where ``model.real.nearest``
    chooses rows, those alone vote.

    Args:
        model: One whose stored rows vote (:class:`hma.VotingMemory`), with two rows or more.
        tick: Called with the rows that are done, and with all of them.

    Example:
        >>> from hma import VotingMemory
        >>> model = VotingMemory(torch.nn.Identity(), 2, feature_dim=2)
        >>> x = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [1.0, 0.0], [2.0, 0.0]])
        >>> model.eval().remember(x, torch.tensor([0, 0, 1, 1, 1]))
        >>> found = suspects(model)
        >>> found.order[0].item(), found.given[2].item(), found.voted[2].item()
        (2, 1, 0)
    """
    with model.reading():
        queue = model.stored_samples("suspects")
        target, places = model.target, queue.order()
        count = len(places)
        if count < 2:
            raise UserError(
                f"suspects needs a memory of 2 or more rows, got {count}; remember rows with labels"
            )
        assert model.real is not None
        chosen = model.real.nearest is not None
        rows_at_once = NEAREST if chosen else max(1, MOST_DISTANCES // max(1, queue.size))
        stated = target.stated(queue.labels)
        found: list[_Found] = []
        for own in torch.split(places, rows_at_once):
            found.append(_find_blame(target, model.leave_one_out(own, slots=False), own, stated))
            tick(sum(len(one.counted) for one in found), count)
        counted, against, shares = (torch.cat(parts) for parts in zip(*found, strict=True))
        logits, labels = target.tally(counted), queue.labels[places]
        expected = target.expected(logits)
        numbered = torch.full((queue.size + 1,), -1, device=places.device)  # the last: nobody
        numbered[places] = torch.arange(count, device=places.device)
        return Suspects(
            target=target,
            ids=queue.ids[places].clone(),
            given=target.given(labels),
            voted=target.decide(logits),
            expected=expected,
            score=_scores(target, labels, expected),
            against=numbered[against],
            shares=shares,
        )


def _find_blame(target: Target, others: "LeftOut", own: Tensor, stated: Tensor) -> _Found:
    """Return what all rows but ``own`` say, and who of them speaks most against its label.

    Args:
        target: What a label is.
        others: What they say.
        own: Places of the rows that are asked about, ``(B,)``.
        stated: What each place's label says, ``(M, ...)``.
    """
    weights = others.weights  # (B, K)
    most = weights.topk(min(NEAREST, weights.shape[1]), dim=1)  # (B, up to NEAREST)
    voters = most.indices if others.places is None else others.places.gather(1, most.indices)
    apart = target.apart(stated[own][:, None], stated[voters])
    blame = (
        (most.values * apart).nan_to_num(nan=0.0).topk(min(AGAINST, most.values.shape[1]), dim=1)
    )
    return _Found(
        counted=others.counted,
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
    if target.gives_probabilities:
        return apart
    known = apart[~apart.isnan()]
    usual = known.median() / NORMAL_MEDIAN if len(known) else apart.new_ones(())
    usual = torch.where(usual > 0, usual, known.square().mean().sqrt())
    return apart / torch.where(usual > 0, usual, 1.0)


# --------------------------------------------------------------------------------- how many of them


PURPOSE = "telling how many labels are wrong"


def label_issues(found: Suspects) -> Tensor:
    """Return which labels cleanlab takes for wrong, ``(N,)`` of bool.

    cleanlab wants probabilities from a model that has not seen the row; the leave-one-out vote
    gives them without training again. A soft label counts as its likeliest class. Rows whose label
    no other row has are left out.

    Args:
        found: Of labels that are classes.
    """
    if not found.target.picks_one:
        raise UserError(
            f"cleanlab judges classes, got labels of the kind {found.target.kind!r}; "
            "leave it out: the order by score is there for all"
        )
    judged = found.judged.cpu()
    given = found.given.cpu()[judged]
    given = given.argmax(dim=1) if given.dim() > 1 else given
    issues = torch.zeros(len(found), dtype=torch.bool)
    issues[judged] = issues_of(given, found.expected.cpu()[judged])
    return issues


def issues_of(labels: Tensor, chances: Tensor) -> Tensor:
    """Return which labels cleanlab takes for wrong, ``(N,)`` of bool.

    Args:
        labels: Class ids, ``(N,)``.
        chances: Probabilities by a model that has not seen the row, ``(N, C)``.
    """
    find = needed("cleanlab.filter", PURPOSE, extra="labels").find_label_issues
    present, ids = np.unique(labels.numpy(), return_inverse=True)
    if len(present) < 2:  # nothing to confuse
        return torch.zeros(len(labels), dtype=torch.bool)
    seen = chances.double().numpy()[:, present]  # it wants every class to have rows
    seen = seen / seen.sum(axis=1, keepdims=True)
    return torch.from_numpy(np.asarray(find(ids, seen, n_jobs=1)))
