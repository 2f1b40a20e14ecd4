"""How slots start: each start returns a first value for every slot.

A start is given the slots as they are ``(S, F)``, the prototype of each ``(S,)``, and, if there are
any, examples: features ``(N, F)`` and which prototypes each belongs to ``(N, P)``.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from hma.errors import wrong_choice
from hma.extras import needed
from hma.options.config import ConfigError
from hma.targets import Target

# ---------------------------------------------------------------------------- distribution matching


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


def match_distributions(
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


# ------------------------------------------------------------------------------------------- starts


SlotInit = Literal["normal", "zeros", "samples", "class_means", "kmeans", "distilled"]
SPREAD = 0.02
"""Standard deviation of slots that start from nothing; relative to the features, of the noise that
keeps slots apart which start from the same place."""
MOST_ROWS = 4096
"""Training rows that slots start from, where there are more."""


class Examples(NamedTuple):
    """Rows to start slots from.

    Shape:
        - ``features`` ``(N, F)``; ``belongs`` ``(N, P)`` of bool; ``generator``: of the CPU, draws
          all that is random; None for torch's own.
    """

    features: Tensor
    belongs: Tensor
    generator: torch.Generator | None = None


Start = Callable[[Tensor, Tensor, Examples | None], Tensor]


def normal(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return small noise."""
    # DIFF[released code]: zeros there, so the slots of one class get the same gradient
    # and stay bit-identical for ever.
    return SPREAD * _noise(slots, examples)


def zeros(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return zeros, as the released code does."""
    return torch.zeros_like(slots)


def samples(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return examples of each class drawn by chance, none twice while there are enough."""
    start = slots.clone()
    for places, own in _by_class(slots, classes, examples):
        rounds = -(-len(places) // len(own))
        chance = None if examples is None else examples.generator
        orders = [torch.randperm(len(own), generator=chance) for _ in range(rounds)]
        start[places] = own[torch.cat(orders)[: len(places)].to(own.device)]
    return _add_noise(start, classes, examples)


def class_means(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return the mean of each class, with a little noise so that its slots can part."""
    start = slots.clone()
    for places, own in _by_class(slots, classes, examples):
        start[places] = own.mean(dim=0)
    return _add_noise(start, classes, examples)


def kmeans(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return centres of clusters within each class."""
    cluster = needed("sklearn.cluster", "slots that start by k-means")
    start = slots.clone()
    for places, own in _by_class(slots, classes, examples):
        clusters = min(len(places), len(torch.unique(own, dim=0)))
        chance = None if examples is None else examples.generator
        seed = int(torch.randint(2**31 - 1, (), generator=chance))
        fitted = cluster.KMeans(clusters, n_init=3, random_state=seed).fit(own.cpu().numpy())
        centres = torch.as_tensor(fitted.cluster_centers_).to(slots)
        start[places] = centres[torch.arange(len(places)) % clusters]
    return _add_noise(start, classes, examples)


def distilled(slots: Tensor, classes: Tensor, examples: Examples | None = None) -> Tensor:
    """Return rows that have the statistics of their class, see :mod:`hma.memory.slots`."""
    start = samples(slots, classes, examples)
    assert examples is not None
    features, belongs = examples.features.to(slots), examples.belongs.to(slots.device)
    known = _known(classes, examples)
    start[known] = match_distributions(
        start[known], classes[known], features, belongs, generator=examples.generator
    )
    return start


STARTS: dict[str, Start] = {
    "normal": normal,
    "zeros": zeros,
    "samples": samples,
    "class_means": class_means,
    "kmeans": kmeans,
    "distilled": distilled,
}
assert tuple(STARTS) == get_args(SlotInit)
FROM_NOTHING = ("normal", "zeros")
"""Starts that need no data."""


def slot_start(start: str | Start) -> Start:
    """Return the function behind a name of ``STARTS``; a function is returned as it is."""
    if not isinstance(start, str):
        return start
    if start not in STARTS:
        raise ConfigError(wrong_choice("start", start, tuple(STARTS)))
    return STARTS[start]


def find_prototypes(y: Tensor, count: int, target: Target) -> Tensor:
    """Return which prototypes each of ``count`` labels is most, ``(N, P)`` of bool.

    That is the class; of a soft label the largest share, of yes/no labels each that is known, of a
    number the nearest prototype.
    """
    membership = target.membership(target.check(y, count))
    return (membership == membership.amax(dim=1, keepdim=True)) & (membership > 0)


def most_rows(target: Target, slots_per_class: int) -> int:
    """Return how many rows slots start from at most."""
    return len(target.prototypes()) * _rows_of_each(target, slots_per_class)


def _rows_of_each(target: Target, slots_per_class: int) -> int:
    return max(-(-MOST_ROWS // len(target.prototypes())), slots_per_class)


def draw_rows(
    labels: Tensor, target: Target, slots_per_class: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return places of training rows to start slots from, as many for each prototype.

    Args:
        labels: Of all training rows, in the form of ``y``.
        target: What a label is.
        slots_per_class: Rows that each prototype has at least, if there are so many.
        generator: Draws them; torch's own if not given.
    """
    room = torch.full((len(target.prototypes()),), _rows_of_each(target, slots_per_class))
    taken = [torch.empty(0, dtype=torch.long)]
    for places in torch.split(torch.randperm(len(labels), generator=generator), MOST_ROWS):
        own = find_prototypes(labels[places], len(places), target)  # (N, P)
        wanted = (own & (own.cumsum(dim=0) <= room)).any(dim=1)
        taken.append(places[wanted])
        room = (room - own[wanted].sum(dim=0)).clamp(min=0)
        if not room.any():
            break
    return torch.cat(taken)


def _by_class(
    slots: Tensor, classes: Tensor, examples: Examples | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the places of each class's slots and the features of its examples, if it has any."""
    if examples is None or not len(examples.features):
        raise ValueError(
            "slots that start from data need at least one row; pass features and y to set_slots"
        )
    absent = torch.unique(classes[~_known(classes, examples)]).tolist()
    if absent:
        warnings.warn(
            f"y holds no row for the slots of class {', '.join(map(str, absent))}, which stay as "
            "they are; give rows of every class",
            stacklevel=2,
        )
    features, belongs = examples.features.to(slots), examples.belongs.to(slots.device)
    for label in torch.unique(classes[_known(classes, examples)]).tolist():
        yield (classes == label).nonzero()[:, 0], features[belongs[:, label]]


def _add_noise(start: Tensor, classes: Tensor, examples: Examples | None) -> Tensor:
    """Add noise of a fiftieth of the features' spread: equal slots would stay equal for ever."""
    assert examples is not None
    spread = examples.features.to(start).std(dim=0, correction=0)
    noise = SPREAD * spread * _noise(start, examples)
    return torch.where(_known(classes, examples)[:, None], start + noise, start)


def _noise(like: Tensor, examples: Examples | None) -> Tensor:
    chance = None if examples is None else examples.generator
    device = like.device if chance is None else chance.device
    drawn = torch.randn(like.shape, generator=chance, dtype=like.dtype, device=device)
    return drawn.to(like.device)


def _known(classes: Tensor, examples: Examples) -> Tensor:
    """Return which slots are of a class that has examples, ``(S,)``."""
    return examples.belongs.to(classes.device).any(dim=0)[classes]
