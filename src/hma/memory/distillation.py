"""Slots that stand for their class: a few rows with the statistics of many."""

from typing import NamedTuple

import torch
from torch import Tensor

RANDOM_FEATURES = 512
"""Width of the random map that rows and slots are compared through."""
STEPS = 200
LARGEST_STEP = 0.1
"""Of Adam, in standard deviations of the features; it falls to 0."""


class RandomMap(NamedTuple):
    """A random layer, :math:`x \\mapsto \\max(0, W x + b)`.

    Shape:
        - ``weight`` ``(F, R)``, ``bias`` ``(R,)``.
    """

    weight: Tensor
    bias: Tensor

    def moments(self, rows: Tensor) -> Tensor:
        """Return what the layer makes of rows, and its squares: ``(N, F)`` to ``(N, 2R)``."""
        active = (rows @ self.weight + self.bias).relu()  # (N, R)
        return torch.cat([active, active.square()], dim=1)


def random_map(
    width: int, count: int = RANDOM_FEATURES, generator: torch.Generator | None = None
) -> RandomMap:
    """Draw a layer that keeps the scale of standardised rows of ``width`` numbers."""
    weight = torch.randn(width, count, generator=generator) / width**0.5
    return RandomMap(weight, torch.randn(count, generator=generator))


def matched(
    start: Tensor,
    groups: Tensor,
    features: Tensor,
    belongs: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return slots whose mean embedding is that of their group's rows (distribution matching).

    .. math:: \min_s \sum_c \Big| \frac{1}{n_c} \sum_{i \in c} \phi(x_i)
        - \frac{1}{m} \sum_{j \in c} \phi(s_j) \Big|^2

    with :math:`\phi` the random features of standardised rows and their squares (Zhao and Bilen,
    "Dataset Condensation with Distribution Matching", WACV 2023, there with random networks on
    images).

    Args:
        start: Where slots start, ``(S, F)``.
        groups: The group of each slot, ``(S,)``; every group has rows.
        features: Rows, ``(N, F)``.
        belongs: Which rows are of which group, ``(N, P)`` of bool.
        generator: Of the CPU; draws everything random. Torch's own if not given.
    """
    drawn = random_map(start.shape[1], generator=generator)
    layer = RandomMap(*(part.to(start) for part in drawn))
    centre, spread = features.mean(dim=0), features.std(dim=0, correction=0)
    spread = torch.where(spread > 0, spread, 1)
    wanted = _means(layer.moments((features - centre) / spread), belongs.to(start))  # (P, 2R)
    members = torch.nn.functional.one_hot(groups, belongs.shape[1]).to(start)  # (S, P)
    held = members.sum(dim=0) > 0  # (P,)
    slots = ((start - centre) / spread).detach().clone()
    with torch.enable_grad():
        slots.requires_grad_()
        optimizer = torch.optim.Adam([slots], lr=LARGEST_STEP)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = LARGEST_STEP * (1 - step / STEPS)
            apart = (_means(layer.moments(slots), members) - wanted)[held]
            optimizer.zero_grad()
            apart.square().sum(dim=1).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return slots.detach() * spread + centre


def _means(moments: Tensor, members: Tensor) -> Tensor:
    """Return the mean of each group, ``(N, R)`` and ``(N, P)`` to ``(P, R)``; 0 of none."""
    return members.T @ moments / members.sum(dim=0).clamp(min=1)[:, None]
