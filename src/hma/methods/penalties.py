"""What invariance penalties are made of: risks, gradients and variances of each environment."""

from typing import NamedTuple

import torch
from torch import Tensor

from hma.targets import Classes, Target

LEAST_ROWS = 2
"""An environment with fewer rows in a batch has no two halves and enters no penalty."""


class Grouped(NamedTuple):
    """Rows of a batch by environment, with nothing read back from the device.

    Environments are numbered by place in a table as long as the batch, because how many there
    are is known to the device alone; places without an environment hold nothing.

    Shape:
        - ``environment`` ``(B,)``: place of each row's environment.
        - ``second`` ``(B,)``: 1 for every second row of an environment, else 0.
        - ``weight`` ``(B,)``: what a row counts in the loss.
        - ``counts`` ``(B,)``: rows of the environment at each place.
    """

    environment: Tensor
    second: Tensor
    weight: Tensor
    counts: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of ``values`` ``(B, ...)`` over the rows of each environment."""
        return torch.zeros_like(values).index_add(0, self.environment, values)

    def means(self, values: Tensor, weight: Tensor) -> Tensor:
        """Return the weighted mean of ``values`` ``(B,)`` of each environment, 0 without weight."""
        total = self.sums(weight)
        return self.sums(values * weight) / torch.where(total == 0, 1, total)

    @property
    def present(self) -> Tensor:
        """Which places hold an environment that has weight, ``(B,)``."""
        return self.sums(self.weight) > 0

    @property
    def large_enough(self) -> Tensor:
        """Which of them have two rows or more, ``(B,)``."""
        return self.present & (self.counts >= LEAST_ROWS)


def by_environment(environment: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Grouped:
    """Group the rows of a batch by environment, and each environment into two halves.

    Args:
        environment: Any number for each row, equal for rows of one environment, ``(B,)``.
        weight: Weight of each row in the loss ``(B,)``; None for 1.
        dtype: Floating point format of what is to be averaged.

    Example:
        >>> rows = by_environment(torch.tensor([7, 3, 7, 7]), None, torch.float32)
        >>> rows.environment.tolist(), rows.second.tolist(), rows.counts.tolist()
        ([1, 0, 1, 1], [1.0, 0.0, 0.0, 1.0], [1.0, 3.0, 0.0, 0.0])
    """
    ordered, order = environment.sort(stable=True)  # (B,) each
    change = (ordered[1:] != ordered[:-1]).long()  # (B - 1,)
    place = torch.cat([change.new_zeros(min(len(ordered), 1)), change]).cumsum(0)  # (B,)
    places = torch.empty_like(place).scatter(0, order, place)
    ones = torch.ones(len(ordered), dtype=dtype, device=environment.device)
    counts = torch.zeros_like(ones).index_add(0, places, ones)
    turn = torch.arange(len(ordered), device=environment.device) % 2  # alternates in each of them
    second = torch.empty_like(ones).scatter(0, order, turn.to(dtype))
    return Grouped(places, second, ones if weight is None else weight.to(dtype), counts)


def mean_over(which: Tensor, values: Tensor) -> Tensor:
    """Return the mean of the ``values`` that ``which`` marks, 0 if it marks none."""
    return torch.where(which, values, 0).sum() / which.sum().clamp(min=1)


def row_gradients(logits: Tensor, labels: Tensor, target: Target) -> Tensor:
    r"""Return the gradient of each row's loss by a factor on its logits, at 1.

    .. math:: \left. \frac{d}{dw} \ell(w z, y) \right|_{w = 1}
        = \sum_c \big( \mathrm{softmax}(z)_c - [c = y] \big) z_c

    Written out, as for class ids, it needs no second graph. One logit: ``(sigmoid(z) - y) * z``.

    Example:
        >>> logits, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([1])
        >>> row_gradients(logits, labels, Classes(2)).round(decimals=4)
        tensor([-0.2384])
    """
    if not isinstance(target, Classes):
        factor = torch.ones_like(logits[:, :1], requires_grad=True)  # (B, 1)
        losses = target.loss(logits * factor, labels)
        return torch.autograd.grad(losses.sum(), factor, create_graph=True)[0][:, 0]
    if logits.shape[1] == 1:
        only = logits[:, 0]
        return (only.sigmoid() - labels.to(only.dtype)) * only
    expected = (logits.softmax(dim=1) * logits).sum(dim=1)  # (B, C) -> (B,)
    return expected - logits.gather(1, labels[:, None])[:, 0]


def mean_risk(losses: Tensor, rows: Grouped) -> Tensor:
    """Return the mean over environments of the mean loss of each."""
    return mean_over(rows.present, rows.means(losses, rows.weight))


def gradient_penalty(gradients: Tensor, rows: Grouped) -> Tensor:
    """Return the mean over environments of the squared gradient, without bias.

    The square of a mini-batch mean is too large by its variance; the product of the means of two
    halves is not. It may be negative.
    """
    halves = [rows.weight * half for half in (rows.second, 1 - rows.second)]
    one, other = (rows.means(gradients, weight) for weight in halves)
    both = (rows.sums(halves[0]) > 0) & (rows.sums(halves[1]) > 0)
    return mean_over(both, one * other)


def risk_variance(losses: Tensor, rows: Grouped) -> Tensor:
    """Return the variance of the risks over environments, divided by their number."""
    risks = rows.means(losses, rows.weight)
    return mean_over(rows.large_enough, (risks - mean_over(rows.large_enough, risks)).square())


def feature_variance(features: Tensor, rows: Grouped) -> Tensor:
    """Return the variance of each feature within an environment, mean over both.

    Divided by the rows of the environment less one; row weights do not count.
    """
    counts = rows.counts[:, None]  # (B, 1)
    means = rows.sums(features) / counts.clamp(min=1)  # (B, F), one row per environment
    apart = (features - means[rows.environment]).square()  # (B, F)
    variances = rows.sums(apart) / (counts - 1).clamp(min=1)  # (B, F)
    return mean_over(rows.counts >= LEAST_ROWS, variances.mean(dim=1))
