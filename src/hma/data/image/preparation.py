"""Images as tensors: one size, one number of channels, mean and deviation of the training rows."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from hma.data.draws import dice_of, mixed, words_of
from hma.data.image.source import (
    THROWS,
    ImageFiles,
    ImageFolder,
    ImageSource,
    Resizing,
    Shape,
    choose_part,
    resize,
)
from hma.data.preparation import Preparation, Selection
from hma.data.source import Source
from hma.data.task import Batch
from hma.errors import UserError
from hma.options.preparation import Interpolation, PreparationOptions, Transform
from hma.targets import Target

PADDING = 4
Augmentation = Literal["shift", "mirror", "crop"]
AUGMENTATIONS: dict[Augmentation, str] = {
    "shift": "random crop with 4 pixels of padding, mirror images",
    "mirror": "mirror images",
    "crop": "random part of 8% to 100% of the area, ratio 3:4 to 4:3, resized; mirror images",
}
"""What training does at random, in words."""
Variant = Callable[[Tensor, int], Tensor]
"""Returns images ``(B, C, H, W)`` for places ``(B,)`` and an epoch."""
READ = 256
LARGEST_SIDE = 2**16
AUGMENTATION: dict[Transform, Augmentation] = {
    "measured": "shift",
    "vit": "crop",
    "vit-mirror": "mirror",
    "weights": "crop",
}
VIT_SIZE, VIT_GRAY = 224, 0.5
"""Side in pixels, and both mean and deviation of each channel, that Vision Transformers expect."""


class ImageSplit:
    """A split of images that are read on demand.

    Args:
        read: Returns images ``(B, C, H, W)``, bytes or floats, for places ``(B,)``.
        labels: Class ids ``(N,)``.
        mean, std: Of each channel; bytes are divided by 255 before.
        variant: Makes the images of an epoch of training; None where they are always the same.
    """

    environment: Tensor | None = None
    """Training environment of each row ``(N,)``, where there are several."""

    def __init__(
        self,
        read: Callable[[Tensor], Tensor],
        labels: Tensor,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        variant: Variant | None = None,
    ) -> None:
        self.read = read
        self.labels = labels
        self.mean = torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1)
        self.std = torch.tensor(std, dtype=torch.float32).view(-1, 1, 1)
        self.variant = variant

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augment(self) -> bool:
        """Whether training sees another variant of the rows in every epoch."""
        return self.variant is not None

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, with ``epoch`` as training sees them then."""
        if self.variant is None or epoch is None:
            images = self.read(places)
        else:
            images = self.variant(places, epoch)
        environment = None if self.environment is None else self.environment[places]
        x = normalise(images, self.mean, self.std)
        return Batch(x, self.labels[places], places, None, environment)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return ``(images - mean) / std``; bytes are divided by 255 before."""
    values = images.float() / 255 if images.dtype == torch.uint8 else images
    return (values - mean) / std


def shift_and_mirror(images: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """Pad each image with 4 black pixels, cut one of its size out, and mirror some.

    Args:
        images: ``(B, C, H, W)``.
        down, right: Where the cut begins, 0 to 8; 4 is the image itself, ``(B,)``.
        mirror: Which images are mirrored, ``(B,)`` of bool.

    Example:
        >>> row = torch.tensor([[[[1, 2, 3]]]])
        >>> four = torch.tensor([4])
        >>> shift_and_mirror(row, four, four + 1, torch.tensor([True])).flatten().tolist()
        [0, 3, 2]
    """
    count, channels, height, width = images.shape
    framed = pad(images, (PADDING,) * 4)  # (B, C, H + 8, W + 8)
    across = torch.arange(width).expand(count, width)
    across = torch.where(mirror[:, None], width - 1 - across, across)
    rows = (down[:, None] + torch.arange(height)).view(count, 1, height, 1)
    columns = (right[:, None] + across).view(count, 1, 1, width)
    each = torch.arange(count).view(-1, 1, 1, 1)
    return framed[each, torch.arange(channels).view(1, -1, 1, 1), rows, columns]


def draw_shifts(places: Tensor, seed: int, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return how far to shift and whether to mirror each row, whatever batch it is in.

    Example:
        >>> down, right, mirror = draw_shifts(torch.arange(1000), seed=0, epoch=3)
        >>> int(down.min()), int(down.max()), bool(mirror.any() and not mirror.all())
        (0, 8, True)
    """
    words = words_of(places, seed, epoch)
    steps = np.uint64(2 * PADDING + 1)
    down = torch.from_numpy((mixed(words + np.uint64(1)) % steps).astype(np.int64))
    right = torch.from_numpy((mixed(words + np.uint64(2)) % steps).astype(np.int64))
    mirror = torch.from_numpy((mixed(words + np.uint64(3)) >> np.uint64(63)).astype(np.bool_))
    return down, right, mirror


