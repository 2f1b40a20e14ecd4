"""How many labels are wrong: cleanlab's confident learning on what the other rows vote."""

import numpy as np
import torch
from torch import Tensor

from hma.errors import UserError
from hma.extras import needed
from hma.questions.suspects import Suspects
from hma.targets import Classes, SoftClasses

PURPOSE = "telling how many labels are wrong"


def label_issues(found: Suspects) -> Tensor:
    """Return which labels cleanlab takes for wrong, ``(N,)`` of bool.

    cleanlab wants probabilities from a model that has not seen the row; the leave-one-out vote
    gives them without training again. A soft label counts as its likeliest class. Rows whose label
    no other row has are left out.

    Args:
        found: Of labels that are classes.
    """
    if not isinstance(found.target, Classes | SoftClasses):
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
