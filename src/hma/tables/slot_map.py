"""Where slots lie: alone and among real features, for the picture and the numbers of a record."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hma.attention.hma import HMA
from hma.data import Split, Task
from hma.errors import UserError
from hma.methods import Learner
from hma.tables.packed import packed
from hma.tables.permuted_classes import against_permuted, silhouette
from hma.tables.pictures import SLOT_MAP
from hma.tables.tsne import laid_out

NEIGHBOURS = 3
"""Of each point that the picture marks with it."""
DECIMALS = 2
"""Of a place on the map."""


class _Rows(NamedTuple):
    """Features ``(N, F)`` with classes ``(N,)``, class by class; places in the split ``(N,)``."""

    features: Tensor
    classes: Tensor
    places: Tensor

    def of(self, classes: int) -> "_Rows":
        """Return the rows of the first classes."""
        kept = self.classes < classes
        return _Rows(self.features[kept], self.classes[kept], self.places[kept])


@torch.no_grad()
def slot_map(
    learner: Learner, task: Task, *, classes: int = 3, rows: int = 40, batch_size: int = 128
) -> dict[str, Any]:
    """Return a map of slots and training rows, and whether slots of a class lie together.

    Slots are their free features; real rows are what stands beside slots in the synthetic read,
    tokens after the real-memory read (``C^2`` of the paper). Both without label embeddings, which
    are equal for all rows of a class. Distances are Euclidean, as in the paper's t-SNE; whether a
    slot is near a row is asked by angle, since slots and features differ in length.

    Args:
        learner: A trained memory with slots, at least two of each class.
        task: Whose training rows are shown.
        classes: How many of them the picture shows, those with most training rows.
        rows: Training rows of each class at most.
        batch_size: Rows that are encoded at a time.
    """
    model = learner.module
    count = len(model.memory_state().slots) if isinstance(model, HMA) else 0
    if not isinstance(model, HMA) or count < 2 * model.num_labels:
        raise UserError(
            "a slot map needs slots that are read by attention, two of each class; set "
            f"slots_per_class to 2 or more with HMAConfig(), got {type(model).__name__} with "
            f"{count} slots"
        )
    memory = model.memory_state()
    order = torch.bincount(task.train.labels, minlength=model.num_labels)
    ranks = order.argsort(descending=True, stable=True).argsort()  # class id -> place by size
    real = _real_rows(model, task.train, ranks, rows, batch_size)
    by_class = ranks[memory.slot_classes.cpu()].argsort(stable=True)
    own = ranks[memory.slot_classes.cpu()[by_class]]
    slots = _Rows(memory.slots.cpu()[by_class].float(), own, by_class)
    shown = min(classes, model.num_labels)
    return {SLOT_MAP: _measured(task, ranks, slots, real, shown)}


def _measured(task: Task, ranks: Tensor, slots: _Rows, real: _Rows, shown: int) -> dict[str, Any]:
    some, rows = slots.of(shown), real.of(shown)
    alone = torch.from_numpy(laid_out(some.features.double().numpy(), seed=0))
    both = torch.cat([some.features, rows.features]).double()
    together = torch.from_numpy(laid_out(both.numpy(), seed=0))
    near = _cosines(some.features, rows.features)
    on_slots = {"alone x": alone[:, 0], "alone y": alone[:, 1], **_xy(together[: len(alone)])}
    names = [task.classes[int(place)] for place in ranks.argsort()[:shown]]
    return {
        "classes": [str(name) for name in names],
        "split": "train",
        "slots": {"class": packed(some.classes.tolist())}
        | {name: packed(values.tolist(), DECIMALS) for name, values in on_slots.items()}
        | {"near": _nearest(near)},
        "rows": {"class": packed(rows.classes.tolist()), "place": packed(rows.places.tolist())}
        | {name: packed(v.tolist(), DECIMALS) for name, v in _xy(together[len(alone) :]).items()}
        | {"near": _nearest(near.T)},
        "numbers": _numbers(slots, real, some, rows, alone),
    }


def _numbers(
    slots: _Rows, real: _Rows, some: _Rows, rows: _Rows, alone: Tensor
) -> dict[str, dict[str, float]]:
    """Return what the picture is checked by; see :mod:`hma.report.pictures.slot_map`."""
    found = {}
    measured = {
        "silhouette": (slots.features, slots.classes),
        "silhouette of shown": (some.features, some.classes),
        "silhouette on map": (alone, some.classes),
    }
    for name, (places, classes) in measured.items():
        distances = torch.cdist(places.double(), places.double())
        found[name] = against_permuted(partial(silhouette, distances), classes)
    nearest = real.classes[_cosines(slots.features, real.features).argmax(dim=1)]  # (S,)
    found["nearest"] = against_permuted(
        lambda own: float((own == nearest).double().mean()), slots.classes
    )
    both = torch.cat([some.features, rows.features])
    likeness = _cosines(both, both).fill_diagonal_(-2)
    closest = likeness.argmax(dim=1)
    is_slot = torch.arange(len(both)) < len(some.features)
    found["apart"] = against_permuted(
        lambda kind: float(kind[closest][kind].double().mean()), is_slot
    )
    return found


def _real_rows(model: HMA, split: Split, ranks: Tensor, most: int, batch_size: int) -> _Rows:
    """Return up to ``most`` rows of each class as they enter the synthetic read."""
    classes = ranks[split.labels]
    places = torch.cat([(classes == c).nonzero()[:most, 0] for c in range(len(ranks))])
    features = [enter_slots(model, split, part) for part in torch.split(places, batch_size)]
    return _Rows(torch.cat(features), classes[places], places)


@torch.no_grad()
def enter_slots(model: HMA, split: Split, places: Tensor) -> Tensor:
    """Return rows of a split as they stand beside slots, without their label part, ``(B, F)``."""
    features = encoded(model, split, places)
    tokens = model.tokens.mask(features)  # (B, F) -> (B, D)
    if model.real is not None and model.joint is None:
        memories = model.memories_with(context="alone")
        tokens, _ = model.real(tokens, memories.real, weights=False)
    return tokens[:, : model.feature_dim].cpu().float()


@torch.no_grad()
def encoded(model: HMA, split: Split, places: Tensor) -> Tensor:
    """Return what the backbone makes of rows of a split, ``(B, F)``."""
    batch = split.batch(places).to(next(model.parameters()).device)
    features: Tensor = model.backbone(batch.x) if batch.features is None else batch.features
    return features


def _cosines(first: Tensor, second: Tensor) -> Tensor:
    return normalize(first.double(), dim=1) @ normalize(second.double(), dim=1).T


def _xy(places: Tensor) -> dict[str, Tensor]:
    return {"x": places[:, 0], "y": places[:, 1]}


def _nearest(likeness: Tensor) -> str:
    """Return the nearest rows of each, all in one line."""
    near = likeness.topk(min(NEIGHBOURS, likeness.shape[1]), dim=1).indices
    return packed(near.flatten().tolist())
