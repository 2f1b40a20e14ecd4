"""Data that has a name: digits, MNIST, their coloured versions, image sets, TU collection."""

import re
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import torch

from hma.data.image.preparation import ImagePreparation
from hma.data.labels import encode
from hma.data.npz import ArrayImages
from hma.data.preparation import PreparationOptions
from hma.data.sets.colored_mnist import colored_mnist
from hma.data.sets.digits import DIGITS, colored_digits, digit_images, digit_places, digits
from hma.data.sets.mnist import TRAIN, mnist_source
from hma.data.sets.torchvision_sets import IMAGE_SETS, image_set, image_set_source
from hma.data.sets.tu import tu_source
from hma.data.source import Source
from hma.data.task import InMemory
from hma.data.task_from_source import Prepared, prepare, prepare_splits
from hma.errors import UserError

BUILTINS = (
    "digits",
    "digits:N",
    "colored-digits",
    "mnist",
    "mnist:N",
    "colored-mnist",
    "colored-mnist:28",
    *IMAGE_SETS,
    "tu:NAME",
)
"""Names as a user writes them; N is the number of training labels per class."""
PREFIX = "builtin:"
NAME = re.compile(r"(?P<base>digits|mnist)(:(?P<per_class>\d+))?|colored-digits|"
                  r"colored-mnist(:(?P<size>14|28))?|tu:(?P<graphs>[\w-]+)|"
                  rf"(?P<images>{'|'.join(IMAGE_SETS)})")  # fmt: skip
TU_SHARES = {"validation": 0.1, "test": 0.2}


def is_builtin(spec: str) -> bool:
    """Tell whether SOURCE is the name of built-in data; a file of that name here is not guessed at.

    Args:
        spec: What a user wrote; ``builtin:NAME`` is never a file.

    Example:
        >>> is_builtin("digits:10"), is_builtin("tu:MUTAG"), is_builtin("digits.csv")
        (True, True, False)
    """
    if NAME.fullmatch(spec.removeprefix(PREFIX)) is None:
        return False
    if Path(spec).exists():
        raise UserError(
            f"{spec!r} is both built-in data and a file or folder here; write ./{spec} or "
            f"{PREFIX}{spec}"
        )
    return True


def builtin(
    name: str,
    *,
    seed: int,
    data_root: Path | None = None,
    download: bool = False,
    options: PreparationOptions | None = None,
) -> Prepared:
    """Return built-in data, split and prepared.

    Args:
        name: One of ``BUILTINS``.
        seed: Decides the split, and all else that is left to chance.
        data_root: Where the data is; ``$HMA_DATA`` or the cache folder if not given.
        download: Fetch the data if it is not there.
        options: Choices about the input, where the data leaves any.

    Example:
        >>> prepared = builtin("digits:10", seed=0)
        >>> len(prepared.task.train), prepared.source.describe(prepared.places["train"][0])
        (100, 'image 1703')
    """
    found = _parsed(name)
    if found["base"] == "mnist":
        return _mnist(seed, found["per_class"], options, data_root=data_root, download=download)
    if found["graphs"]:
        source = tu_source(found["graphs"], data_root, download=download)
        return prepare(source, seed=seed, options=options, **TU_SHARES)
    if found["images"]:
        return image_set(
            found["images"], seed=seed, data_root=data_root, download=download, options=options
        )
    if options not in (None, PreparationOptions()):
        raise UserError(f"{name} is prepared in one way only; leave the options of the input out")
    if found["base"] == "digits":
        return _digits(seed, found["per_class"])
    if name.removeprefix(PREFIX) == "colored-digits":
        return _colored_digits(seed)
    size = int(found["size"] or 14)
    return colored_mnist(seed, size=size, data_root=data_root, download=download)


def builtin_source(name: str, *, seed: int = 0, data_root: Path | None = None) -> Source:
    """Return the rows of built-in data, all splits together.

    Args:
        name: One of ``BUILTINS``.
        seed: Decides what is left to chance.
        data_root: Where the data is.
    """
    found = _parsed(name)
    if found["base"] == "mnist":
        return mnist_source(data_root)
    if found["graphs"]:
        return tu_source(found["graphs"], data_root)
    if found["images"]:
        return image_set_source(found["images"], data_root)
    return builtin(name, seed=seed, data_root=data_root).source


def _parsed(name: str) -> dict[str, Any]:
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None:
        near = get_close_matches(name, BUILTINS, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(
            f"there is no built-in data called {name!r}; {guess}there are {', '.join(BUILTINS)}"
        )
    found: dict[str, Any] = match.groupdict()
    if found["per_class"] is not None:
        found["per_class"] = int(found["per_class"])
        if found["per_class"] < 1:
            raise UserError(f"{name} must ask for at least 1 label per class")
    return found


def _digits(seed: int, per_class: int | None) -> Prepared:
    images, labels = digit_images()
    names = [DIGITS[label] for label in labels.tolist()]
    source = ArrayImages("digits", images, names, unit=True)
    task = digits(seed, per_class)
    facts = {**task.facts, "fingerprint": source.fingerprint()}
    places = digit_places(labels, seed, per_class)
    return Prepared(
        replace(task, facts=facts),
        _as_they_are(task.classes, task.shape),
        {name: rows.tolist() for name, rows in places.items()},
        source,
    )


def _colored_digits(seed: int) -> Prepared:
    task = colored_digits(seed)
    parts = {"train": task.train, "validation": task.validation, **task.tests}
    held = {name: cast("InMemory", part) for name, part in parts.items()}
    labels = torch.cat([part.labels for part in held.values()]).tolist()
    images = torch.cat([cast("torch.Tensor", part.x) for part in held.values()])
    source = ArrayImages("colored-digits", images, [task.classes[i] for i in labels], unit=True)
    places, first = {}, 0
    for name, part in held.items():
        places[name] = list(range(first, first + len(part)))
        first += len(part)
    facts = {**task.facts, "fingerprint": source.fingerprint()}
    preparation = _as_they_are(task.classes, task.shape)
    return Prepared(replace(task, facts=facts), preparation, places, source)


def _as_they_are(classes: tuple[str, ...], shape: tuple[int, ...]) -> ImagePreparation:
    channels, height, width = shape
    zeros, ones = (0.0,) * channels, (1.0,) * channels
    return ImagePreparation(classes, (channels, height, width), zeros, ones, unit=True)


def _mnist(
    seed: int,
    per_class: int | None,
    options: PreparationOptions | None,
    *,
    data_root: Path | None,
    download: bool,
) -> Prepared:
    source = mnist_source(data_root, download=download)
    order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(seed))
    train, validation = order[:50_000], order[50_000:]
    if per_class is not None:
        labels = encode(source.labels or [], DIGITS)
        train = torch.cat([train[labels[train] == digit][:per_class] for digit in range(10)])
    places = {
        "train": train.tolist(),
        "validation": validation.tolist(),
        "test": list(range(TRAIN, len(source))),
    }
    facts = {
        "split": "50,000 for training and 10,000 for validation by seed; MNIST's test images",
        "seed": seed,
        "per_class": per_class,
    }
    return prepare_splits(source, places, classes=DIGITS, seed=seed, facts=facts, options=options)
