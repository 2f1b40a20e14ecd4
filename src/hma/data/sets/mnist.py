"""MNIST from its idx files, and Colored MNIST: a colour that misleads at test time."""

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.arrays import ArrayImages, draw_picture
from hma.data.image.preparation import keep_as_is
from hma.data.image.source import WHOLE, ImageSource, Resizing, Shape, expect_channels, resize
from hma.data.labels import encode
from hma.data.prepared import Prepared, prepare_splits
from hma.data.sets.digits import DIGITS, first_per_class, toss_coins
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.source import array_fingerprint
from hma.data.storage import data_folder, fetch, missing_data
from hma.data.task import Task
from hma.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
"""Names, and the MD5 of the compressed files."""
TRAIN = 60_000
CLASSES = ("5 to 9", "0 to 4")
GRAY = 2
PAINT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
"""What a colour leaves in the two channels: one of them, or half in both."""
ENVIRONMENT = 25_000
TEST_FLIP = 0.9


def mnist_images(data_root: Path | None = None, *, download: bool = False) -> tuple[Tensor, Tensor]:
    """Return all images ``(70000, 28, 28)`` as bytes and their digits; test images come last."""
    folder = data_folder(data_root) / "MNIST" / "raw"
    arrays = [_read(folder, name, download=download) for name in FILES]
    images = torch.from_numpy(np.concatenate([arrays[0], arrays[2]]))
    digits = torch.from_numpy(np.concatenate([arrays[1], arrays[3]]).astype(np.int64))
    if len(images) != len(digits):
        raise UserError(f"{folder} holds {len(images)} images but {len(digits)} labels")
    return images, digits


def mnist_source(data_root: Path | None = None, *, download: bool = False) -> ArrayImages:
    """Return MNIST as a source: 60,000 training images, then 10,000 test images."""
    images, digits = mnist_images(data_root, download=download)
    labels = [str(digit) for digit in digits.tolist()]
    return ArrayImages("mnist", images[:, None], labels, unit=True)


def read_idx(file: Path) -> NDArray[Any]:
    """Return the array of bytes in an idx file, compressed or not."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}; fetch it again") from error
    axes = content[3] if len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4))
    if content[:3] != b"\0\0\x08" or len(content) != start + prod(shape):
        raise UserError(f"{file} is not a whole idx file of bytes; fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read(folder: Path, name: str, *, download: bool) -> NDArray[Any]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.exists() and not packed.exists():
        if not download:
            raise missing_data("MNIST", plain, ADDRESS)
        fetch(f"{ADDRESS}{packed.name}", packed, FILES[name])
    return read_idx(plain if plain.exists() else packed)


def _prepare_mnist(request: SetRequest) -> Prepared:
    per_class = request.number("per_class")
    source = mnist_source(request.data_root, download=request.download)
    order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(request.seed))
    places = {
        "train": first_per_class(
            order[:50_000], encode(source.labels or [], DIGITS), per_class
        ).tolist(),
        "validation": order[50_000:].tolist(),
        "test": list(range(TRAIN, len(source))),
    }
    facts = {
        "split": "50,000 for training and 10,000 for validation by seed; MNIST's test images",
        "seed": request.seed,
        "per_class": per_class,
    }
    return prepare_splits(
        source, places, classes=DIGITS, seed=request.seed, facts=facts, options=request.options
    )


class PaintedImages(ImageSource):
    """Gray images shown in one of two colours, or in neither; painted on demand.

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
        expect_channels(self.name, 2, shape)
        gray = self.images[self.image[rows], None].float() / 255  # (B, 1, H, W)
        paint = PAINT[self.colour[rows], :, None, None]  # (B, 2, 1, 1)
        return resize(gray * paint, shape, resizing)

    def describe(self, place: int) -> str:
        """Return the number of the image and its colour."""
        colour = ("red", "green", "gray")[int(self.colour[place])]
        return f"image {int(self.image[place])} in {colour}"

    def thumbnail(self, place: int) -> "Image":
        """Return the image, red, green or yellow for gray."""
        height, width = self.images.shape[1:]
        return draw_picture(
            self.read(torch.tensor([place]), (2, height, width), keep=False)[0], True
        )

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
    label = (digits[shown] < 5).long() ^ toss_coins(noise, len(shown), generator)
    environment = torch.arange(TRAIN) % 2
    flip = torch.cat([torch.tensor(flips)[environment], torch.full((tests,), TEST_FLIP)])
    colour = label ^ toss_coins(flip, len(shown), generator)
    label = torch.cat([label, label[TRAIN:]])  # the test images once more, in gray
    source = PaintedImages(
        "colored-mnist",
        images,
        torch.cat([shown, shown[TRAIN:]]),
        torch.cat([colour, torch.full((tests,), GRAY)]),
        [CLASSES[value] for value in label.tolist()],
    )
    facts = {"flips": list(flips), "noise": noise, "test flip": TEST_FLIP, "seed": seed}
    return _split_into_environments(source, environment, size, facts)


def _split_into_environments(
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
    plain = keep_as_is(CLASSES, (2, size, size))
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


def _prepare_colored_mnist(request: SetRequest) -> Prepared:
    request.expect_no_options()
    size = int(request.groups["size"] or 14)
    return colored_mnist(
        request.seed, size=size, data_root=request.data_root, download=request.download
    )


SETS = (
    NamedSet(
        ("mnist", "mnist:N"),
        r"mnist(:(?P<per_class>\d{1,9}))?",
        _prepare_mnist,
        lambda request: mnist_source(request.data_root),
    ),
    NamedSet(
        ("colored-mnist", "colored-mnist:28"),
        r"colored-mnist(:(?P<size>14|28))?",
        _prepare_colored_mnist,
    ),
)
