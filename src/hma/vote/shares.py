"""What each of several answers is to count, by rows that none of them has learned from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hma.errors import UserError
from hma.targets import Number, Target

MOST_NUMBERS = 2**22
"""Outputs of one learner that shares are fitted to; of more rows some are taken, evenly."""
LEAST_ERROR = 1e-12
EVIDENCE = 1 / 5
"""What the loss of a row counts for or against a learner that answers alone: rows are alike, and
learners were chosen among many, so a likelihood as it is would be too sure."""
LEAST_FAVOUR = 0.02
"""Of every learner, so that none is ruled out by few rows."""


def fitted_shares(
    logits: Sequence[Tensor],
    labels: Tensor,
    target: Target,
    *,
    counts: Tensor | None = None,
    favour: Sequence[float] | None = None,
) -> list[float]:
    r"""Return what each learner counts: the shares with the least loss on held-out rows.

    .. math:: \arg\min_w \sum_i \ell\Big(\sum_m w_m p_{mi},\, y_i\Big) - \sum_m a_m \log w_m

    over shares that sum to 1. The second sum pulls weakly towards shares in the ratio of ``a``, as
    ``a`` more rows for each learner would that it alone answers. There are as many such rows as
    learners, parted by how well each answers the held-out rows alone:

    .. math:: a_m = 0.02 + \frac{M e^{-L_m / 5}}{\sum_k e^{-L_k / 5}}

    with the summed loss :math:`L_m`: equal where rows are too few to tell, one learner's where they
    tell. Squared errors of numbers are counted in units of the least mean squared error, as the
    logarithm of a normal density has them. A learner whose outputs are not all finite gets no
    share.

    Args:
        logits: Of each learner on the same rows, ``(N, outputs)``.
        labels: Of these rows.
        target: What a label is.
        counts: What each row counts, ``(N,)``; None for 1.
        favour: ``a`` of each learner, instead.

    Example:
        >>> from hma.targets import Classes
        >>> right, wrong = torch.tensor([[3.0, 0.0]] * 50), torch.tensor([[0.0, 3.0]] * 50)
        >>> shares = fitted_shares([right, wrong], torch.zeros(50, dtype=torch.long), Classes(2))
        >>> [round(share, 2) for share in shares]
        [1.0, 0.0]
    """
    sound = [m for m, said in enumerate(logits) if bool(said.isfinite().all())]
    if not sound or len(labels) == 0:
        raise UserError("shares must be fitted to finite outputs of at least one row, got none")
    rows = _some_rows(len(labels), target.outputs)
    said = [logits[m][rows].detach().cpu().double() for m in sound]
    labels = labels[rows].cpu()
    count = torch.ones(len(rows)) if counts is None else counts[rows].cpu()
    losses = torch.stack([(target.loss(z, labels) * count).sum() for z in said]).double()
    unit = 1.0
    if isinstance(target, Number):
        unit = 2 * max(float(losses.min() / count.sum()), LEAST_ERROR)
    if favour is None:
        alone = (-EVIDENCE * losses / unit).softmax(dim=0)
        more = LEAST_FAVOUR + len(said) * alone
    else:
        more = torch.tensor([favour[m] for m in sound])
    free = torch.zeros(len(said), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [free],
        max_iter=200,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def cost() -> Tensor:
        optimizer.zero_grad()
        each = target.loss(target.mixed(said, free.softmax(dim=0)), labels)
        found = (each * count).sum() / unit - (more * free.log_softmax(dim=0)).sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    with torch.enable_grad():
        optimizer.step(cost)  # type: ignore[no-untyped-call]
    shares = dict(zip(sound, free.detach().softmax(dim=0).tolist(), strict=True))
    return [shares.get(m, 0.0) for m in range(len(logits))]


def _some_rows(count: int, outputs: int) -> Tensor:
    most = max(MOST_NUMBERS // outputs, 1)
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()
