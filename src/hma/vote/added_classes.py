"""Classes that a trained model is taught by its memory alone: no step of training, no new weights.

The head knows nothing of such a class, and says nothing against it either. With ``v`` the vote of
the stored rows and ``u`` what it gives to classes that were added, the head's answer is completed
by the vote before both are mixed as ever:

    h_c = (1 - u) p_head,c   of a class the head knows,      h_c = v_c   of one it does not
    p   = (1 - s) h + s v

so that a class that was added has the probability ``v_c`` whatever ``s``, and as long as no row of
one is stored, ``u`` is 0 and nothing has changed.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from hma.memory.locking import writes
from hma.options.config import ConfigError
from hma.targets import Target
from hma.targets.target import SILENT, expect_count

if TYPE_CHECKING:
    from hma.vote.config import VoteConfig
    from hma.vote.voting_memory import VotingMemory


@writes
def add_classes(model: "VotingMemory", count: int) -> range:
    """Let ``count`` more classes be stored and answered; return their ids.

    Args:
        model: Its stored rows answer for them.
        count: How many.
    """
    expect_growing(model.target, model.config)
    expect_count("count", count, "classes to add")
    assert model.real is not None
    before, queue, grown = model.target.outputs, model.real.queue, model.target.grown(count)
    if queue.labels.dim() == 2:  # distributions: nothing of what is stored is of a new class
        queue.labels = pad(queue.labels, (0, count))
    for holder in (model, model.vote, queue):
        holder.target = grown
    for solved in model.solved:
        solved.target = grown
        solved.prior = pad(solved.prior, (0, count))
    model.num_classes, model.num_labels = grown.outputs, len(grown.prototypes())
    model.reproject()
    return range(before, grown.outputs)


def expect_growing(target: Target, config: "VoteConfig") -> None:
    """Raise unless a model can answer with classes that its head does not know."""
    if not target.picks_one or target.outputs == 1:
        got = "one logit" if target.picks_one else f"the target {target.kind!r}"
        raise ConfigError(
            f"added classes need a model of two classes or more, got {got}; build "
            "VotingMemory(..., num_classes=2) or more"
        )
    if config.slots_per_class or not config.has_real_memory:
        raise ConfigError(
            "added classes are known by stored rows alone and need slots_per_class=0 and a real "
            f"memory, got slots_per_class={config.slots_per_class} and "
            f"memory_size={config.memory_size}"
        )


def pad_unseen_classes(head: Tensor, target: Target) -> Tensor:
    """Return the logits of a head with those of the classes it does not know, ``(B, C)``."""
    return pad(head, (0, target.beyond_head), value=SILENT) if target.beyond_head else head


def complete_head(head: Tensor, vote: Tensor, target: Target) -> Tensor:
    """Return the head's logits with the vote's for classes that the head does not know.

    Args:
        head: Of the head, ``(B, C)``.
        vote: Of the vote, logarithms of shares, ``(B, C)``.
        target: What a label is.

    Example:
        >>> from hma.targets import Classes
        >>> vote = torch.tensor([[0.25, 0.25, 0.5]]).log()
        >>> complete_head(torch.zeros(1, 3), vote, Classes(3, added=1)).exp()
        tensor([[0.2500, 0.2500, 0.5000]])
    """
    if not target.beyond_head:
        return head
    known = head.shape[1] - target.beyond_head
    left = vote[:, :known].logsumexp(dim=1, keepdim=True)  # log(1 - u)
    return torch.cat([head[:, :known].log_softmax(dim=1) + left, vote[:, known:]], dim=1)
