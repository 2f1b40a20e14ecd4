"""Images: pictures in files and folders, decoded on demand, and pictures given one by one."""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hma.data.source import Source, files_fingerprint
from hma.errors import UserError, reason
from hma.extras import needed
from hma.io.files import expect_regular
from hma.options.preparation import Interpolation, Kind

if TYPE_CHECKING:
    from PIL.Image import Image

Shape = tuple[int, int, int]
"""Channels, height, width."""
ATTEMPTS = 10
"""Random parts that are tried before the middle of an image is taken."""
THROWS = 4 * ATTEMPTS
"""Random numbers that a part needs at most: area, shape, top and left, for each attempt."""
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Least and most of a random part: share of the area, and width divided by height."""
Part = tuple[int, int, int, int]
"""Top, left, height, width."""
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
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff",
           ".webp")  # fmt: skip
SPLITS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
"""Names of folders, and the splits that lie in them."""


class Resizing(NamedTuple):
    """How an image is resized.

    Args:
        interpolation: How pixels between pixels are found.
        crop: None squashes the whole image. A share keeps the ratio of the sides: the image is
            resized until this share of its shorter side is what is wanted, and that is cut out
            of its middle, as image models are tested.
    """

    interpolation: Interpolation = "bilinear"
    crop: float | None = None

    def sides(self, height: int, width: int, shape: Shape) -> tuple[int, int]:
        """Return height and width of a whole image before the middle is cut out of it.

        Example:
            >>> Resizing("bicubic", crop=0.875).sides(375, 500, (3, 224, 224))
            (256, 341)
        """
        if self.crop is None:
            return shape[1:]
        short = math.floor(max(shape[1:]) / self.crop)
        long = int(short * max(height, width) / min(height, width))
        return (short, long) if height <= width else (long, short)


WHOLE = Resizing()


def middle(whole: tuple[int, int], part: tuple[int, int]) -> tuple[int, int]:
    """Return top and left of a part centred in a whole."""
    return round((whole[0] - part[0]) / 2), round((whole[1] - part[1]) / 2)


class ImageSource(Source, ABC):
    """A source of kind "image"."""

    kind: ClassVar[Kind] = "image"
    unit: bool = True
    """Whether 0 is black and full brightness is 1, or 255 for bytes."""

    @abstractmethod
    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Return the shape to learn from, given the training rows and the size asked for."""

    @abstractmethod
    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return images ``(B, C, H, W)`` of ``shape``, bytes or floats.

        Args:
            rows: Which rows, ``(B,)``.
            shape: What they are converted and resized to.
            keep: Whether decoded images may be held for the next time.
            resizing: How they come to that size.
        """


def expect_channels(name: str, channels: int, shape: Shape) -> None:
    """Raise unless images with ``channels`` can be made into ``shape``."""
    if channels != shape[0]:
        raise UserError(
            f"{name} has images with {channels} channels, but the model was prepared for "
            f"{shape[0]}; give images of the same kind"
        )


def resize(images: Tensor, shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    """Resize images ``(B, C, H, W)``, unless they have that height and width.

    Example:
        >>> resize(torch.full((1, 1, 4, 4), 9, dtype=torch.uint8), (1, 2, 2)).flatten().tolist()
        [9, 9, 9, 9]
    """
    height, width = shape[1:]
    sides = resizing.sides(images.shape[2], images.shape[3], shape)
    if tuple(images.shape[2:]) != sides:
        smooth = interpolate(images.float(), sides, mode=resizing.interpolation, antialias=True)
        as_bytes = images.dtype == torch.uint8
        images = smooth.round().clamp(0, 255).to(torch.uint8) if as_bytes else smooth
    top, left = middle(sides, (height, width))
    return images[:, :, top : top + height, left : left + width]


def choose_part(height: int, width: int, dice: Sequence[float]) -> Part:
    """Return a part with 8% to all of the area and a ratio of 3:4 to 4:3, as torchvision draws it.

    Where ten attempts do not fit into the image, it is the largest such part of its middle.

    Args:
        height, width: Of the image.
        dice: ``THROWS`` numbers from 0 to 1, the upper end excluded.

    Example:
        >>> choose_part(100, 80, [0.5, 0.5, 0.0, 0.999] + 36 * [0.0])
        (0, 14, 66, 66)
    """
    low, high = (math.log(ratio) for ratio in RATIO)
    for place in range(0, THROWS, 4):
        share, shape, down, right = dice[place : place + 4]
        area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * share)
        ratio = math.exp(low + (high - low) * shape)
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return int(down * (height - tall + 1)), int(right * (width - wide + 1)), tall, wide
    tall, wide = height, width
    if width / height < RATIO[0]:
        tall = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        wide = round(height * RATIO[1])
    return (height - tall) // 2, (width - wide) // 2, tall, wide


class ImageFiles(ImageSource):
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
            expect_channels(self.name, 3, shape)
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
        how = partial(decode, shape=shape, resizing=resizing)
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
        parts = self._pool.map(decode_part, files, [shape] * len(files), dice.tolist())
        return torch.stack(list(parts))

    def describe(self, place: int) -> str:
        """Return the path inside the folder."""
        return self.files[place].relative_to(self.path).as_posix()

    def thumbnail(self, place: int) -> "Image":
        """Return the picture in colour, at most 224 pixels wide and high."""
        with _readable(self.files[place]):
            return read_thumbnail(self.files[place])

    def fingerprint(self) -> str:
        """Return the SHA-256 of names and files."""
        return files_fingerprint(
            {self.describe(place): file for place, file in enumerate(self.files)}
        )


def decode(file: Path, shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    """Return one picture as bytes ``(C, H, W)``."""
    with _readable(file):
        return read_pixels(file, shape, resizing)


def read_pixels(file: PictureFile, shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    """Return the same; a bad picture raises whatever PIL raises."""
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    least = 2 / (resizing.crop or 1.0)
    image = open_picture(file, mode, (int(least * width), int(least * height))).convert(mode)
    return _pixels(image, shape, resizing)


def decode_part(file: Path, shape: Shape, dice: Sequence[float]) -> Tensor:
    """Return the part of one picture that ``dice`` choose, as bytes ``(C, H, W)``."""
    mode = "L" if shape[0] == 1 else "RGB"
    with _readable(file):
        image = open_picture(file, mode).convert(mode)
        top, left, height, width = choose_part(image.height, image.width, dice)
        return _pixels(image.crop((left, top, left + width, top + height)), shape)


def read_thumbnail(file: PictureFile) -> "Image":
    """Return a picture in colour, at most 224 pixels wide and high."""
    image = open_picture(file).convert("RGB")
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


def open_picture(
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
            open_picture(file)
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


class ImageFolder(ImageFiles):
    """Pictures in class-named folders, or, without labels, in one flat folder.

    Args:
        path: The folder.
        skip_bad_files: Decode every file now and leave out those that cannot be read.
        memory_limit: Bytes of decoded pixels kept.
    """

    def __init__(
        self, path: Path, *, skip_bad_files: bool = False, memory_limit: int = MEMORY_LIMIT
    ) -> None:
        super().__init__(
            path.resolve().name,
            path,
            _find_images(path),
            skip_bad_files=skip_bad_files,
            memory_limit=memory_limit,
        )


def split_folders(path: Path) -> dict[str, Path]:
    """Return the folder of each split where a folder holds train and others; else nothing.

    A folder ``train`` with images right in it is that of a class.
    """
    folders = sorted(folder for folder in path.iterdir() if _is_folder(folder))
    named = [(SPLITS.get(folder.name.lower()), folder) for folder in folders]
    found = {name: folder for name, folder in named if name is not None}
    if "train" not in found or len(found) == 1 or images_in(found["train"]):
        return {}
    for name, folder in named:
        if found.get(name or "") != folder:
            raise UserError(
                f"{folder} is one too many: beside train there may be one of val, valid and "
                "validation, and test; move it elsewhere"
            )
        if name != "train" and images_in(folder):
            raise UserError(
                f"{folder} holds images without classes ({images_in(folder)[0].name}), so it is no "
                "split; move it elsewhere, and give it to hma predict later"
            )
    return dict(sorted(found.items(), key=lambda one: list(SPLITS.values()).index(one[0])))


def _find_images(path: Path) -> list[tuple[Path, str | None]]:
    """Return every image below a folder with the name of its class, None in a flat folder."""
    flat = images_in(path)
    folders = sorted(folder for folder in path.iterdir() if _is_folder(folder))
    inside = {folder: images_in(folder) for folder in folders}
    deeper = next((deep for folder in folders for deep in _folders_of_images(folder)), None)
    if deeper is not None:
        raise UserError(
            f"{deeper} holds images too deep inside {path}; give the folder whose folders are "
            f"named after the classes, such as {deeper.parent}"
        )
    if flat and any(inside.values()):
        raise UserError(
            f"{path} holds both images ({flat[0].name}) and folders of images; put every image "
            "into the folder of its class, or none"
        )
    if flat:
        return [(file, None) for file in flat]
    if not any(inside.values()):
        raise UserError(
            f"{path} holds no images ({', '.join(ENDINGS)}); give a folder with one folder of "
            "images for each class, or, to predict, a folder of images"
        )
    odd = [folder for folder in folders if not _is_text(folder.name)]
    if odd:
        raise UserError(f"{path} has a folder whose name is no UTF-8, {odd[0].name!a}; rename it")
    empty = [folder for folder in folders if not inside[folder]]
    if empty:
        raise UserError(
            f"{empty[0]} holds no images, as one of {len(empty)} such folders; add images of that "
            "class or remove the folder"
        )
    return [(file, folder.name) for folder in folders for file in inside[folder]]


def images_in(folder: Path) -> list[Path]:
    """Return the pictures in a folder, by name."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
    )


