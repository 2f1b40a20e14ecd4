"""A number that classes decide, beside what it is when the classes are permuted."""

from collections.abc import Callable

import torch
from torch import Tensor

REPEATS = 199
"""Permutations: enough for a p-value of 0.005."""


def against_permuted(
    statistic: Callable[[Tensor], float], labels: Tensor, *, two_sided: bool = False
) -> dict[str, float]:
    """Return ``statistic(labels)`` beside its distribution over permutations of the labels.

    The p-value counts permutations that reach the value, itself included, so it is never 0; of a
    number that is not defined it is 1.

    Args:
        statistic: From labels ``(N,)`` to a number.
        labels: Which class each row has, ``(N,)``.
        two_sided: Count permutations that are as far from their mean on either side.

    Example:
        >>> labels = torch.tensor([0] * 10 + [1] * 10)
        >>> found = against_permuted(lambda l: float((l == labels).float().mean()), labels)
        >>> found["value"], found["p"]
        (1.0, 0.005)
    """
    draw = torch.Generator().manual_seed(0)
    orders = (torch.randperm(len(labels), generator=draw) for _ in range(REPEATS))
    value = statistic(labels)
    chance = torch.tensor([statistic(labels[order]) for order in orders], dtype=torch.float64)
    mean = float(chance.mean())
    below = chance < value
    if two_sided:
        below = (chance - mean).abs() < abs(value - mean)
    low, high = chance.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return {
        "value": round(value, 6),
        "chance": round(mean, 6),
        "low": round(low, 6),
        "high": round(high, 6),
        "p": round((1 + int((~below).sum())) / (1 + REPEATS), 6),
    }


def silhouette(distances: Tensor, labels: Tensor) -> float:
    r"""Return how much nearer rows are to their own class than to the next one, from -1 to 1.

    .. math:: \frac1N \sum_i \frac{b_i - a_i}{\max(a_i, b_i)}

    with the mean distance ``a`` to the others of the class and ``b`` to the nearest other class; a
    row that is alone in its class counts 0.

    Args:
        distances: Between rows, ``(N, N)``.
        labels: Class ids, ``(N,)``.

    Example:
        >>> places = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
        >>> round(silhouette(torch.cdist(places, places), torch.tensor([0, 0, 1, 1])), 3)
        0.9
    """
    _, own = torch.unique(labels, return_inverse=True)
    member = torch.nn.functional.one_hot(own).to(distances)  # (N, C)
    count = member.sum(dim=0)  # (C,)
    sums = distances @ member  # (N, C)
    mates = count[own] - 1  # (N,)
    inside = sums.gather(1, own[:, None])[:, 0] / mates.clamp(min=1)
    means = (sums / count).masked_fill(member.bool(), float("inf"))
    outside = means.amin(dim=1)
    larger = torch.maximum(inside, outside)
    each = torch.where((mates > 0) & (larger > 0), (outside - inside) / larger, 0.0)
    return float(each.mean())
