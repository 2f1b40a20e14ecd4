"""Colored MNIST: a colour that predicts the label in training and misleads at test."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.data.image.array import picture
from hma.data.image.preparation import as_they_are
from hma.data.image.rows import WHOLE, ImageRows, Resizing, Shape, resized, shape_with
from hma.data.sets.colored_digits import coins
from hma.data.sets.mnist import TRAIN, mnist_images
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.source import array_fingerprint
from hma.data.task import Task
from hma.data.task_from_source import Prepared
from hma.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

CLASSES = ("5 to 9", "0 to 4")
GRAY = 2
PAINT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
"""What a colour leaves in the two channels: one of them, or half in both."""
ENVIRONMENT = 25_000
TEST_FLIP = 0.9


class PaintedImages(ImageRows):
    """Gray images shown in one of two colours, or in neither; painted when asked for.

    Args:
        name: Short name.
        images: Bytes ``(I, H, W)``.
        image: Which image a row shows, ``(N,)``.
        colour: Its colour, 0, 1 or 2 for gray, ``(N,)``.
        labels: Label of each row.
    """

    def __init__(
        self, name: str, images: Tensor, image: Tensor, colour: Tensor, labels: Sequence[str]
    ) -> None:
        self.name = name
        self.images = images
        self.image = image
        self.colour = colour
        self.labels = labels

    def __len__(self) -> int:
        return len(self.image)

    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Return two channels and the size of the images, unless another is asked for."""
        height, width = self.images.shape[1:]
        return (2, height, width) if size is None else (2, size, size)

    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return painted images ``(B, 2, H, W)``, floats from 0 to 1."""
        shape_with(self.name, 2, shape)
        gray = self.images[self.image[rows], None].float() / 255  # (B, 1, H, W)
        paint = PAINT[self.colour[rows], :, None, None]  # (B, 2, 1, 1)
        return resized(gray * paint, shape, resizing)

    def describe(self, place: int) -> str:
        """Return the number of the image and its colour."""
        colour = ("red", "green", "gray")[int(self.colour[place])]
        return f"image {int(self.image[place])} in {colour}"

    def thumbnail(self, place: int) -> "Image":
        """Return the image, red, green or yellow for gray."""
        height, width = self.images.shape[1:]
        return picture(self.read(torch.tensor([place]), (2, height, width), keep=False)[0], True)

    def fingerprint(self) -> str:
        """Return the SHA-256 of images, colours and labels."""
        parts = (self.images, self.image, self.colour)
        digests = "".join(array_fingerprint(part.numpy(), self.labels) for part in parts)
        return hashlib.sha256(digests.encode()).hexdigest()


def colored_mnist(
    seed: int,
    *,
    flips: tuple[float, float] = (0.2, 0.1),
    size: int = 14,
    noise: float = 0.25,
    data_root: Path | None = None,
    download: bool = False,
) -> Prepared:
    """Return Colored MNIST in two training environments, validation, and two test sets.

    Label = digit below 5, flipped with probability ``noise``; colour = label, flipped with the
    probability of its environment. Of the 60,000 training images two environments take 25,000
    each and validation the rest, half of it in each environment. The 10,000 test images are
    shown with the colour flipped with probability 0.9 (reversed) and without colour (gray).

    Args:
        seed: Decides the split and every flip.
        flips: Probability that the colour is not the label, in each training environment.
        size: 28, or 14 for every second pixel.
        noise: Probability that the label is not the digit's.
        data_root: Where MNIST is.
        download: Fetch MNIST if it is not there.
    """
    _expect_sound(size, *flips, noise)
    images, digits = mnist_images(data_root, download=download)
    images = images if size == 28 else images[:, ::2, ::2].contiguous()
    generator = torch.Generator().manual_seed(seed)
    tests = len(digits) - TRAIN
    order = torch.randperm(TRAIN, generator=generator)
    shown = torch.cat([order, torch.arange(TRAIN, len(digits))])
    label = (digits[shown] < 5).long() ^ coins(noise, len(shown), generator)
    environment = torch.arange(TRAIN) % 2
    flip = torch.cat([torch.tensor(flips)[environment], torch.full((tests,), TEST_FLIP)])
    colour = label ^ coins(flip, len(shown), generator)
    label = torch.cat([label, label[TRAIN:]])  # the test images once more, in gray
    source = PaintedImages(
        "colored-mnist",
        images,
        torch.cat([shown, shown[TRAIN:]]),
        torch.cat([colour, torch.full((tests,), GRAY)]),
        [CLASSES[value] for value in label.tolist()],
    )
    facts = {"flips": list(flips), "noise": noise, "test flip": TEST_FLIP, "seed": seed}
    return _split(source, environment, size, facts)


def _split(
    source: PaintedImages, environment: Tensor, size: int, facts: dict[str, object]
) -> Prepared:
    both = 2 * ENVIRONMENT
    tests = (len(source) - TRAIN) // 2
    rows = {
        "train": torch.arange(both),
        "validation": torch.arange(both, TRAIN),
        "reversed": torch.arange(TRAIN, TRAIN + tests),
        "gray": torch.arange(TRAIN + tests, TRAIN + 2 * tests),
    }
    plain = as_they_are(CLASSES, (2, size, size))
    splits = {}
    for name, part in rows.items():
        splits[name] = plain.split(source, part.tolist())
        if name in ("train", "validation"):
            splits[name].environment = environment[part]
    facts |= {
        "split": "two training environments of 25,000 and 10,000 for validation by seed; MNIST's "
        "test images for both tests",
        "rows": {name: len(part) for name, part in rows.items()},
        "size": size,
        "fingerprint": source.fingerprint(),
    }
    task = Task(
        name=f"colored-mnist, {size} pixels",
        kind="image",
        classes=CLASSES,
        shape=plain.shape,
        train=splits["train"],
        validation=splits["validation"],
        tests={name: splits[name] for name in ("reversed", "gray")},
        facts=facts,
    )
    places = {name: part.tolist() for name, part in rows.items()}
    return Prepared(task, plain, places, source)


def _expect_sound(size: int, *probabilities: float) -> None:
    if size not in (14, 28):
        raise UserError(f"size must be 14 or 28, got {size}")
    wrong = [value for value in probabilities if not 0 <= value <= 1]
    if wrong:
        raise UserError(f"flips and noise must be probabilities, from 0 to 1, got {wrong[0]}")


def _prepared(asked: Asked) -> Prepared:
    asked.expect_no_options()
    size = int(asked.found["size"] or 14)
    return colored_mnist(asked.seed, size=size, data_root=asked.data_root, download=asked.download)


SET = NamedSet(
    ("colored-mnist", "colored-mnist:28"), r"colored-mnist(:(?P<size>14|28))?", _prepared
)
