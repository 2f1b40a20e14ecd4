"""scikit-learn's 8x8 digits: with few labels, or with a colour that misleads at test time."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from hma.data.arrays import ArrayImages
from hma.data.image.preparation import keep_as_is
from hma.data.prepared import Prepared
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.task import InMemory, Task

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
    return {
        "train": first_per_class(train, labels, per_class),
        "validation": validation,
        "test": test,
    }


def first_per_class(rows: Tensor, labels: Tensor, per_class: int | None) -> Tensor:
    """Return the first ``per_class`` rows of each digit; all rows if that is None."""
    if per_class is None:
        return rows
    return torch.cat([rows[labels[rows] == digit][:per_class] for digit in range(10)])


def _prepare_digits(request: SetRequest) -> Prepared:
    request.expect_no_options()
    per_class = request.number("per_class")
    images, labels = digit_images()
    names = [DIGITS[label] for label in labels.tolist()]
    source = ArrayImages("digits", images, names, unit=True)
    task = digits(request.seed, per_class)
    places = digit_places(labels, request.seed, per_class)
    return Prepared(
        replace(task, facts={**task.facts, "fingerprint": source.fingerprint()}),
        keep_as_is(task.classes, task.shape),
        {name: rows.tolist() for name, rows in places.items()},
        source,
    )


def colored_digits(seed: int, flips: tuple[float, float] = (0.2, 0.1), noise: float = 0.25) -> Task:
    """Return the digits with a colour that predicts the label in training and misleads at test.

    Label = digit below 5, flipped with probability ``noise``; colour = label, flipped with
    the probability of its environment. At test time the colour is flipped with 0.9 (reversed)
    or absent (gray). Validation is drawn from the training environments.

    Example:
        >>> task = colored_digits(seed=0)
        >>> task.shape, sorted(task.tests)
        ((2, 8, 8), ['gray', 'reversed'])
    """
    images, digit = digit_images()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digit), generator=generator)
    images, digit = images[order], digit[order]
    labels = (digit < 5).long() ^ toss_coins(noise, len(digit), generator)
    environment = torch.arange(len(digit)) % 2
    flip = torch.tensor(flips)[environment]
    colour = labels ^ toss_coins(flip, len(digit), generator)
    colour[1437:] = labels[1437:] ^ toss_coins(0.9, len(digit) - 1437, generator)
    painted = torch.zeros(len(digit), 2, 8, 8)
    painted[torch.arange(len(digit)), colour] = images[:, 0]  # the other channel stays dark
    gray = images[1437:].expand(-1, 2, -1, -1) / 2
    train, validation, test = slice(0, 1078), slice(1078, 1437), slice(1437, None)
    return Task(
        name="coloured digits",
        kind="image",
        classes=("5 to 9", "0 to 4"),
        shape=(2, 8, 8),
        train=InMemory(painted[train], labels[train], environment[train]),
        validation=InMemory(painted[validation], labels[validation], environment[validation]),
        tests={
            "reversed": InMemory(painted[test], labels[test]),
            "gray": InMemory(gray, labels[test]),
        },
        facts={"flips": list(flips), "noise": noise, "seed": seed, "test flip": 0.9},
    )


def toss_coins(probability: float | Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` draws, 1 with a probability, one for all or one for each, and else 0."""
    return (torch.rand(count, generator=generator) < probability).long()


def _prepare_colored_digits(request: SetRequest) -> Prepared:
    request.expect_no_options()
    task = colored_digits(request.seed)
    parts = {"train": task.train, "validation": task.validation, **task.tests}
    held = {name: cast("InMemory", part) for name, part in parts.items()}
    labels = torch.cat([part.labels for part in held.values()]).tolist()
    images = torch.cat([cast("Tensor", part.x) for part in held.values()])
    source = ArrayImages("colored-digits", images, [task.classes[i] for i in labels], unit=True)
    places, first = {}, 0
    for name, part in held.items():
        places[name] = list(range(first, first + len(part)))
        first += len(part)
    facts = {**task.facts, "fingerprint": source.fingerprint()}
    preparation = keep_as_is(task.classes, task.shape)
    return Prepared(replace(task, facts=facts), preparation, places, source)


SETS = (
    NamedSet(("digits", "digits:N"), r"digits(:(?P<per_class>\d{1,9}))?", _prepare_digits),
    NamedSet(("colored-digits",), "colored-digits", _prepare_colored_digits),
)
