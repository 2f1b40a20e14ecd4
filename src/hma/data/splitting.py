"""Rows divided by seed so that every split has its share of every group."""

import torch
from torch import Tensor

from hma.errors import UserError


def stratified(
    labels: Tensor, seed: int, *, validation: float, test: float
) -> dict[str, list[int]]:
    """Divide rows by seed so that every split has its share of every class, and train all classes.

    Training rows come in an order of their own, all others as in the file.

    Example:
        >>> parts = stratified(torch.tensor([0, 1] * 10), seed=0, validation=0.2, test=0.2)
        >>> {name: len(rows) for name, rows in parts.items()}
        {'train': 12, 'validation': 4, 'test': 4}
    """
    if not (validation > 0 and test >= 0 and validation + test < 1):
        raise UserError(
            "validation must be above 0, test at least 0, and both together below 1, got "
            f"{validation} and {test}"
        )
    counts = torch.bincount(labels)
    room = (counts - 1).clamp(min=0)
    in_test = quotas(counts, test, room=room)
    in_validation = quotas(counts, validation, room=room - in_test)
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    for label, (tested, validated) in enumerate(zip(in_test, in_validation, strict=True)):
        rows = (labels == label).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        sizes = [int(tested), int(validated), len(rows) - int(tested) - int(validated)]
        for name, part in zip(
            ("test", "validation", "train"), torch.split(rows, sizes), strict=True
        ):
            parts[name].append(part)
    if test == 0:
        del parts["test"]
    divided = {}
    for name, found in parts.items():
        rows = torch.cat(found)
        if len(rows) == 0:
            raise UserError(f"{len(labels)} rows are too few: none is left for {name}; add rows")
        drawn = rows[torch.randperm(len(rows), generator=generator)].tolist()
        divided[name] = drawn if name == "train" else sorted(drawn)
    return divided


def quotas(counts: Tensor, share: float, *, room: Tensor) -> Tensor:
    """Return how many rows of each class go into a split, by largest remainder.

    Args:
        counts: Rows of each class, ``(C,)``.
        share: Share of all rows wanted.
        room: Most that a class can give, ``(C,)``.

    Example:
        >>> quotas(torch.tensor([10, 5, 2]), 0.2, room=torch.tensor([9, 4, 1])).tolist()
        [2, 1, 0]
    """
    exact = counts.double() * share
    given = torch.minimum(exact.floor().long(), room)
    wanted = min(int(float(exact.sum()) + 0.5), int(room.sum()))
    while int(given.sum()) < wanted:
        lack = (exact - given).masked_fill(given >= room, -torch.inf)
        given[lack.argmax()] += 1
    return given
