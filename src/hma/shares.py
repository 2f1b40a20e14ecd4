"""What each of several answers is to count, by rows that none of them has learned from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hma.errors import UserError
from hma.targets import Number, Target

MOST_NUMBERS = 2**22
"""Outputs of one learner that shares are fitted to; of more rows some are taken, evenly."""
LEAST_ERROR = 1e-12


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

    over shares that sum to 1. The second sum pulls weakly towards equal shares, as ``a = 1`` more
    row for each learner would that it alone answers. Squared errors of numbers are counted in units
    of the least mean squared error, as the logarithm of a normal density has them. A learner
    whose outputs are not all finite gets no share.

    Args:
        logits: Of each learner on the same rows, ``(N, outputs)``.
        labels: Of these rows.
        target: What a label is.
        counts: What each row counts, ``(N,)``; None for 1.
        favour: ``a`` of each learner; None for 1.

    Example:
        >>> from hma.targets import Classes
        >>> right, wrong = torch.tensor([[3.0, 0.0]] * 50), torch.tensor([[0.0, 3.0]] * 50)
        >>> shares = fitted_shares([right, wrong], torch.zeros(50, dtype=torch.long), Classes(2))
        >>> [round(share, 2) for share in shares]
        [0.98, 0.02]
    """
    sound = [m for m, said in enumerate(logits) if bool(said.isfinite().all())]
    if not sound or len(labels) == 0:
        raise UserError("shares must be fitted to finite outputs of at least one row, got none")
    rows = _some_rows(len(labels), target.outputs)
    said = [logits[m][rows].detach().cpu().double() for m in sound]
    labels = labels[rows].cpu()
    count = torch.ones(len(rows)) if counts is None else counts[rows].cpu()
    unit = 1.0
    if isinstance(target, Number):
        errors = [float((target.loss(z, labels) * count).sum() / count.sum()) for z in said]
        unit = 2 * max(min(errors), LEAST_ERROR)
    more = torch.tensor([1.0 if favour is None else favour[m] for m in sound])
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
