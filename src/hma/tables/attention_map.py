"""Who looks at whom in the synthetic read, for the picture and the numbers of a record."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from hma.attention.hma import HMA
from hma.data import Split, Task
from hma.errors import UserError
from hma.methods import Learner
from hma.tables.packed import packed
from hma.tables.permuted_classes import against_permuted
from hma.tables.pictures import ATTENTION_MAP
from hma.tables.slot_map import encoded

UNIT = 0.01
"""Of a number in the picture, where 1 is an even look."""


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
        "numbers": _numbers(among.double(), on_slots.double(), own, slot_classes),
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


def _numbers(
    among: Tensor, on_slots: Tensor, own: Tensor, slot_classes: Tensor
) -> dict[str, dict[str, float]]:
    """Return what the picture is checked by; see :mod:`hma.report.pictures.attention_map`."""
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
