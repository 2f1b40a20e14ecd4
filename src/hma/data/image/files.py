"""Pictures in files: opened when a source is made, decoded when asked for."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hma.data.image.crops import part_of
from hma.data.image.rows import WHOLE, ImageRows, Resizing, Shape, middle, shape_with
from hma.data.source import files_fingerprint
from hma.errors import UserError, reason
from hma.extras import needed
from hma.io.files import expect_regular

if TYPE_CHECKING:
    from PIL.Image import Image

MEMORY_LIMIT = 512 * 2**20
"""Bytes of decoded pixels kept; larger folders are decoded again whenever rows are asked for."""
SMALL_SIDE, SMALL_SIZE, LARGE_SIZE = 48, 32, 224
THUMBNAIL = 224
READ = 256
MOST_PIXELS = 2**26
"""Of a decoded picture; a small file may well claim more than the memory holds."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What a picture may be, whatever its name says; others may start programs."""
PictureFile = Path | BytesIO
GRAY_MODES = ("1", "L", "LA", "La", "I", "F")


class ImageFiles(ImageRows):
    """Pictures in files, several decoded at a time; pixels are kept while they fit a limit.

    Args:
        name: Short name.
        path: Folder that all files are below.
        labelled: Each file with the name of its class, or None for all of them.
        skip_bad_files: Decode every file now and leave out those that cannot be read.
        memory_limit: Bytes of decoded pixels kept.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        labelled: Sequence[tuple[Path, str | None]],
        *,
        skip_bad_files: bool = False,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self.name = name
        self.path = path
        self.memory_limit = memory_limit
        self.skipped = self._unreadable([file for file, _ in labelled]) if skip_bad_files else []
        left_out = set(self.skipped)
        kept = [(file, label) for file, label in labelled if str(file) not in left_out]
        if not kept:
            raise UserError(f"none of the {len(labelled)} images in {path} can be read")
        self.files = [file for file, _ in kept]
        self.labels = [label for _, label in kept if label is not None] or None
        self._kept: dict[tuple[Shape, Resizing], tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(8, (os.cpu_count() or 1)))

    def _unreadable(self, files: list[Path]) -> list[str]:
        readable = self._pool.map(_is_readable, files)
        return [str(file) for file, good in zip(files, readable, strict=True) if not good]

    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Return one channel if all rows are gray, else three; 32 or 224 pixels by the sides."""
        headers = list(self._pool.map(_header, [self.files[place] for place in places]))
        channels = 1 if all(gray for gray, _, _ in headers) else 3
        if size is None:
            side = median(side for _, width, height in headers for side in (width, height))
            size = SMALL_SIZE if side <= SMALL_SIDE else LARGE_SIZE
        return channels, size, size

    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return the pictures decoded, gray or in colour, and resized; ``(B, C, H, W)`` bytes."""
        if shape[0] not in (1, 3):
            shape_with(self.name, 3, shape)
        if not keep or len(self) * int(np.prod(shape)) > self.memory_limit:
            return self._decoded(rows.tolist(), shape, resizing)
        if (shape, resizing) not in self._kept:
            pixels = torch.empty(len(self), *shape, dtype=torch.uint8)
            self._kept[shape, resizing] = pixels, torch.zeros(len(self), dtype=torch.bool)
        pixels, held = self._kept[shape, resizing]
        new = torch.tensor(sorted(set(rows[~held[rows]].tolist())), dtype=torch.long)
        for part in torch.split(new, READ) if len(new) else ():
            pixels[part] = self._decoded(part.tolist(), shape, resizing)
            held[part] = True
        return pixels[rows]

    def _decoded(self, rows: list[int], shape: Shape, resizing: Resizing) -> Tensor:
        if not rows:
            return torch.empty(0, *shape, dtype=torch.uint8)
        files = [self.files[row] for row in rows]
        how = partial(decoded, shape=shape, resizing=resizing)
        return torch.stack(list(self._pool.map(how, files)))

    def read_crops(self, rows: Tensor, shape: Shape, dice: Tensor) -> Tensor:
        """Return a part of each picture, cut out at its full size and then resized.

        Args:
            rows: Which rows, ``(B,)``.
            shape: What the parts are converted and resized to.
            dice: Numbers from 0 to 1 that decide which part, ``(B, THROWS)``.
        """
        if not len(rows):
            return torch.empty(0, *shape, dtype=torch.uint8)
        files = [self.files[row] for row in rows.tolist()]
        parts = self._pool.map(decoded_part, files, [shape] * len(files), dice.tolist())
        return torch.stack(list(parts))

    def describe(self, place: int) -> str:
        """Return the path inside the folder."""
        return self.files[place].relative_to(self.path).as_posix()

    def thumbnail(self, place: int) -> "Image":
        """Return the picture in colour, at most 224 pixels wide and high."""
        with _readable(self.files[place]):
            return thumbnail_of(self.files[place])

    def fingerprint(self) -> str:
        """Return the SHA-256 of names and files."""
        return files_fingerprint(
            {self.describe(place): file for place, file in enumerate(self.files)}
        )


def decoded(file: Path, shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    """Return one picture as bytes ``(C, H, W)``."""
    with _readable(file):
        return pixels_of(file, shape, resizing)


def pixels_of(file: PictureFile, shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    """Return the same; what is wrong with a picture is said by whatever error PIL has."""
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    least = 2 / (resizing.crop or 1.0)
    image = opened_picture(file, mode, (int(least * width), int(least * height))).convert(mode)
    return _pixels(image, shape, resizing)


def decoded_part(file: Path, shape: Shape, dice: Sequence[float]) -> Tensor:
    """Return the part of one picture that ``dice`` choose, as bytes ``(C, H, W)``."""
    mode = "L" if shape[0] == 1 else "RGB"
    with _readable(file):
        image = opened_picture(file, mode).convert(mode)
        top, left, height, width = part_of(image.height, image.width, dice)
        return _pixels(image.crop((left, top, left + width, top + height)), shape)


def thumbnail_of(file: PictureFile) -> "Image":
    """Return a picture in colour, at most 224 pixels wide and high."""
    image = opened_picture(file).convert("RGB")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return image


def _pixels(image: "Image", shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    channels, height, width = shape
    tall, wide = resizing.sides(image.height, image.width, shape)
    if image.size != (wide, tall):
        methods = needed("PIL.Image", "images").Resampling
        image = image.resize((wide, tall), methods[resizing.interpolation.upper()])
    top, left = middle((tall, wide), (height, width))
    image = image.crop((left, top, left + width, top + height))
    array = np.array(image, dtype=np.uint8).reshape(height, width, channels)
    return torch.from_numpy(array).permute(2, 0, 1).contiguous()


def opened_picture(
    file: PictureFile, mode: str = "RGB", least: tuple[int, int] | None = None
) -> "Image":
    """Open a picture, upright, in a mode that converts to gray or colour without loss.

    Args:
        file: The file, or its content.
        mode: What it will be converted to.
        least: A JPEG may be decoded at a fraction of its size, but not below this.
    """
    image_module = needed("PIL.Image", "reading images")
    with image_module.open(file, formats=FORMATS) as image:
        if least is not None:
            image.draft(mode, least)
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels are more than {MOST_PIXELS}")
        image.load()
        upright: Image = needed("PIL.ImageOps", "reading images").exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of gray
        wide = np.asarray(upright).astype(np.int64)
        bytes_ = (wide // 257 if wide.max(initial=0) > 255 else wide).clip(0, 255)
        upright = image_module.fromarray(bytes_.astype(np.uint8))
    if upright.mode == "P" and "transparency" in upright.info:
        upright = upright.convert("RGBA")
    return upright


def _header(file: Path) -> tuple[bool, int, int]:
    with (
        _readable(file),
        needed("PIL.Image", "reading images").open(file, formats=FORMATS) as image,
    ):
        gray = image.mode in GRAY_MODES or image.mode.startswith("I;")
        return gray, image.width, image.height


def _is_readable(file: Path) -> bool:
    try:
        with _readable(file):
            opened_picture(file)
    except UserError:
        return False
    return True


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn what PIL says of a bad file into a message that names the file."""
    try:
        expect_regular(file)
        yield
    except UserError:
        raise
    except Exception as error:  # a damaged picture fails in many ways
        raise UserError(
            f"{file} cannot be read as an image: {reason(error)}; repair or remove it, or use "
            "--skip-bad-files to leave such files out"
        ) from error
