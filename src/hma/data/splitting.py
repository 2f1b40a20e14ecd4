"""Rows divided into splits: by class and seed, by group, by time."""

import numpy as np
import torch
from numpy.typing import NDArray
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
    _expect_shares(validation, test)
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


def by_group(
    labels: Tensor, groups: Tensor, seed: int, *, validation: float, test: float
) -> dict[str, list[int]]:
    """Divide rows so that every group lies wholly in one split, stratified as well as that allows.

    The largest group goes first, each to where it brings the rows of each class nearest to their
    shares, in squares; the seed decides between groups of one size. Every class is in train.

    Args:
        labels: Class of each row, ``(N,)``.
        groups: Id of the group of each row, ``(N,)``, from 0 on.
        seed: Decides between groups of one size, and the order of the training rows.
        validation, test: Shares of the rows.

    Example:
        >>> labels, groups = torch.tensor([0, 1] * 20), torch.arange(40) // 4
        >>> parts = by_group(labels, groups, seed=0, validation=0.2, test=0.2)
        >>> {name: len(rows) for name, rows in parts.items()}
        {'train': 24, 'validation': 8, 'test': 8}
    """
    _expect_shares(validation, test)
    counts = np.zeros((int(groups.max()) + 1, int(labels.max()) + 1))
    np.add.at(counts, (groups.numpy(), labels.numpy()), 1.0)
    shares = [1 - validation - test, validation, *([test] if test else [])]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(counts), generator=generator).numpy()
    order = drawn[np.argsort(-counts[drawn].sum(axis=1), kind="stable")]
    split_of = _nearest_to_shares(counts, order, np.array(shares))
    _complete_train(counts, split_of)
    for place, name in enumerate(("train", "validation", "test")[: len(shares)]):
        if not (split_of == place).any() and not _fill(counts, split_of, place):
            raise UserError(
                f"{len(counts)} groups are too few: none is left for {name} if every class is to "
                "be in train; add groups, or leave group out"
            )
    of_row = torch.from_numpy(split_of)[groups]
    return ordered([(of_row == place).nonzero().flatten() for place in range(len(shares))], seed)


def by_time(
    times: NDArray[np.float64], seed: int, *, validation: float, test: float
) -> dict[str, list[int]]:
    """Divide rows by time: the earliest train, the latest test; equal times stay together.

    Example:
        >>> by_time(np.array([5.0, 1.0, 2.0, 4.0, 3.0]), 0, validation=0.2, test=0.2)["test"]
        [0]
    """
    _expect_shares(validation, test)
    order = np.argsort(times, kind="stable")
    changes = np.flatnonzero(np.diff(times[order])) + 1
    wanted = [len(times) * (1 - validation - test), *([len(times) * (1 - test)] if test else [])]
    if len(changes) < len(wanted):
        raise UserError(
            f"{len(changes) + 1} different times are too few for {len(wanted) + 1} splits, since "
            "rows of one time stay together; give a finer time, or leave time out"
        )
    cuts: list[int] = []
    for place, cut in enumerate(wanted):  # leave a change for each cut that is still to come
        free = changes[changes > (cuts[-1] if cuts else 0)]
        free = free[: len(free) - (len(wanted) - 1 - place)]
        cuts.append(int(free[np.abs(free - cut).argmin()]))
    parts = np.split(order, cuts)
    return ordered([torch.from_numpy(part).long() for part in parts], seed)


def _expect_shares(validation: float, test: float) -> None:
    if not (validation > 0 and test >= 0 and validation + test < 1):
        raise UserError(
            "validation must be above 0, test at least 0, and both together below 1, got "
            f"{validation} and {test}"
        )


def _nearest_to_shares(
    counts: NDArray[np.float64], order: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the split of each group, ``(G,)``; ``counts`` are rows by group and class."""
    total = counts.sum(axis=0)  # (C,)
    lack = shares[:, None] * total  # (splits, C)
    split_of = np.zeros(len(counts), dtype=np.int64)
    for group in order:
        rows = counts[group]
        cost = (rows * (rows - 2 * lack) / np.maximum(total, 1)).sum(axis=1)
        split_of[group] = cost.argmin()
        lack[split_of[group]] -= rows
    return split_of


def _complete_train(counts: NDArray[np.float64], split_of: NDArray[np.int64]) -> None:
    """Move into train, for each class that it lacks, the smallest group that has rows of it."""
    sizes = counts.sum(axis=1)
    for label in range(counts.shape[1]):
        holds = np.flatnonzero(counts[:, label])
        if len(holds) and not (split_of[holds] == 0).any():
            split_of[holds[sizes[holds].argmin()]] = 0


def _fill(counts: NDArray[np.float64], split_of: NDArray[np.int64], place: int) -> bool:
    """Move into an empty split the smallest group that train can spare, if there is one."""
    in_train = np.flatnonzero(split_of == 0)
    held = counts[in_train].sum(axis=0)
    spared = [g for g in in_train if ((held - counts[g] > 0) | (counts[g] == 0)).all()]
    if not spared or len(in_train) == 1:
        return False
    split_of[min(spared, key=lambda group: counts[group].sum())] = place
    return True


def ordered(parts: list[Tensor], seed: int) -> dict[str, list[int]]:
    """Return training rows in an order of their own, all others as in the file."""
    train, *others = parts
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    held_out = dict(zip(("validation", "test"), others, strict=False))
    return {
        "train": train[order].tolist(),
        **{name: rows.sort().values.tolist() for name, rows in held_out.items()},
    }