def mirror_images(images: Tensor, mirror: Tensor) -> Tensor:
    """Mirror some images left to right.

    Args:
        images: ``(B, C, H, W)``.
        mirror: Which of them, ``(B,)`` of bool.

    Example:
        >>> mirror_images(torch.tensor([[[[1, 2, 3]]]]), torch.tensor([True])).flatten().tolist()
        [3, 2, 1]
    """
    return torch.where(mirror.view(-1, 1, 1, 1), images.flip(3), images)


def cut_parts(images: Tensor, shape: Shape, dice: Tensor) -> Tensor:
    """Return a part of each image, resized.

    Args:
        images: ``(B, C, H, W)``.
        shape: What the parts are resized to.
        dice: Numbers that decide which part, ``(B, THROWS)``.
    """
    height, width = images.shape[2:]
    cut = []
    for image, row in zip(images, dice.tolist(), strict=True):
        top, left, tall, wide = choose_part(height, width, row)
        part = image[None, :, top : top + tall, left : left + wide]
        cut.append(resize(part, shape))
    return torch.cat(cut) if cut else images.new_empty(0, *shape)


@dataclass(frozen=True)
class ImagePreparation(Preparation):
    """Size, channels and normalisation.

    Args:
        shape: Channels, height, width.
        mean, std: Of each channel over the training rows, or those that weights were trained with.
        unit: Whether pixels run from black to full brightness, rather than being any numbers.
        augmentation: What training does at random, where it is asked to.
        interpolation, crop: How images come to their size, see
            :class:`hma.data.image.source.Resizing`.
    """

    shape: Shape
    mean: tuple[float, ...]
    std: tuple[float, ...]
    unit: bool
    augmentation: Augmentation = "shift"
    interpolation: Interpolation = "bilinear"
    crop: float | None = None

    kind = "image"
    unlabelled = "put the images into one folder for each class, or add y to the .npz"

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = len(self.shape) == 3 and all(0 < size <= LARGEST_SIDE for size in self.shape)
        if not sizes or not len(self.mean) == len(self.std) == self.shape[0]:
            raise ValueError(f"shape {self.shape} with {len(self.mean)} means is no image")
        if not all(map(math.isfinite, self.mean)) or not all(
            0 < std < math.inf for std in self.std
        ):
            raise ValueError(f"mean {self.mean} and std {self.std} must be finite, std above 0")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise ValueError(f"crop must be above 0 and at most 1, got {self.crop}")

    @property
    def resizing(self) -> Resizing:
        """How images are resized."""
        return Resizing(self.interpolation, self.crop)

    def split(
        self,
        source: Source,
        places: Sequence[int] | None = None,
        *,
        augment_seed: int | None = None,
    ) -> ImageSplit:
        """Return images that are read on demand, and kept in memory while they are few.

        Args:
            source: Where they are.
            places: Which of them; None for all.
            augment_seed: Decides which variant of them training sees in an epoch; None for none.
        """
        images = self._expect_fitting(source)
        rows = torch.arange(len(source)) if places is None else torch.as_tensor(list(places))
        labels = self.labels_of(source, places)
        read = partial(self._read, images, rows.long())
        variant = (
            None
            if augment_seed is None
            else partial(self._variant, images, rows.long(), augment_seed)
        )
        return ImageSplit(read, labels, mean=self.mean, std=self.std, variant=variant)

    def splits(
        self,
        source: Source,
        places: Mapping[str, Sequence[int]],
        options: PreparationOptions,
        seed: int,
    ) -> Mapping[str, ImageSplit]:
        """Return all splits; training rows are augmented if asked for.

        Files of a user are all read once, so that a bad one is named before training.
        """
        if isinstance(source, ImageFolder):
            for rows in torch.split(torch.arange(len(source)), READ):
                self._read(source, torch.arange(len(source)), rows)
        seeds = {"train": seed if options.augment else None}
        return {
            name: self.split(source, rows, augment_seed=seeds.get(name))
            for name, rows in places.items()
        }

    def training_facts(self, options: PreparationOptions) -> dict[str, Any]:
        """Return what training does at random."""
        return {"augmentation": AUGMENTATIONS[self.augmentation]} if options.augment else {}

    def _variant(
        self, images: ImageSource, rows: Tensor, seed: int, places: Tensor, epoch: int
    ) -> Tensor:
        """Return images as training sees them in an epoch."""
        wanted = rows[places]
        if self.augmentation == "shift":
            plain = self._read(images, rows, places)
            return shift_and_mirror(plain, *draw_shifts(places, seed, epoch))
        dice = dice_of(words_of(places, seed, epoch), 1 + THROWS)
        if self.augmentation == "mirror":
            seen = self._read(images, rows, places)
        elif isinstance(images, ImageFiles):
            seen = images.read_crops(wanted, self.shape, dice[:, 1:])
        else:
            whole = images.read(wanted, images.shape_for(wanted.tolist(), None), keep=False)
            seen = cut_parts(whole, self.shape, dice[:, 1:])
        return mirror_images(seen, dice[:, 0] < 0.5)

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the images in order, holding one batch at a time."""
        images = self._expect_fitting(source)
        split = self.split(source)
        for rows in torch.split(torch.arange(len(source)), batch_size):
            pixels = images.read(rows, self.shape, keep=False, resizing=self.resizing)
            x = normalise(pixels, split.mean, split.std)
            yield Batch(x, split.labels[rows], rows)

    def _read(self, images: ImageSource, rows: Tensor, places: Tensor) -> Tensor:
        return images.read(rows[places], self.shape, keep=True, resizing=self.resizing)

    def _expect_fitting(self, source: Source) -> ImageSource:
        images = ImageSource.expect(source)
        if images.unit != self.unit:
            kinds = {True: "pixels from 0 to 255", False: "arrays of other numbers"}
            raise UserError(
                f"{source.name} holds {kinds[images.unit]}, but the model was prepared for "
                f"{kinds[self.unit]}; give images of the same kind"
            )
        return images

    def facts(self) -> dict[str, Any]:
        """Return what is done to the images."""
        resize = f"to a square of that size, {self.interpolation}; whole image, no crop"
        if self.crop is not None:
            resize = (
                f"sides in their ratio, {self.interpolation}; the middle of {100 * self.crop:g}% "
                "of the shorter side is kept"
            )
        return {
            "channels, height, width": list(self.shape),
            "resize": resize,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def fit(
        cls, rows: Selection, classes: tuple[str, ...], target: Target, options: PreparationOptions
    ) -> Self:
        """Learn size, channels, mean and deviation from the training rows.

        The transforms for Vision Transformers and for weights fix all of these but the channels.
        """
        images = ImageSource.expect(rows.source)
        transform = options.transform or "measured"
        fixed = transform != "measured"
        size = options.image_size or (VIT_SIZE if fixed else None)
        shape = images.shape_for(rows.places, size)
        resizing = Resizing(options.interpolation or "bilinear", options.crop)
        if options.mean:
            mean, std = _for_channels(options.mean, shape[0]), _for_channels(options.std, shape[0])
        elif transform == "weights":
            raise UserError(
                "transform 'weights' is for weights that are known to say how they want images, "
                "those of timm:NAME and vit:NAME; give mean and std, or use transform 'measured'"
            )
        elif fixed:
            mean = std = (VIT_GRAY,) * shape[0]
        else:
            mean, std = _measure(images, rows.places, shape, resizing)
        if fixed and not images.unit:
            raise UserError(
                f"transform {transform!r} is for pixels from 0 to 255, but {images.name} holds "
                "arrays of other numbers; use transform 'measured'"
            )
        return cls(
            classes,
            shape,
            mean,
            std,
            bool(images.unit),
            augmentation=AUGMENTATION[transform],
            interpolation=resizing.interpolation,
            crop=resizing.crop,
            target=target,
        )


def keep_as_is(classes: tuple[str, ...], shape: tuple[int, ...]) -> ImagePreparation:
    """Return a preparation that leaves pixels from 0 to 1 unchanged."""
    channels, height, width = shape
    zeros, ones = (0.0,) * channels, (1.0,) * channels
    return ImagePreparation(classes, (channels, height, width), zeros, ones, unit=True)


def _for_channels(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Return a value for each channel; the mean of all if there are more or fewer channels."""
    return values if len(values) == channels else (sum(values) / len(values),) * channels


def _measure(
    images: ImageSource, places: Sequence[int], shape: Shape, resizing: Resizing
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel."""
    count, total, squares = 0, torch.zeros(shape[0]).double(), torch.zeros(shape[0]).double()
    done = 0
    for rows in torch.split(torch.as_tensor(list(places)), READ):
        pixels = images.read(rows, shape, keep=True, resizing=resizing)
        done += len(rows)
        if images.told is not None:
            images.told(done, len(places))
        # bytes add up exactly, in any order
        values = pixels.long() if pixels.dtype == torch.uint8 else pixels.double()
        count += values.numel() // shape[0]
        total += values.sum(dim=(0, 2, 3))
        squares += (values * values).sum(dim=(0, 2, 3))
    scale = 255.0 if pixels.dtype == torch.uint8 else 1.0
    mean = total / count
    std = (squares / count - mean * mean).clamp(min=0).sqrt()
    std[std < 1e-6 * scale] = scale  # a channel of one brightness
    return tuple((mean / scale).tolist()), tuple((std / scale).tolist())
