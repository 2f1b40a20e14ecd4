"""Images as tensors: one size, one number of channels, mean and deviation of the training rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from hma.data.draws import dice_of, words_of
from hma.data.image.crops import THROWS, parts_of
from hma.data.image.files import ImageFiles
from hma.data.image.folder import ImageFolder
from hma.data.image.rows import ImageRows, Resizing, Shape
from hma.data.image.split import (
    AUGMENTATIONS,
    Augmentation,
    Images,
    draws,
    mirrored,
    normalised,
    shifted_and_mirrored,
)
from hma.data.options import Interpolation, PreparationOptions, Transform
from hma.data.preparation import Preparation
from hma.data.source import Source, expect_kind
from hma.data.task import Batch
from hma.errors import UserError
from hma.io.json_files import Default
from hma.targets import Target

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


@dataclass(frozen=True)
class ImagePreparation(Preparation):
    """Size, channels and normalisation.

    Args:
        shape: Channels, height, width.
        mean, std: Of each channel over the training rows, or those that weights were trained with.
        unit: Whether pixels run from black to full brightness, rather than being any numbers.
        augmentation: What training does at random, where it is asked to.
        interpolation, crop: How images come to their size, see
            :class:`hma.data.image.rows.Resizing`.
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
    fields_in_json: ClassVar = {
        "shape": list[int],
        "mean": list[float],
        "std": list[float],
        "unit": bool,
        "augmentation": Default(Augmentation, "shift"),
        "interpolation": Default(Interpolation, "bilinear"),
        "crop": Default(float | None),
    }

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
        """How images come to their size."""
        return Resizing(self.interpolation, self.crop)

    def split(
        self,
        source: Source,
        places: Sequence[int] | None = None,
        *,
        augment_seed: int | None = None,
    ) -> Images:
        """Return images that are read when asked for, and kept while they are few.

        Args:
            source: Where they are.
            places: Which of them; None for all.
            augment_seed: Decides which variant of them training sees in an epoch; None for none.
        """
        images = self._checked(source)
        rows = torch.arange(len(source)) if places is None else torch.as_tensor(list(places))
        labels = self.labels_of(source, places)
        read = partial(self._read, images, rows.long())
        variant = (
            None
            if augment_seed is None
            else partial(self._variant, images, rows.long(), augment_seed)
        )
        return Images(read, labels, mean=self.mean, std=self.std, variant=variant)

    def splits(
        self,
        source: Source,
        places: Mapping[str, Sequence[int]],
        options: PreparationOptions,
        seed: int,
    ) -> Mapping[str, Images]:
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
        """Say what training does at random."""
        return {"augmentation": AUGMENTATIONS[self.augmentation]} if options.augment else {}

    def _variant(
        self, images: ImageRows, rows: Tensor, seed: int, places: Tensor, epoch: int
    ) -> Tensor:
        """Return images as training sees them in an epoch."""
        wanted = rows[places]
        if self.augmentation == "shift":
            plain = self._read(images, rows, places)
            return shifted_and_mirrored(plain, *draws(places, seed, epoch))
        dice = dice_of(words_of(places, seed, epoch), 1 + THROWS)
        if self.augmentation == "mirror":
            seen = self._read(images, rows, places)
        elif isinstance(images, ImageFiles):
            seen = images.read_crops(wanted, self.shape, dice[:, 1:])
        else:
            whole = images.read(wanted, images.shape_for(wanted.tolist(), None), keep=False)
            seen = parts_of(whole, self.shape, dice[:, 1:])
        return mirrored(seen, dice[:, 0] < 0.5)

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the images in order, holding one batch at a time."""
        images = self._checked(source)
        split = self.split(source)
        for rows in torch.split(torch.arange(len(source)), batch_size):
            pixels = images.read(rows, self.shape, keep=False, resizing=self.resizing)
            x = normalised(pixels, split.mean, split.std)
            yield Batch(x, split.labels[rows], rows)

    def _read(self, images: ImageRows, rows: Tensor, places: Tensor) -> Tensor:
        return images.read(rows[places], self.shape, keep=True, resizing=self.resizing)

    def _checked(self, source: Source) -> ImageRows:
        expect_kind(source, self.kind)
        images = cast("ImageRows", source)
        if images.unit != self.unit:
            kinds = {True: "pixels from 0 to 255", False: "arrays of other numbers"}
            raise UserError(
                f"{source.name} holds {kinds[images.unit]}, but the model was prepared for "
                f"{kinds[self.unit]}; give images of the same kind"
            )
        return images

    def facts(self) -> dict[str, Any]:
        """Say what is done to the images."""
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
        cls,
        source: Source,
        places: Sequence[int],
        classes: tuple[str, ...],
        target: Target,
        options: PreparationOptions,
    ) -> Self:
        """Learn size, channels, mean and deviation from the rows at ``places``.

        The transforms for Vision Transformers and for weights fix all of these but the channels.
        """
        images = cast("ImageRows", source)
        transform = options.transform or "measured"
        fixed = transform != "measured"
        size = options.image_size or (VIT_SIZE if fixed else None)
        shape = images.shape_for(places, size)
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
            mean, std = _measured(images, places, shape, resizing)
        if fixed and not images.unit:
            raise UserError(
                f"transform {transform!r} is for pixels from 0 to 255, but {source.name} holds "
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


def as_they_are(classes: tuple[str, ...], shape: tuple[int, ...]) -> ImagePreparation:
    """Return a preparation that leaves pixels of full brightness 1 as they are."""
    channels, height, width = shape
    zeros, ones = (0.0,) * channels, (1.0,) * channels
    return ImagePreparation(classes, (channels, height, width), zeros, ones, unit=True)


def _for_channels(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Return a value for each channel: those given, or their mean where the channels are others."""
    return values if len(values) == channels else (sum(values) / len(values),) * channels


def _measured(
    images: ImageRows, places: Sequence[int], shape: Shape, resizing: Resizing
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
