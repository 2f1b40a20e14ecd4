"""Images as tensors: one size, one number of channels, mean and deviation of the training rows."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from hma.data.image.crops import THROWS, dice_of, parts_of, words_of
from hma.data.image.files import ImageFiles
from hma.data.image.rows import ImageRows, Shape
from hma.data.image.split import (
    Augmentation,
    Images,
    draws,
    mirrored,
    normalised,
    shifted_and_mirrored,
)
from hma.data.preparation import FORMAT, PreparationOptions, Transform, label_ids
from hma.data.source import Source, expect_kind
from hma.data.task import Batch, Kind
from hma.errors import UserError

READ = 256
AUGMENTATION: dict[Transform, Augmentation] = {
    "measured": "shift",
    "vit": "crop",
    "vit-mirror": "mirror",
}
VIT_SIZE, VIT_GRAY = 224, 0.5
"""Side in pixels, and both mean and deviation of each channel, that Vision Transformers expect."""


@dataclass(frozen=True)
class ImagePreparation:
    """Size, channels and normalisation.

    Args:
        classes: Names of the classes.
        shape: Channels, height, width.
        mean, std: Of each channel over the training rows.
        unit: Whether pixels run from black to full brightness, rather than being any numbers.
        augmentation: What training does at random, where it is asked to.
    """

    classes: tuple[str, ...]
    shape: Shape
    mean: tuple[float, ...]
    std: tuple[float, ...]
    unit: bool
    augmentation: Augmentation = "shift"
    kind: Kind = "image"

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
        labels = label_ids(source, self.classes, places)
        read = partial(_read, images, rows.long(), self.shape)
        variant = (
            None
            if augment_seed is None
            else partial(self._variant, images, rows.long(), augment_seed)
        )
        return Images(read, labels, mean=self.mean, std=self.std, variant=variant)

    def _variant(
        self, images: ImageRows, rows: Tensor, seed: int, places: Tensor, epoch: int
    ) -> Tensor:
        """Return images as training sees them in an epoch."""
        wanted = rows[places]
        if self.augmentation == "shift":
            plain = images.read(wanted, self.shape, keep=True)
            return shifted_and_mirrored(plain, *draws(places, seed, epoch))
        dice = dice_of(words_of(places, seed, epoch), 1 + THROWS)
        if self.augmentation == "mirror":
            seen = images.read(wanted, self.shape, keep=True)
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
            x = normalised(images.read(rows, self.shape, keep=False), split.mean, split.std)
            yield Batch(x, split.labels[rows], rows)

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
        return {
            "channels, height, width": list(self.shape),
            "resize": "to a square of that size, bilinear; whole image, no crop",
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        lists = {name: list(getattr(self, name)) for name in ("classes", "shape", "mean", "std")}
        return {"format": FORMAT, **asdict(self), **lists}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ImagePreparation":
        """Return what :meth:`to_json` wrote."""
        channels, height, width = values["shape"]
        return cls(
            tuple(values["classes"]),
            (channels, height, width),
            mean=tuple(values["mean"]),
            std=tuple(values["std"]),
            unit=values["unit"],
            augmentation=values.get("augmentation", "shift"),
        )


def fit_images(
    source: Source, places: Sequence[int], classes: tuple[str, ...], options: PreparationOptions
) -> ImagePreparation:
    """Learn size, channels, mean and deviation from the rows at ``places``.

    The transforms for Vision Transformers fix all of these but the channels.
    """
    images = cast("ImageRows", source)
    transform = options.transform or "measured"
    fixed = transform != "measured"
    size = options.image_size or (VIT_SIZE if fixed else None)
    shape = images.shape_for(places, size)
    mean, std = _measured(images, places, shape) if not fixed else ((VIT_GRAY,) * shape[0],) * 2
    if fixed and not images.unit:
        raise UserError(
            f"transform {transform!r} is for pixels from 0 to 255, but {source.name} holds arrays "
            "of other numbers; use transform 'measured'"
        )
    return ImagePreparation(
        classes, shape, mean, std, images.unit, augmentation=AUGMENTATION[transform]
    )


def _measured(
    images: ImageRows, places: Sequence[int], shape: Shape
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel."""
    count, total, squares = 0, torch.zeros(shape[0]).double(), torch.zeros(shape[0]).double()
    for rows in torch.split(torch.as_tensor(list(places)), READ):
        pixels = images.read(rows, shape, keep=True)
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


def read_all(source: Source, shape: Shape) -> None:
    """Read every image once, so that a file that cannot be read is named before training."""
    images = cast("ImageRows", source)
    for rows in torch.split(torch.arange(len(source)), READ):
        images.read(rows, shape, keep=True)


def _read(images: ImageRows, rows: Tensor, shape: Shape, places: Tensor) -> Tensor:
    return images.read(rows[places], shape, keep=True)
