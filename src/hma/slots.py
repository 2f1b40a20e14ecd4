"""How slots start: each function returns a first value for every slot.

A start is given the slots as they are ``(S, F)``, the prototype of each ``(S,)``, and, if there are
any, examples: features ``(N, F)`` and the prototype each belongs to most ``(N,)``.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hma.config import ConfigError
from hma.errors import wrong_choice
from hma.extras import needed

SPREAD = 0.02
"""Standard deviation of slots that start from nothing; relative to the features, of the noise that
keeps slots apart which start from the same place."""


class Examples(NamedTuple):
    """Rows to start slots from.

    Shape:
        - ``features`` ``(N, F)``; ``prototypes`` ``(N,)``.
    """

    features: Tensor
    prototypes: Tensor


Start = Callable[[Tensor, Tensor, Examples | None], Tensor]


def normal(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return small noise."""
    # DIFF[released code]: zeros there, so the slots of one class get the same gradient
    # and stay bit-identical for ever.
    return torch.empty_like(slots).normal_(std=SPREAD)


def zeros(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return zeros, as the released code does."""
    return torch.zeros_like(slots)


def samples(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return examples of each class drawn by chance, none twice while there are enough."""
    start = slots.clone()
    for places, own in _by_class(slots, classes, examples):
        rounds = -(-len(places) // len(own))
        drawn = torch.cat([torch.randperm(len(own)) for _ in range(rounds)])[: len(places)]
        start[places] = own[drawn.to(own.device)]
    return _apart(start, examples)


def class_means(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return the mean of each class, with a little noise so that its slots can part."""
    start = slots.clone()
    for places, own in _by_class(slots, classes, examples):
        start[places] = own.mean(dim=0)
    return _apart(start, examples)


def kmeans(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return centres of clusters within each class."""
    cluster = needed("sklearn.cluster", "slots that start by k-means")
    start = slots.clone()
    for places, own in _by_class(slots, classes, examples):
        clusters = min(len(places), len(torch.unique(own, dim=0)))
        seed = int(torch.randint(2**31 - 1, ()))
        fitted = cluster.KMeans(clusters, n_init=3, random_state=seed).fit(own.cpu().numpy())
        centres = torch.as_tensor(fitted.cluster_centers_).to(slots)
        start[places] = centres[torch.arange(len(places)) % clusters]
    return _apart(start, examples)


STARTS: dict[str, Start] = {
    "normal": normal,
    "zeros": zeros,
    "samples": samples,
    "class_means": class_means,
    "kmeans": kmeans,
}


def slot_start(start: str | Start) -> Start:
    """Return the function behind a name of ``STARTS``; a function is returned as it is."""
    if not isinstance(start, str):
        return start
    if start not in STARTS:
        raise ConfigError(wrong_choice("start", start, tuple(STARTS)))
    return STARTS[start]


def _by_class(
    slots: Tensor, classes: Tensor, examples: Examples | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the places of each class's slots and the features of its examples."""
    if examples is None:
        raise ValueError("slots that start from data need features and y; pass both to set_slots")
    for label in torch.unique(classes).tolist():
        own = examples.features[examples.prototypes == label].to(slots)
        if len(own) == 0:
            raise ValueError(
                f"y must hold every class that has slots, got no row of class {label}; give more "
                "rows, or start the slots by 'normal'"
            )
        yield (classes == label).nonzero()[:, 0], own


def _apart(start: Tensor, examples: Examples | None) -> Tensor:
    """Add noise of a fiftieth of the features' spread: equal slots would stay equal for ever."""
    assert examples is not None
    spread = examples.features.to(start).std(dim=0, correction=0)
    return start + SPREAD * spread * torch.randn_like(start)
