"""What the pictures of a memory show, measured for a record: where slots lie, who looks at whom."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from hma.attention.hma import HMA
from hma.data import Split, Task
from hma.errors import UserError
from hma.methods import Learner
from hma.paper.table import ATTENTION_MAP, SLOT_MAP

NEIGHBOURS = 3
"""Of each point that the picture marks with it."""
DECIMALS = 2
"""Of a place on the map."""
UNIT = 0.01
"""Of a number in the picture, where 1 is an even look."""
REPEATS = 199
"""Permutations: enough for a p-value of 0.005."""


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
    return {SLOT_MAP: _slots_measured(task, ranks, slots, real, shown)}


def _slots_measured(
    task: Task, ranks: Tensor, slots: _Rows, real: _Rows, shown: int
) -> dict[str, Any]:
    from hma.report.sections.maps import laid_out

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
        "numbers": _slot_numbers(slots, real, some, rows, alone),
    }


def _slot_numbers(
    slots: _Rows, real: _Rows, some: _Rows, rows: _Rows, alone: Tensor
) -> dict[str, dict[str, float]]:
    """Return what the picture is checked by; see :mod:`hma.paper.report.pictures`."""
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


@torch.no_grad()
def attention_map(
    learner: Learner, task: Task, *, classes: int = 10, samples: int = 10, split: str | None = None
) -> dict[str, Any]:
    """Return the attention of a batch on itself and on slots, mean over heads, class by class.

    The picture keeps slots of the classes shown; numbers are of all slots.

    Args:
        learner: A trained memory with slots, whose rows see their batch.
        task: Whose rows are shown.
        classes: How many of them, the first that have enough rows.
        samples: Rows of each.
        split: ``train``, ``validation`` or a test split; the first test split if not given.
    """
    model = learner.module
    if not isinstance(model, HMA) or model.synthetic is None or not model.sees_batch:
        raise UserError(
            "an attention map needs rows that see their batch and slots; use "
            f"hma.HMA with slots_per_class, got {type(model).__name__}"
        )
    name = next(iter(task.tests)) if split is None else split
    rows = {"train": task.train, "validation": task.validation, **task.tests}[name]
    places, own = _batch(rows, classes, samples)
    looked = model.trace(encoded(model, rows, places), context="batch").synthetic
    assert looked is not None
    slot_classes = model.synthetic.classes.cpu()
    among = looked.own.float().mean(dim=0).cpu()  # (H, B, B) -> (B, B)
    on_slots = looked.over_rows(len(slot_classes)).cpu()  # (B, S)
    kept = torch.unique(own)
    order = torch.cat([(slot_classes == c).nonzero()[:, 0] for c in kept])
    even = among.shape[1] + on_slots.shape[1]
    shares = torch.cat([among, on_slots[:, order]], dim=1) * even / UNIT
    found = {
        "classes": [str(task.classes[int(c)]) for c in kept],
        "split": name,
        "places": packed(places.tolist()),
        "sample classes": packed(torch.searchsorted(kept, own).tolist()),
        "slot classes": packed(torch.searchsorted(kept, slot_classes[order]).tolist()),
        "unit": UNIT,
        "shares": [packed(line.tolist()) for line in shares],
        "numbers": _attention_numbers(among.double(), on_slots.double(), own, slot_classes),
    }
    return {ATTENTION_MAP: found}


def _batch(split: Split, classes: int, samples: int) -> tuple[Tensor, Tensor]:
    """Return places and classes of a batch, class by class."""
    counts = torch.bincount(split.labels)
    enough = (counts >= samples).nonzero()[:, 0][:classes]
    if len(enough) < 2:  # a few rows, to see that it runs
        samples = 2
        enough = (counts >= samples).nonzero()[:, 0][:classes]
    places = [(split.labels == c).nonzero()[:samples, 0] for c in enough]
    return torch.cat(places), enough.repeat_interleave(samples)


def _attention_numbers(
    among: Tensor, on_slots: Tensor, own: Tensor, slot_classes: Tensor
) -> dict[str, dict[str, float]]:
    """Return what the picture is checked by; see :mod:`hma.paper.report.pictures`."""
    apart = on_slots - on_slots.mean(dim=0)  # from the mean look
    likeness = normalize(apart, dim=1) @ normalize(apart, dim=1).T  # (B, B)
    others = among.clone().fill_diagonal_(0)
    others = others / others.sum()  # all looks together: one that keeps few may spare all samples
    held = on_slots / on_slots.sum()
    slots_of = one_hot(slot_classes).double()  # (S, C)
    columns = torch.cat([among, on_slots], dim=1).mean(dim=0) * (len(own) + len(slot_classes))
    is_slot = torch.arange(len(columns)) >= len(own)
    return {
        "alike": against_permuted(lambda classes: _same_minus_other(likeness, classes), own),
        "blocks": against_permuted(lambda classes: _explained(on_slots, classes), own),
        "same samples": against_permuted(
            lambda classes: float((others * _same(classes)).sum()), own
        ),
        "same slots": against_permuted(
            lambda classes: float((held @ slots_of).gather(1, classes[:, None]).sum()), own
        ),
        "to slots": against_permuted(
            lambda slots: float(columns[slots].mean() - columns[~slots].mean()),
            is_slot,
            two_sided=True,
        ),
    }


def _same(classes: Tensor) -> Tensor:
    return classes[:, None] == classes[None, :]


def _same_minus_other(likeness: Tensor, classes: Tensor) -> float:
    """Return the mean likeness of pairs of a class minus that of other pairs."""
    same = _same(classes)
    other = ~same
    same = same.clone().fill_diagonal_(False)
    return float(likeness[same].mean() - likeness[other].mean())


def _explained(rows: Tensor, classes: Tensor) -> float:
    """Return the share of the variance of rows ``(N, K)`` that lies between classes."""
    _, places = torch.unique(classes, return_inverse=True)
    member = one_hot(places).to(rows)  # (N, C)
    means = (member.T @ rows / member.sum(dim=0)[:, None])[places]  # (N, K)
    total = (rows - rows.mean(dim=0)).square().sum()
    return float((means - rows.mean(dim=0)).square().sum() / total)


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


def packed(numbers: Iterable[float], digits: int = 0) -> str:
    """Return numbers with so many decimals, blanks between.

    Example:
        >>> packed([1.25, -0.004, 3.0], 2), packed([3, 1])
        ('1.25 0 3', '3 1')
    """
    return " ".join(f"{round(number, digits) + 0.0:.{digits + 16}g}" for number in numbers)


def unpacked(text: str) -> list[float]:
    """Return the numbers that :func:`packed` wrote.

    Example:
        >>> unpacked("1.25 0 3")
        [1.25, 0.0, 3.0]
    """
    return [float(part) for part in text.split()]
