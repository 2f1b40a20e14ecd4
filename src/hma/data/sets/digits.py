"""scikit-learn's 8x8 digits, with few labels if wanted. Nothing to download."""

from dataclasses import replace

import torch
from torch import Tensor

from hma.data.image.array import ArrayImages
from hma.data.image.preparation import as_they_are
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.task import InMemory, Task
from hma.data.task_from_source import Prepared

DIGITS = tuple(str(digit) for digit in range(10))


def digit_images() -> tuple[Tensor, Tensor]:
    """Return all images ``(1797, 1, 8, 8)``, black at 0 and white at 1, and their digits."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16  # (1797, 1, 8, 8)
    return images, torch.tensor(bunch.target)


def digits(seed: int, per_class: int | None = None) -> Task:
    """Return the digits in 60/20/20 splits, with only ``per_class`` training labels if given.

    Example:
        >>> task = digits(seed=0, per_class=5)
        >>> len(task.train), len(task.validation), len(task.tests["test"])
        (50, 359, 360)
    """
    images, labels = digit_images()
    places = digit_places(labels, seed, per_class)
    train, validation, test = places["train"], places["validation"], places["test"]
    return Task(
        name="digits" if per_class is None else f"digits, {per_class} per class",
        kind="image",
        classes=DIGITS,
        shape=(1, 8, 8),
        train=InMemory(images[train], labels[train]),
        validation=InMemory(images[validation], labels[validation]),
        tests={"test": InMemory(images[test], labels[test])},
        facts={"split": "60/20/20 by seed", "seed": seed, "per_class": per_class},
    )


def digit_places(labels: Tensor, seed: int, per_class: int | None = None) -> dict[str, Tensor]:
    """Return which images are in which split."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, validation, test = order[:1078], order[1078:1437], order[1437:]
    return {"train": few(train, labels, per_class), "validation": validation, "test": test}


def few(rows: Tensor, labels: Tensor, per_class: int | None) -> Tensor:
    """Return the first rows of each digit, ``per_class`` of each; all where that is None."""
    if per_class is None:
        return rows
    return torch.cat([rows[labels[rows] == digit][:per_class] for digit in range(10)])


def _prepared(asked: Asked) -> Prepared:
    asked.expect_no_options()
    per_class = asked.number("per_class")
    images, labels = digit_images()
    names = [DIGITS[label] for label in labels.tolist()]
    source = ArrayImages("digits", images, names, unit=True)
    task = digits(asked.seed, per_class)
    places = digit_places(labels, asked.seed, per_class)
    return Prepared(
        replace(task, facts={**task.facts, "fingerprint": source.fingerprint()}),
        as_they_are(task.classes, task.shape),
        {name: rows.tolist() for name, rows in places.items()},
        source,
    )


SET = NamedSet(("digits", "digits:N"), r"digits(:(?P<per_class>\d{1,9}))?", _prepared)