def _folders_of_images(folder: Path) -> Iterator[Path]:
    return (deep for deep in sorted(folder.iterdir()) if _is_folder(deep) and images_in(deep))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_folder(folder: Path) -> bool:
    return folder.is_dir() and not folder.name.startswith((".", "__MACOSX"))


class GivenImages(ImageSource):
    """Pictures without labels, decoded as those of a folder are.

    Args:
        name: Short name.
        pictures: Content of a PNG, JPEG or other file of pictures, each.
    """

    def __init__(self, name: str, pictures: Sequence[bytes]) -> None:
        self.name = name
        self.labels = None
        self.pictures = list(pictures)

    def __len__(self) -> int:
        return len(self.pictures)

    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Raise: nothing is learned from pictures that are to be predicted."""
        raise UserError(f"{self.name} holds pictures to ask about, from which nothing is learned")

    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return the pictures decoded, gray or in colour, and resized; ``(B, C, H, W)`` bytes."""
        if shape[0] not in (1, 3):
            expect_channels(self.name, 3, shape)
        found = [torch.empty(0, *shape, dtype=torch.uint8)]
        for place in rows.tolist():
            with self._readable(place):
                found.append(read_pixels(BytesIO(self.pictures[place]), shape, resizing)[None])
        return torch.cat(found)

    def describe(self, place: int) -> str:
        """Return the number of the picture."""
        return f"image {place} of {self.name}"

    def thumbnail(self, place: int) -> "Image":
        """Return the picture in colour, at most 224 pixels wide and high."""
        with self._readable(place):
            return read_thumbnail(BytesIO(self.pictures[place]))

    def fingerprint(self) -> str:
        """Return the SHA-256 of the pictures."""
        digest = hashlib.sha256()
        for picture in self.pictures:
            digest.update(hashlib.sha256(picture).digest())
        return digest.hexdigest()

    @contextmanager
    def _readable(self, place: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a damaged picture fails in many ways
            raise UserError(
                f"image {place} of {self.name} cannot be read: {reason(error)}; give the content "
                f"of one of {', '.join(FORMATS)}"
            ) from error
