"""The digits with a colour that lies at test time. Nothing to download."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from hma.data.image.array import ArrayImages
from hma.data.image.preparation import as_they_are
from hma.data.sets.digits import digit_images
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.task import InMemory, Task
from hma.data.task_from_source import Prepared


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
    labels = (digit < 5).long() ^ coins(noise, len(digit), generator)
    environment = torch.arange(len(digit)) % 2
    flip = torch.tensor(flips)[environment]
    colour = labels ^ coins(flip, len(digit), generator)
    colour[1437:] = labels[1437:] ^ coins(0.9, len(digit) - 1437, generator)
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


def coins(probability: float | Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return 1 with a probability, the same or one of its own for each of ``count``, and else 0."""
    return (torch.rand(count, generator=generator) < probability).long()


def _prepared(asked: Asked) -> Prepared:
    asked.expect_no_options()
    task = colored_digits(asked.seed)
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
    preparation = as_they_are(task.classes, task.shape)
    return Prepared(replace(task, facts=facts), preparation, places, source)


SET = NamedSet(("colored-digits",), "colored-digits", _prepared)
